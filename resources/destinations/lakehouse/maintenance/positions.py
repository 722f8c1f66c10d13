"""Deleted positions of a table's files, in a DuckDB that bounds its memory: each file of deletes is read once."""

# ruff: noqa: S608 - names in statements are constants or numbers, values are always parameters
from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Hashable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa

from kpipe.maintenance.facts import Fingerprint
from resources.destinations.lakehouse.maintenance.listing import DeleteFile, StoredFile
from resources.destinations.lakehouse.maintenance.row_hash import parts
from resources.duckdb_engine.file_connection import Connection, quote
from resources.duckdb_engine.sandbox import closed
from resources.durable_files import make_folder

__all__ = ["Deleted", "DeletedPositions"]

_OLD_S = 86_400  # age of folders of killed processes that are removed
_ROWS = 65_536  # positions in a block
_AT = "kpipe: position"  # no table has this name by chance
_PLACES = ("_kafka_topic", "_kafka_partition", "_kafka_offset")


class DeletedPositions:
    """The content of files of deletes, and the engine that hashes rows. Close it in the end.

    Args:
        scratch: folder for temporary files.
    """

    def __init__(self, scratch: Path) -> None:
        make_folder(scratch)
        for old in scratch.glob("positions-*"):
            with suppress(OSError):
                if time.time() - old.stat().st_mtime > _OLD_S:
                    shutil.rmtree(old)
        self._aside = scratch.resolve() / f"positions-{uuid.uuid4().hex}"
        self._aside.mkdir(mode=0o700)
        self.connection: Connection = closed([], [], str(self._aside))
        self.connection.execute("CREATE TABLE positions (d INTEGER, f INTEGER, pos BIGINT)")
        self._deletes: dict[str, int] = {}
        self._files: dict[str, int] = {}
        self._divisions: dict[Hashable, int] = {}
        self._views = 0

    def close(self) -> None:
        """Close the engine and remove its files."""
        self.connection.close()
        shutil.rmtree(self._aside, ignore_errors=True)

    def resolved(self, files: Sequence[StoredFile], deletes: Sequence[DeleteFile]) -> Deleted:
        """Return the positions that these files of deletes delete from these files of rows.

        Raises:
            DestinationError: a file of deletes cannot be read.
        """
        for item in deletes:
            if item.name not in self._deletes:
                self._read(item)
        self._views += 1
        live, made = f"live_{self._views}", f"deleted_{self._views}"
        for kind, rows in (
            ("files", [(self._number(self._files, f.path), self._division(f.division), f.live.seq) for f in files]),
            ("deletes", [(self._deletes[d.name], self._division(d.division), d.seq) for d in deletes]),
        ):
            numbers = np.array(rows, np.int64).reshape(-1, 3)
            self.connection.register("kpipe_block", pa.table([numbers[:, at] for at in range(3)], names=["id", "part", "seq"]))
            self.connection.execute(f"CREATE TEMP TABLE {live}_{kind} AS SELECT * FROM kpipe_block")
            self.connection.unregister("kpipe_block")
        # A delete applies to files of its partition that are not newer (Iceberg, "Scan Planning").
        self.connection.execute(
            f"CREATE TEMP TABLE {made} AS SELECT DISTINCT p.f, p.pos FROM positions AS p JOIN {live}_deletes AS d ON d.id = p.d"
            f" JOIN {live}_files AS f ON f.id = p.f AND f.part = d.part AND f.seq <= d.seq ORDER BY 1, 2"
        )
        self.connection.execute(f"DROP TABLE {live}_files; DROP TABLE {live}_deletes")
        return Deleted(self.connection, made, self._files)

    def _read(self, item: DeleteFile) -> None:
        number = len(self._deletes)
        for block in item.read():
            if not len(block):
                continue
            encoded = block.column("path").cast(pa.string()).combine_chunks().dictionary_encode()
            known = np.array([self._number(self._files, path) for path in encoded.dictionary.to_pylist()], np.int32)
            files = known[encoded.indices.to_numpy(zero_copy_only=False)]
            self.connection.register("kpipe_block", pa.table([files, block.column("position")], names=["f", "pos"]))
            self.connection.execute(f"INSERT INTO positions SELECT {number:d}, f, pos FROM kpipe_block")
            self.connection.unregister("kpipe_block")
        self._deletes[item.name] = number

    def _division(self, division: Hashable) -> int:
        return self._divisions.setdefault(division, len(self._divisions))

    @staticmethod
    def _number(numbers: dict[str, int], name: str) -> int:
        return numbers.setdefault(name, len(numbers))


class Deleted:
    """The deleted positions of one snapshot.

    Args:
        connection: the engine.
        relation: its table of files and positions.
        numbers: of files, by path.
    """

    def __init__(self, connection: Connection, relation: str, numbers: dict[str, int]) -> None:
        self._connection, self._relation, self._numbers = connection, relation, numbers
        found = connection.execute(f"SELECT f, count(*), sum(hash(pos)) FROM {relation} GROUP BY f").fetchall()
        self._marks = {number: (int(count), f"{int(total):x}") for number, count, total in found}

    def mark(self, path: str) -> tuple[int, str]:
        """Return the number of a file's deleted rows, and a text that is equal for equal positions."""
        return self._marks.get(self._numbers.get(path, -1), (0, ""))

    def of(self, path: str) -> np.ndarray:
        """Return the deleted positions of a file, sorted. Memory: 8 bytes for each."""
        if not self.mark(path)[0]:
            return np.zeros(0, np.int64)
        found = self._connection.execute(f"SELECT pos FROM {self._relation} WHERE f = $1 ORDER BY pos", [self._numbers[path]])
        return np.asarray(found.fetchnumpy()["pos"], np.int64)

    def sorted(self, paths: Sequence[str]) -> Iterator[pa.Table]:
        """Read the deleted positions of files as tables of `path` and `position`, sorted by both."""
        for path in sorted(paths):
            places = self.of(path)
            for at in range(0, len(places), _ROWS):
                block = places[at : at + _ROWS]
                yield pa.table({"path": pa.array([path] * len(block), pa.string()), "position": pa.array(block)})

    def fingerprint(self, path: str, blocks: Iterator[pa.Table]) -> Fingerprint:
        """Hash the rows of a file that are not deleted. They are found by a join, not by the code that rewrites files."""
        total, at = Fingerprint(), 0
        number = self._numbers.get(path, -1) if self.mark(path)[0] else None
        for block in blocks:
            total += self._hashed(block, at, number)
            at += len(block)
        return total

    def _hashed(self, block: pa.Table, at: int, number: int | None) -> Fingerprint:
        if any(chunk.offset for column in block.columns for chunk in column.chunks):
            block = block.take(pa.array(np.arange(len(block))))  # DuckDB 2.0 refuses slices of STRUCTs
        names = sorted(block.column_names)
        values = [part for name in names for part in parts(f"b.{quote(name)}", block.schema.field(name).type)]
        places = ", ".join(f"b.{quote(name)}" for name in _PLACES if name in names)
        where = ""
        if number is not None:
            block = block.append_column(_AT, pa.array(np.arange(at, at + len(block), dtype=np.int64)))
            where = f" WHERE NOT EXISTS (FROM {self._relation} AS d WHERE d.f = {number:d} AND d.pos = b.{quote(_AT)})"
        columns = ", ".join(f"c{index}" for index in range(len(values)))
        chosen = ", ".join(f"{value} AS c{index}" for index, value in enumerate(values))
        self._connection.register("kpipe_block", block)
        try:
            ((rows, first, second, third),) = self._connection.execute(
                f"SELECT count(*), sum(hash({columns})), sum(hash({columns}, 'kpipe')), sum(place) FROM"
                f" (SELECT {chosen}, {f'hash({places})' if places else '0'} AS place FROM kpipe_block AS b{where})"
            ).fetchall()
        finally:
            self._connection.unregister("kpipe_block")
        return Fingerprint() + Fingerprint(int(rows), (int(first or 0), int(second or 0)), int(third or 0))

    def close(self) -> None:
        """Drop the table."""
        self._connection.execute(f"DROP TABLE {self._relation}")
