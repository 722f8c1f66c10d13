"""The interface of a client of an object store, with its errors; and the digests with which stores verify uploads."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Protocol

from resources.object_store.config import StoreAccess

__all__ = ["Found", "Store", "StoreFailed", "Sums", "sums"]

_BLOCK = 1 << 20


class StoreFailed(OSError):
    """A request to the store failed, or its response was lost.

    Attributes:
        status: the HTTP status; 0: the store sent no response.
    """

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text)
        self.strerror = text  # the text that an OSError shows
        self.status = status

    @property
    def passes(self) -> bool:
        """True if a later retry may succeed: the store sent no response, or a temporary status."""
        return self.status in (0, 408, 429) or self.status >= 500


@dataclass(frozen=True)
class Found:
    """An object's metadata in a store.

    Attributes:
        uri: the object's name.
        size: bytes.
        modified: seconds since 1970, by the store's clock.
        tag: changes with the content: ETag, or generation.
        sha256: of the content, in hex, as the store has it; "" where it was not requested or is missing.
    """

    uri: str
    size: int
    modified: float
    tag: str = ""
    sha256: str = ""


class Store(Protocol):
    """A client of an object store. Thread-safe. A successful put is durable and visible to all readers.

    Every failure raises `StoreFailed`; no text contains a secret.
    """

    @property
    def largest(self) -> int:
        """Largest object that `put` can write, in bytes."""

    def access(self) -> StoreAccess:
        """Return settings with which another process creates an equal client."""

    def options(self) -> dict[str, str]:
        """Return the options with which delta-rs opens tables here as this client does; may contain secrets.

        delta-rs completes options from the environment: these contain all that decides about identity and address.

        Raises:
            InvalidPipeline: delta-rs would use a variable beside them; see `delta_rs_environment`.
        """

    def hide(self, text: str) -> str:
        """Mask the store's secrets in a text."""

    def get(self, uri: str, start: int = 0, end: int | None = None) -> bytes | None:
        """Read an object's bytes from `start` to `end` (exclusive). None: the object does not exist."""

    def head(self, uri: str) -> Found | None:
        """Read an object's metadata. None: the object does not exist."""

    def put(self, uri: str, data: bytes | IO[bytes], sha256: str | None = None) -> None:
        """Create or replace an object. The store rejects content that changed on the way, and keeps its SHA-256."""

    def put_new(self, uri: str, data: bytes) -> bool:
        """Create an object unless it exists. Among concurrent callers, exactly one gets True.

        After a lost response, the request is sent again, and the store answers that the name is taken. The caller whose bytes
        are stored then gets True, so no two callers may put equal bytes.
        """

    def copy(self, origin: str, uri: str) -> None:
        """Copy an object inside the store; its bytes do not pass through this process."""

    def remove(self, uri: str) -> None:
        """Delete an object, if it exists."""

    def listed(self, prefix: str) -> Iterator[Found]:
        """List all objects whose names start with the prefix, in order of their names."""

    def folders(self, prefix: str) -> Iterator[str]:
        """List the names of folders directly below a prefix that ends with a slash; names have no slashes."""

    def names(self, prefix: str) -> Iterator[str]:
        """List the names of objects directly below a prefix that ends with a slash."""


@dataclass(frozen=True)
class Sums:
    """Size and digests of content.

    Attributes:
        size: bytes.
        md5: which stores compare with what they received.
        sha256: in hex.
    """

    size: int
    md5: bytes
    sha256: str


def sums(stream: IO[bytes]) -> Sums:
    """Read a stream to its end, compute its digests, and rewind it."""
    size, md5, sha256 = 0, hashlib.md5(usedforsecurity=False), hashlib.sha256()
    while block := stream.read(_BLOCK):
        size += len(block)
        md5.update(block)
        sha256.update(block)
    stream.seek(0)
    return Sums(size, md5.digest(), sha256.hexdigest())
