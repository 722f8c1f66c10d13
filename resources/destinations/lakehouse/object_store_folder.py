"""A folder in an object store: names are claimed by conditional puts, and files come by copies inside of the store."""

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
from resources.object_store.s3 import LARGEST, SECRETS, Store, StoreFailed
from resources.object_store.uri import is_remote

__all__ = ["BucketFolder"]


class BucketFolder:
    """Objects whose names begin alike; see `Folder`. An object that was put there is durable.

    Args:
        held: the store.
        place: `s3://bucket/key`, without a slash at its end.
    """

    def __init__(self, held: Store, place: str) -> None:
        self.store, self.place = held, place.rstrip("/")
        self._conditional = False

    def below(self, name: str) -> BucketFolder:
        """A folder in it."""
        return BucketFolder(self.store, self._uri(name))

    def read(self, name: str) -> bytes | None:
        """What the object holds; None when there is none."""
        try:
            return self.store.get(self._uri(name))
        except StoreFailed as error:
            raise _failed(error) from None

    def opened(self, name: str) -> BinaryIO:
        """The object, to be read here and there."""
        try:
            return opened(self._uri(name), self.store)
        except OSError as error:
            raise _failed(error) from error

    def look(self, name: str) -> tuple[int, int, str] | None:
        """Bytes, ms since 1970, and its ETag."""
        try:
            found = self.store.head(self._uri(name))
        except StoreFailed as error:
            raise _failed(error) from None
        return (found.size, int(found.modified * 1000), found.tag) if found is not None else None

    def write(self, name: str, data: bytes) -> None:
        """Put an object there, or other bytes in its place."""
        try:
            self.store.put(self._uri(name), data)
        except StoreFailed as error:
            raise _failed(error) from None

    def claim(self, name: str, data: bytes) -> bool:
        """Put an object there unless there is one; see `Folder`.

        Raises:
            DestinationError: it is not known whether it is there; or the store overwrites where it was told not to.
        """
        try:
            self._check_conditional()
            return self.store.put_new(self._uri(name), data)
        except StoreFailed as error:
            raise _failed(error) from None

    def _check_conditional(self) -> None:
        """Some stores ignore the condition, and two runs would overwrite each other's commits. Asked once by each process."""
        if self._conditional:
            return
        probe = f"_kpipe_probe/{uuid.uuid4().hex}"
        try:
            if not self.store.put_new(self._uri(probe), b"1") or self.store.put_new(self._uri(probe), b"2"):
                raise DestinationError(
                    f"{self.place}: this store has no conditional put (If-None-Match): two runs could destroy each other's"
                    " commits",
                    "use a store that has: AWS S3, MinIO, Ceph, Cloudflare R2",
                )
            self._conditional = True
        finally:
            with suppress(StoreFailed):
                self.store.remove(self._uri(probe))

    def take(self, file: str, name: str) -> None:
        """A copy that the store makes; a file of this machine is sent there."""
        try:
            if is_remote(file):
                self.store.copy(file, self._uri(name))
                return
            with Path(file).open("rb") as stream:
                digest = _digest(stream)
                if stream.tell() > LARGEST:
                    raise DestinationError(f"{file} is larger than an object can be sent (5 GiB)", "make batches smaller")
                stream.seek(0)
                self.store.put(self._uri(name), stream, digest)
        except OSError as error:
            raise _failed(error) from None

    def settle(self, name: str = "") -> None:
        """Nothing: what the store has answered stays."""

    def names(self, name: str) -> list[str]:
        """Names of objects in a folder, and of the folders in it, sorted."""
        prefix = f"{self._uri(name)}/" if name else f"{self.place}/"
        try:
            return sorted({*self.store.names(prefix), *self.store.folders(prefix)} - {""})
        except StoreFailed as error:
            raise _failed(error) from None

    def remove(self, name: str) -> None:
        """Remove an object that nobody refers to any more."""
        with suppress(StoreFailed):
            self.store.remove(self._uri(name))

    @contextmanager
    def aside(self) -> Iterator[Path]:
        """A name on this machine's disks for a file that is being made."""
        with tempfile.TemporaryDirectory(prefix="kpipe-") as folder:
            yield Path(folder) / "file"

    @contextmanager
    def here(self, names: Sequence[str]) -> Iterator[tuple[Path, Mapping[str, Path]]]:
        """A folder on this machine's disks with copies of the objects that are there."""
        with tempfile.TemporaryDirectory(prefix="kpipe-") as folder:
            found = {}
            for at, name in enumerate(names):
                data = self.read(name)
                if data is not None:
                    found[name] = Path(folder) / f"{at}.parquet"
                    found[name].write_bytes(data)
            yield Path(folder), found

    def options(self) -> dict[str, str]:
        """As delta-rs and the object_store crate want it."""
        held, name = (
            self.store.credentials(),
            dict(zip(SECRETS, ("access_key_id", "secret_access_key", "session_token"), strict=True)),
        )
        said: dict[str, str] = {f"aws_{name[key]}": value for key, value in held.items()}
        if self.store.endpoint:
            said |= {"aws_endpoint": self.store.endpoint, "aws_allow_http": str(self.store.endpoint.startswith("http:")).lower()}
        return {"aws_region": self.store.region, **said}

    def _uri(self, name: str) -> str:
        return f"{self.place}/{name}" if name else self.place


def _digest(stream: BinaryIO) -> str:
    found = hashlib.sha256()
    while block := stream.read(1 << 20):
        found.update(block)
    return found.hexdigest()


def _failed(error: OSError) -> DestinationError:
    kind = DestinationBusy if getattr(error, "passes", False) else DestinationError
    return kind(str(error.strerror or error), "run it again when the store answers")
