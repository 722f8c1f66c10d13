"""A folder in an object store: conditional puts claim names, and files arrive by server-side copies."""

from __future__ import annotations

import hashlib
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from kpipe.errors import DestinationBusy, DestinationError
from resources.object_store.open_file import opened
from resources.object_store.store import Store, StoreFailed
from resources.object_store.uri import is_remote

__all__ = ["BucketFolder"]


class BucketFolder:
    """Objects with a common prefix; see `Folder`. A successful put is durable.

    Args:
        held: the store.
        place: the prefix of the objects' names, such as `s3://bucket/key`.
    """

    def __init__(self, held: Store, place: str) -> None:
        self.store, self.place = held, place.rstrip("/")
        self._conditional = False

    def below(self, name: str) -> BucketFolder:
        """Return a subfolder."""
        return BucketFolder(self.store, self._uri(name))

    def read(self, name: str) -> bytes | None:
        """Read an object's content; None: it does not exist."""
        try:
            return self.store.get(self._uri(name))
        except StoreFailed as error:
            raise _failed(error) from None

    def opened(self, name: str) -> BinaryIO:
        """Open an object for random reads."""
        try:
            return opened(self._uri(name), self.store)
        except OSError as error:
            raise _failed(error) from error

    def look(self, name: str) -> tuple[int, int, str] | None:
        """Return size, modification time in ms since 1970, and ETag; None: no such object."""
        try:
            found = self.store.head(self._uri(name))
        except StoreFailed as error:
            raise _failed(error) from None
        return (found.size, int(found.modified * 1000), found.tag) if found is not None else None

    def write(self, name: str, data: bytes) -> None:
        """Create or replace an object."""
        try:
            self.store.put(self._uri(name), data)
        except StoreFailed as error:
            raise _failed(error) from None

    def claim(self, name: str, data: bytes) -> bool:
        """Create an object unless it exists; see `Folder`.

        Raises:
            DestinationError: the outcome is unknown, or the store ignores the condition.
        """
        try:
            self._check_conditional()
            return self.store.put_new(self._uri(name), data)
        except StoreFailed as error:
            raise _failed(error) from None

    def _check_conditional(self) -> None:
        """Check that the store honors the condition, once in each process: else two runs overwrite each other's commits."""
        if self._conditional:
            return
        probe = f"_kpipe_probe/{uuid.uuid4().hex}"
        try:
            if not self.store.put_new(self._uri(probe), b"1") or self.store.put_new(self._uri(probe), b"2"):
                raise DestinationError(
                    f"{self.place}: expected a store with conditional puts, found a store without them:"
                    " two runs could overwrite each other's commits",
                    "use a store with conditional puts: AWS S3, MinIO, Ceph, Cloudflare R2, Google Cloud Storage, Azure",
                )
            self._conditional = True
        finally:
            with suppress(StoreFailed):
                self.store.remove(self._uri(probe))

    def take(self, file: str, name: str) -> None:
        """Copy an object inside the store, or upload a local file."""
        try:
            if is_remote(file):
                self.store.copy(file, self._uri(name))
                return
            with Path(file).open("rb") as stream:
                digest = _digest(stream)
                if stream.tell() > self.store.largest:
                    raise DestinationError(
                        f"{file} is larger than the store's limit ({self.store.largest >> 30:,} GiB)",
                        "make batches smaller: batch.max_offsets_per_partition",
                    )
                stream.seek(0)
                self.store.put(self._uri(name), stream, digest)
        except OSError as error:
            raise _failed(error) from None

    def settle(self, name: str = "") -> None:
        """Do nothing: a successful put is durable."""

    def names(self, name: str) -> list[str]:
        """List the names of objects and folders in a folder, sorted."""
        prefix = f"{self._uri(name)}/" if name else f"{self.place}/"
        try:
            return sorted({*self.store.names(prefix), *self.store.folders(prefix)} - {""})
        except StoreFailed as error:
            raise _failed(error) from None

    def temporary(self, name: str) -> list[str]:
        """Return nothing: an object has its name from the beginning."""
        return []

    def remove(self, name: str) -> None:
        """Delete an object without references."""
        with suppress(StoreFailed):
            self.store.remove(self._uri(name))

    @contextmanager
    def aside(self) -> Iterator[Path]:
        """Yield a temporary path on a local disk."""
        with tempfile.TemporaryDirectory(prefix="kpipe-") as folder:
            yield Path(folder) / "file"

    @contextmanager
    def here(self, names: Sequence[str]) -> Iterator[tuple[Path, Mapping[str, Path]]]:
        """Yield a local folder with copies of those objects that exist."""
        with tempfile.TemporaryDirectory(prefix="kpipe-") as folder:
            found = {}
            for at, name in enumerate(names):
                data = self.read(name)
                if data is not None:
                    found[name] = Path(folder) / f"{at}.parquet"
                    found[name].write_bytes(data)
            yield Path(folder), found

    def options(self) -> dict[str, str]:
        """Return the options of delta-rs and the object_store crate."""
        return self.store.options()

    def hide(self, text: str) -> str:
        """Mask the store's secrets in a text."""
        return self.store.hide(text)

    def _uri(self, name: str) -> str:
        return f"{self.place}/{name}" if name else self.place


def _digest(stream: BinaryIO) -> str:
    found = hashlib.sha256()
    while block := stream.read(1 << 20):
        found.update(block)
    return found.hexdigest()


def _failed(error: OSError) -> DestinationError:
    kind = DestinationBusy if getattr(error, "passes", False) else DestinationError
    return kind(str(error.strerror or error), "run it again when the store is available")
