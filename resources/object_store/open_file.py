"""Open a local file or an object for reading. The store's client is loaded only when an object is opened."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

from resources.object_store.uri import is_remote

if TYPE_CHECKING:
    from resources.object_store.store import Found, Store

__all__ = ["opened"]


class _Ranges(io.RawIOBase):
    """Read an object in byte ranges, as Parquet readers read a file: only requested bytes are fetched."""

    def __init__(self, held: Store, found: Found) -> None:
        super().__init__()
        self._store, self._found, self._at = held, found, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._found.size}[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int = -1) -> bytes:
        end = self._found.size if size < 0 else min(self._found.size, self._at + size)
        if end <= self._at:
            return b""
        data = self._store.get(self._found.uri, self._at, end)
        if data is None or len(data) != end - self._at:
            raise OSError(5, "the object was removed or changed during the read", self._found.uri)
        self._at = end
        return data


def opened(path: str, held: Store | None = None) -> BinaryIO:
    """Open a local file or an object for reading.

    Raises:
        FileNotFoundError: the file or object does not exist.
        OSError: the file or object cannot be read.
    """
    if not is_remote(path):
        return Path(path).open("rb")
    from resources.object_store.clients import store

    held = held or store(path)
    found = held.head(path)
    if found is None:
        raise FileNotFoundError(2, "the object does not exist", path)
    return cast("BinaryIO", _Ranges(held, found))
