"""Compare the rows of copies: a hash of each value, by the record's coordinates."""

# ruff: noqa: S608 - names are our own
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from resources.audit.sources import open_table
from resources.audit.table_address import TableAddress

__all__ = ["Contents", "Differences"]

_SAMPLES = 10
_COORDINATES = ("_kafka_topic", "_kafka_partition", "_kafka_offset")
_CONFIG: dict[str, Any] = {"memory_limit": "256MB", "threads": "1"}


@dataclass(frozen=True)
class Differences:
    """Rows of two copies of a table that are not equal.

    Attributes:
        columns: columns that only one of them has.
        rows: number of rows in each.
        records: records, by their coordinates, whose rows differ; all rows without coordinates count as one.
        samples: the first of these: topic, partition, offset, rows in each copy, names of the columns that differ.
    """

    columns: tuple[str, ...]
    rows: tuple[int, int]
    records: int
    samples: Sequence[dict[str, Any]]

    def __bool__(self) -> bool:
        return bool(self.columns or self.records)


class Contents:
    """Hashes of the rows of tables, in a DuckDB file. Contains no value of a record.

    Args:
        file: created where it is missing.
    """

    def __init__(self, file: Path) -> None:
        self._file = file

    def has(self, name: str) -> bool:
        """Return whether a table was read under the name."""
        if not self._file.exists():
            return False
        with duckdb.connect(str(self._file), config=_CONFIG) as connection:
            return bool(connection.execute("SELECT 1 FROM duckdb_tables() WHERE table_name = $1", [name]).fetchall())

    def read(self, name: str, address: TableAddress) -> int:
        """Hash all values of a table under a name, and return the number of its rows.

        The memory is bounded by a batch of rows, the disk by 8 bytes for each value.

        Raises:
            KpipeError: the table cannot be read.
        """
        with open_table(address) as table, duckdb.connect(str(self._file), config=_CONFIG) as connection:
            columns = sorted(table.fields())
            connection.execute(f'CREATE OR REPLACE TABLE "{name}_columns" AS SELECT $1::VARCHAR[] AS names', [columns])
            connection.execute(
                f'CREATE OR REPLACE TABLE "{name}" (topic VARCHAR, "partition" BIGINT, "offset" BIGINT, hashes UBIGINT[])'
            )
            at = {column.lower(): number for number, column in enumerate(columns)}
            for arrays in table.contents(columns):
                block = pa.table([_plain(array) for array in arrays], names=[f"c{number}" for number in range(len(columns))])
                values = ", ".join(_coordinate(block, at.get(column), column) for column in _COORDINATES)
                # DuckDB's hashes of NULL, [] and [NULL] are equal, and so are the texts of some other values.
                hashes = ", ".join(f"hash(c{number}, c{number}::VARCHAR)" for number in range(len(columns)))
                connection.register("block", block)
                connection.execute(f'INSERT INTO "{name}" SELECT {values}, [{hashes}] FROM block')
                connection.unregister("block")
            found = connection.execute(f'SELECT count(*) FROM "{name}"').fetchone()
            assert found is not None
            return int(found[0])

    def compare(self, left: str, right: str) -> Differences:
        """Compare two tables as multisets of rows."""
        with duckdb.connect(str(self._file), config=_CONFIG) as connection:
            names = [connection.execute(f'SELECT names FROM "{name}_columns"').fetchall()[0][0] for name in (left, right)]
            rows = [connection.execute(f'SELECT count(*) FROM "{name}"').fetchall()[0][0] for name in (left, right)]
            if names[0] != names[1]:
                return Differences(tuple(sorted(set(names[0]) ^ set(names[1]))), (rows[0], rows[1]), 0, ())
            connection.execute(
                'CREATE OR REPLACE TEMP TABLE differing AS SELECT topic, "partition", "offset",'
                ' list(hashes) FILTER (n > 0) AS "left", list(hashes) FILTER (n < 0) AS "right"'
                ' FROM (SELECT topic, "partition", "offset", hashes, sum(n) AS n FROM'
                f' (SELECT *, 1 AS n FROM "{left}" UNION ALL SELECT *, -1 AS n FROM "{right}") GROUP BY ALL HAVING sum(n) <> 0)'
                ' GROUP BY topic, "partition", "offset"'
            )
            records = connection.execute("SELECT count(*) FROM differing").fetchall()[0][0]
            found = connection.execute(
                f'SELECT * FROM differing ORDER BY topic, "partition", "offset" LIMIT {_SAMPLES}'
            ).fetchall()
            samples = [self._sample(connection, (left, right), names[0], row) for row in found]
            return Differences((), (rows[0], rows[1]), records, samples)

    @staticmethod
    def _sample(
        connection: duckdb.DuckDBPyConnection, tables: tuple[str, str], names: Sequence[str], row: tuple[Any, ...]
    ) -> dict[str, Any]:
        topic, partition, offset, left, right = row
        key = [topic, partition, offset]
        where = 'topic IS NOT DISTINCT FROM $1 AND "partition" IS NOT DISTINCT FROM $2 AND "offset" IS NOT DISTINCT FROM $3'
        counts = [connection.execute(f'SELECT count(*) FROM "{name}" WHERE {where}', key).fetchall()[0][0] for name in tables]
        differing: list[str] = []
        if len(left or ()) == len(right or ()) == 1:
            differing = [name for name, one, other in zip(names, left[0], right[0], strict=True) if one != other]
        return {"topic": topic, "partition": partition, "offset": offset, "rows": counts, "columns": differing}


def _coordinate(block: pa.Table, at: int | None, column: str) -> str:
    """Return the expression for a coordinate: servers return text, or its bytes."""
    if at is None:
        return "NULL"
    value = f"decode(c{at})" if pa.types.is_binary(block.column(at).type) else f"c{at}"
    return value if column == "_kafka_topic" else f"TRY_CAST({value} AS BIGINT)"


def _plain(array: pa.Array) -> pa.Array:
    """Return the array without a dictionary: DuckDB hashes indexes of a dictionary, which differ between files."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
