"""Staged files: written once by tasks, hashed while written, durable before they are reported.

    staging/<batch id>/<uuid>.parquet

Paths contain ids only. A file is opened exclusively, closed, fsynced with its folder, and only then reported. Failures
remove nothing; `collect_garbage` removes folders later, by reference and age.

In an object store, the folder is a prefix such as `s3://bucket/key`. A file is first written to a nameless file in
Spark's scratch folder, then uploaded with its hash. The store rejects other bytes, and returns the hash to the commit.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from kpipe.batch.batch import StagedFile
from kpipe.errors import StagingFailed, StoreUnreachable
from kpipe.failpoints import failpoint
from resources.durable_files import sync
from resources.object_store.uri import is_remote
from resources.spark.staging.waiting_rows import WaitingRows

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["StagingWriter", "collect_garbage", "discard"]

# A folder that no ledger references is kept for this long: its run may be alive, or suspended and about to continue.
HORIZON_S = 24 * 3600.0
# DuckDB and Parquet's other readers work best with row groups of around 100,000 rows. The bytes limit memory.
_GROUP_ROWS, _GROUP_BYTES = 65_536, 16 << 20
_BATCH = re.compile(r"[0-9a-f]{32}")


class _Hashed:
    """File object for Arrow that hashes what is written to it."""

    def __init__(self, path: str) -> None:
        self._file: IO[bytes]
        if is_remote(path):
            scratch = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
            self._file = tempfile.TemporaryFile(dir=scratch or None, buffering=1 << 20)  # noqa: SIM115 - closed by `close`
        else:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o600)
            self._file = os.fdopen(handle, "wb", buffering=1 << 20)
        self._path = path
        self.sha256 = hashlib.sha256()
        self.size = 0
        self.closed = False

    def write(self, data: Any) -> int:
        self.sha256.update(data)
        self._file.write(data)
        self.size += len(data)
        return len(data)

    def tell(self) -> int:
        return self.size

    def flush(self) -> None:
        self._file.flush()

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def settle(self) -> None:
        """Make the file durable under its final name."""
        self._file.flush()
        if is_remote(self._path):
            from resources.object_store.clients import store

            held = store(self._path)
            if self.size > held.largest:
                limit = f"{held.largest >> 30:,} GiB"
                raise OSError(errno.EFBIG, f"an object cannot be larger than {limit}; make batches smaller")
            self._file.seek(0)
            held.put(self._path, self._file, self.sha256.hexdigest())
        else:
            os.fsync(self._file.fileno())
            sync(Path(self._path).parent)
            sync(Path(self._path).parent.parent)

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._file.close()


class StagingWriter:
    """Writer of one Parquet file, opened with the first table.

    Args:
        folder: of the batch; or a prefix of object names.
        share: writes rows that fill no row group to a shared file.
        waiting: counts the rows in memory, of this writer and others; None: only this one's are bounded.
        make: whether to create a missing folder. On a cluster the driver creates it. If it is missing in a task, another
            attempt was faster and the batch is committed: a new folder would stay until the next run.
    """

    def __init__(
        self,
        folder: Path | str,
        share: Callable[[Sequence[pa.Table]], StagedFile] | None = None,
        waiting: WaitingRows | None = None,
        *,
        make: bool = True,
    ) -> None:
        self._share, self._others, self._make = share, waiting, make
        self._path = f"{folder}/{uuid.uuid4().hex}.parquet"
        self._file: _Hashed | None = None
        self._writer: Any = None
        self._waiting: list[pa.Table] = []
        self._waiting_rows = self._waiting_bytes = 0
        self.rows = 0

    @property
    def path(self) -> str:
        """Path of the file."""
        return self._path

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return self._file.size if self._file is not None else 0

    def write(self, table: pa.Table) -> None:
        """Append a table; all tables have the same schema.

        Raises:
            StagingFailed: the disk is full, or the folder cannot be written.
        """
        if not table.num_rows:
            return
        self._waiting.append(table)
        self._waiting_rows += table.num_rows
        self._waiting_bytes += table.nbytes
        self.rows += table.num_rows
        if self._waiting_rows >= _GROUP_ROWS or self._waiting_bytes >= _GROUP_BYTES:
            self.flush()
        elif self._others is not None:
            self._others.add(self, table.nbytes)

    def _taken(self) -> list[pa.Table]:
        """Return the tables in memory, which are not kept."""
        taken, self._waiting = self._waiting, []
        self._waiting_rows = self._waiting_bytes = 0
        if self._others is not None:
            self._others.drop(self)
        return taken

    def flush(self) -> None:
        """Write the tables in memory as a row group.

        Raises:
            StagingFailed: see `write`.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        from resources.parquet_statistics import bounded_columns

        table = pa.concat_tables(self._taken())
        try:
            if self._writer is None:
                if self._make and not is_remote(self._path):
                    Path(self._path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._file = _Hashed(self._path)
                # These files live for seconds. Snappy: Zstandard makes them a third smaller in twice the time. No
                # dictionaries: most columns have too many values, and building dictionaries doubles the time.
                self._writer = pq.ParquetWriter(
                    self._file,
                    table.schema,
                    compression="snappy",
                    use_dictionary=False,
                    write_statistics=bounded_columns(table.schema),
                    store_schema=False,
                )
            self._writer.write_table(table)
        except OSError as error:
            raise self._failed(error) from error

    def finish(self) -> StagedFile | None:
        """Close the file, make it durable, and return it; None if no row was written.

        Raises:
            StagingFailed: it cannot be made durable.
        """
        if self._waiting and self._writer is None and self._share is not None:
            return self._share(self._taken())
        if self._waiting:
            self.flush()
        if self._writer is None or self._file is None:
            return None
        try:
            failpoint("stage.close")
            self._writer.close()
            failpoint("stage.fsync")
            self._file.settle()
            self._file.close()
        except OSError as error:
            raise self._failed(error) from error
        return StagedFile(self._path, self._file.size, self.rows, self._file.sha256.hexdigest())

    def abandon(self) -> None:
        """Close without finishing; the incomplete file stays until garbage collection."""
        self._taken()
        if self._writer is not None:
            self._writer.is_open = False  # prevents its finalizer from writing a footer to a closed file
        if self._file is not None:
            with suppress(OSError):  # a full disk: the error that led here reports it
                self._file.close()

    def _failed(self, error: OSError) -> StagingFailed:
        remote = "run it again when the store answers; nothing was committed"
        local = "free space or set KPIPE_HOME to a larger disk; nothing was committed"
        hint = remote if is_remote(self._path) else local
        error_class = StoreUnreachable if getattr(error, "passes", False) else StagingFailed
        return error_class(f"cannot write {self._path}: {error.strerror or error}", hint)


def discard(root: Path | str, batch: str) -> None:
    """Remove the files of a batch whose commit was read back: the destination has its own copy of them."""
    if not _BATCH.fullmatch(batch):
        return
    if is_remote(root):
        with suppress(OSError):  # garbage collection removes the rest
            _empty(f"{root}/{batch}/")
    else:
        _remove(Path(root) / batch)


def collect_garbage(root: Path | str, landed: Callable[[str], bool], now: float | None = None) -> list[str]:
    """Remove folders of committed batches, and old folders that no ledger references.

    Args:
        root: the staging folder. Only real folders whose name is a batch id are removed.
        landed: returns whether the ledger contains the batch.
        now: seconds since 1970; the current time by default.

    Returns:
        Ids of the batches whose files were removed.
    """
    moment = time.time() if now is None else now
    if is_remote(root):
        with suppress(OSError):  # the next run tries again
            return _collect_objects(str(root), landed, moment)
        return []
    removed: list[str] = []
    root = Path(root)
    if not root.is_dir():
        return removed
    failpoint("gc.scan")
    for entry in sorted(root.iterdir()):
        if not _BATCH.fullmatch(entry.name) or entry.is_symlink() or not entry.is_dir():
            continue
        try:
            ages = [moment - file.lstat().st_mtime for file in (entry, *entry.iterdir())]
        except FileNotFoundError:  # removed by another run's garbage collection or commit
            continue
        if landed(entry.name) or min(ages) > HORIZON_S:
            _remove(entry)
            removed.append(entry.name)
    return removed


def _collect_objects(root: str, landed: Callable[[str], bool], moment: float) -> list[str]:
    """Remove objects instead of folders. Ages are by the store's clock; clocks differ by less than a day."""
    from resources.object_store.clients import store

    removed, held = [], store(root)
    for batch in held.folders(f"{root}/"):
        if _BATCH.fullmatch(batch):
            ages = [moment - entry.modified for entry in held.listed(f"{root}/{batch}/")]
            if landed(batch) or min(ages, default=0) > HORIZON_S:
                _empty(f"{root}/{batch}/")
                removed.append(batch)
    return removed


def _empty(prefix: str) -> None:
    from resources.object_store.clients import store

    held = store(prefix)
    for entry in held.listed(prefix):
        held.remove(entry.uri)


def _remove(folder: Path) -> None:
    failpoint("gc.unlink")
    shutil.rmtree(folder, ignore_errors=True)
