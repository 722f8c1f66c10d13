"""Read byte ranges of a file or an object, with facts that change with its content."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from kpipe.errors import ReadFailed, StoreUnreachable
from resources.object_store.clients import client
from resources.object_store.config import StoreAccess
from resources.object_store.store import Store, StoreFailed

__all__ = ["LONGEST_LINE", "Content", "Facts", "opened", "store_of", "unreadable"]

LONGEST_LINE = 16 << 20
"""A longer line is an error: a Kafka message of this size needs settings on every broker and client."""


@dataclass(frozen=True)
class Facts:
    """Facts about a file that change with its content.

    Attributes:
        size: bytes.
        tag: device, inode and time of change in nanoseconds; or the object's ETag.
    """

    size: int
    tag: str


class Content(Protocol):
    """An open file or object.

    Attributes:
        facts: when it was opened.
    """

    facts: Facts

    def read(self, start: int, end: int) -> bytes:
        """Read bytes `[start, end)`; fewer if the file ends before."""


class _File:
    def __init__(self, number: int, found: os.stat_result) -> None:
        self._number, self.facts = number, local_facts(found)

    def read(self, start: int, end: int) -> bytes:
        parts, at = [], start
        while at < end and (part := os.pread(self._number, end - at, at)):
            parts.append(part)
            at += len(part)
        return b"".join(parts)


class _Object:
    def __init__(self, store: Store, name: str) -> None:
        found = store.head(name)
        if found is None:
            raise FileNotFoundError(2, "the object does not exist", name)
        self._store, self._name, self.facts = store, name, Facts(found.size, found.tag.strip('"'))

    def read(self, start: int, end: int) -> bytes:
        end = min(end, self.facts.size)
        if start >= end:
            return b""
        data = self._store.get(self._name, start, end)
        if data is None:
            raise FileNotFoundError(2, "the object was removed during the read", self._name)
        return data


def local_facts(found: os.stat_result) -> Facts:
    """Return the facts of a file on a disk."""
    return Facts(found.st_size, f"{found.st_dev}-{found.st_ino}-{found.st_mtime_ns}-{found.st_ctime_ns}")


def store_of(access: StoreAccess) -> Store:
    """Return a client of the store. A process keeps one for each access."""
    if access not in _STORES:
        _STORES.clear()
        _STORES[access] = client(access)
    return _STORES[access]


_STORES: dict[StoreAccess, Store] = {}


@contextmanager
def opened(name: str, access: StoreAccess | None) -> Iterator[Content]:
    """Open a file, or an object if `access` is set.

    Raises:
        ReadFailed: it is missing or cannot be read.
        StoreUnreachable: the object store did not answer.
    """
    number = -1
    try:
        if access is not None:
            yield _Object(store_of(access), name)
            return
        # Without O_NONBLOCK, opening a named pipe would wait for a writer.
        number = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        found = os.fstat(number)
        if not stat.S_ISREG(found.st_mode):
            raise ReadFailed(f"file {name}: expected a regular file", "remove it, or narrow source.files.path")
        yield _File(number, found)
    except OSError as error:
        raise unreadable(name, error) from error
    finally:
        if number >= 0:
            os.close(number)


def unreadable(name: str, error: OSError) -> ReadFailed | StoreUnreachable:
    """Return the error of a file or object that cannot be read."""
    if isinstance(error, StoreFailed) and error.passes:
        return StoreUnreachable(f"{name}: {error.strerror}", "check the object store; run it again")
    return ReadFailed(
        f"file {name}: {error.strerror or error}", "check its permissions, and that each worker can read it; run it again"
    )
