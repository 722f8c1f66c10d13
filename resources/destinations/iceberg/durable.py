"""Write metadata files durably: on a local disk they are synced before the catalogue names them. pyiceberg does not sync."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from pyiceberg.io import OutputFile
from pyiceberg.io.pyarrow import PyArrowFileIO

from resources.destinations.lakehouse.folder import Folder
from resources.destinations.lakehouse.object_store_folder import BucketFolder
from resources.durable_files import make_folder, sync

__all__ = ["DurableFileIO", "file_io", "local"]

# Credentials of an object store: kpipe's names and pyiceberg's.
_S3 = {
    "access.key.id": "s3.access-key-id", "secret.access.key": "s3.secret-access-key", "session.token": "s3.session-token",
}  # fmt: skip


def local(location: str) -> Path:
    """Return the path of a location: a file URL or a plain path."""
    return Path(unquote(urlparse(location).path) if location.startswith("file:") else location)


class _Output(OutputFile):
    """An output file that is synced when it is closed."""

    def __init__(self, location: str, io: PyArrowFileIO) -> None:
        super().__init__(location)
        self._io = io

    def __len__(self) -> int:
        return local(self.location).stat().st_size

    def exists(self) -> bool:
        return local(self.location).exists()

    def to_input_file(self) -> Any:
        return self._io.new_input(self.location)

    def create(self, overwrite: bool = False) -> Any:
        path = local(self.location)
        make_folder(path.parent)
        return _Synced(path, "wb" if overwrite else "xb")


class _Synced:
    """Stream that pyiceberg writes to; `close` syncs the file and its folder."""

    def __init__(self, path: Path, mode: str) -> None:
        self._path, self._file = path, path.open(mode)

    def write(self, data: bytes) -> int:
        return self._file.write(data)

    def tell(self) -> int:
        return self._file.tell()

    @property
    def closed(self) -> bool:
        return self._file.closed

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        if not self._file.closed:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            sync(self._path.parent)

    def __enter__(self) -> _Synced:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class DurableFileIO(PyArrowFileIO):
    """pyiceberg's file access on local disks, with synced output."""

    def new_output(self, location: str) -> Any:
        """Return a file to write."""
        return _Output(location, self)


def file_io(folder: Folder) -> PyArrowFileIO:
    """Return pyiceberg's file access for a local folder or an object store."""
    if not isinstance(folder, BucketFolder):
        return DurableFileIO()
    access = folder.store.access()
    given: dict[str, str] = {_S3[name]: value for name, value in access.secrets}
    if access.endpoint:
        given["s3.endpoint"] = access.endpoint
    return PyArrowFileIO({"s3.region": access.region, **given})
