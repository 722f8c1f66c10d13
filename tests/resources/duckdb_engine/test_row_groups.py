"""Row groups by bytes: what a checkpoint may merge, and the sizes that this is decided by."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from resources.destinations.staged_file_check import row_bytes, verify
from resources.duckdb_engine.file_connection import Connection, Database
from resources.duckdb_engine.row_groups import Groups, RowSizes, batch_bytes, choose
from resources.spark.staging.staged_files import StagingWriter

_KB, _GB = 1000, 10**9


@pytest.mark.parametrize(
    ("row_bytes", "largest", "memory", "groups"),
    [
        (0, 0, _GB, Groups(122_880, True)),
        (300, 100, _GB, Groups(122_880, True)),
        (20 * _KB, 0, _GB, Groups(2048, True)),
        (0, 20 * _KB, _GB, Groups(2048, True)),
        (300, 20 * _KB, _GB, Groups(2048, True)),
        (300, 5 * _KB, _GB, Groups(12_288, True)),
        (_KB * _KB, 0, 100 * _GB, Groups(2048, False)),
        (0, _KB * _KB, 100 * _GB, Groups(122_880, False)),
        (300, _KB * _KB, 100 * _GB, Groups(2048, True)),
        (300, _KB * _KB, 10 * _GB, Groups(122_880, False)),
    ],
    ids=[
        "no table", "small rows", "large rows", "nothing inserted, large rows there", "small rows beside large ones",
        "small rows beside larger ones", "rows whose vector is too large", "nothing inserted, such rows there",
        "small rows beside such rows", "small rows, such rows there, little memory",
    ],
)  # fmt: skip
def test_groups_fit_the_rows_of_the_session_and_of_the_file(row_bytes: int, largest: int, memory: int, groups: Groups) -> None:
    assert choose(row_bytes, largest, memory) == groups


@pytest.fixture
def memory() -> Iterator[Connection]:
    with duckdb.connect() as connection:
        yield connection


def _measured(connection: Connection) -> int:
    sizes = RowSizes()
    sizes.measure(connection, "memory")
    return sizes.largest


@pytest.mark.parametrize(
    ("value", "size"),
    [
        ("repeat('x', 3000)", 3000),
        ("repeat('x', 3000)::BLOB", 3000),
        ("{'a': repeat('x', 1000), 'total_string_length': [repeat('y', 2000)], 'child_stats': 7}", 3000),
        ("MAP{repeat('k', 500): [{'v': repeat('x', 2500)}]}", 3000),
        ("to_json(repeat('x', 2998))", 3000),
        ("NULL::VARCHAR", 0),
        ("7::BIGINT", 0),
    ],
)
def test_size_of_rows_is_that_of_their_texts_at_any_depth(memory: Connection, value: str, size: int) -> None:
    memory.execute(f'CREATE TABLE "a ""table""" AS SELECT {value} AS "a ""column""" FROM range(4096)')
    assert _measured(memory) == size + 8


def test_few_rows_and_tables_with_an_index_do_not_count(memory: Connection) -> None:
    memory.execute("CREATE TABLE few AS SELECT repeat('x', 1_000_000) AS text FROM range(63)")
    memory.execute("CREATE TABLE keyed (i BIGINT PRIMARY KEY, text VARCHAR)")
    memory.execute("INSERT INTO keyed SELECT i, repeat('x', 10_000) FROM range(3000) AS r(i)")
    assert _measured(memory) == 0
    memory.execute("CREATE TABLE large AS SELECT repeat('x', 20_480) AS text FROM range(100)")
    assert _measured(memory) == 1008  # 100 rows take as much of a group as 2,048 rows of a kilobyte


def test_rows_are_measured_again_when_there_are_a_quarter_more(memory: Connection) -> None:
    sizes = RowSizes()
    memory.execute("CREATE TABLE t AS SELECT repeat('x', 100) AS text FROM range(4000)")
    found = []
    for rows in (0, 900, 200):
        memory.execute("INSERT INTO t SELECT repeat('x', 10_000) FROM range($1)", [rows])
        sizes.measure(memory, "memory")
        found.append(sizes.largest)
    assert found[0] == found[1] == 108 and found[2] > 2000
    memory.execute("DROP TABLE t")
    sizes.measure(memory, "memory")
    assert sizes.largest == 0


def _groups(path: Path, table: str = "large") -> list[int]:
    with duckdb.connect(str(path), read_only=True) as connection:
        found = (
            f"SELECT sum(count)::BIGINT FROM pragma_storage_info('{table}') WHERE column_id = 0 AND segment_type = 'BIGINT'"
            " GROUP BY row_group_id ORDER BY row_group_id"
        )
        return [row[0] for row in connection.execute(found).fetchall()]


def _insert(database: Database, table: str, rows: int, size: int) -> None:
    with database.write(rows * size // max(2048, rows)) as connection:
        connection.execute(f"CREATE TABLE IF NOT EXISTS {table} (i BIGINT, text VARCHAR)")
        connection.execute(f"INSERT INTO {table} SELECT i, repeat('x', $1) FROM range($2) AS r(i)", [size, rows])


@pytest.mark.parametrize("same_process", [True, False], ids=["same process", "after another process"])
def test_no_session_merges_groups_of_large_rows(tmp_path: Path, same_process: bool) -> None:
    """A checkpoint of another table did: it read 122,880 rows of 20 kB into memory."""
    path = tmp_path / "a.duckdb"
    database = Database(path, ())
    _insert(database, "small", 10, 10)
    _insert(database, "large", 3 * 2048, 20_000)
    before = _groups(path)
    assert max(before) == 2048
    if not same_process:
        with duckdb.connect() as other:
            other.execute(f"ATTACH '{path}' AS a (ROW_GROUP_SIZE 2048)")
            other.execute("CREATE TABLE a.note AS SELECT 1 AS i")
    with database.write() as connection:
        connection.execute("CREATE TABLE state AS SELECT 1 AS i")
    _insert(database, "small", 2000, 10)
    assert max(_groups(path)) == 2048 and sum(_groups(path)) == sum(before)


def test_small_commits_are_merged_beside_large_rows(tmp_path: Path) -> None:
    path = tmp_path / "a.duckdb"
    database = Database(path, ())
    _insert(database, "large", 3000, 20_000)
    for _ in range(20):
        _insert(database, "small", 300, 10)
    assert len(_groups(path, "small")) < 12 and sum(_groups(path, "small")) == 6000


def test_rows_whose_vector_is_too_large_are_not_merged(tmp_path: Path) -> None:
    path = tmp_path / "a.duckdb"
    database = Database(path, ())
    for _ in range(3):
        _insert(database, "large", 80, 1_000_000)
    with database.write() as connection:
        connection.execute("CREATE TABLE state AS SELECT 1 AS i")
    assert _groups(path) == [80, 80, 80]


@pytest.mark.parametrize(("size", "logged"), [(10, True), (1_000_000, False)], ids=["small rows", "large rows"])
def test_large_rows_are_not_copied_to_the_log(tmp_path: Path, size: int, logged: bool) -> None:
    path, rows = tmp_path / "a.duckdb", 80
    with Database(path, ()).write(rows * size // 2048) as connection:
        connection.execute("CREATE TABLE large AS SELECT i, repeat('x', $1) AS text FROM range($2) AS r(i)", [size, rows])
        log = path.with_name("a.duckdb.wal")
        assert (log.exists() and log.stat().st_size > 0) is logged
    with duckdb.connect(str(path), read_only=True) as connection:
        assert connection.execute("SELECT count(*), sum(length(text)) FROM large").fetchone() == (rows, rows * size)


@pytest.mark.parametrize(
    ("row_bytes", "memory", "most"),
    [(300, _GB, None), (20 * _KB, _GB, None), (_KB * _KB, 100 * _GB, 128 << 20), (_KB * _KB, 400 * 1000 * _KB, 100 * 1000 * _KB)],
    ids=["small rows", "large rows", "rows whose vector is too large", "little memory"],
)
def test_a_batch_is_bounded_where_a_vector_of_its_rows_is_too_large(row_bytes: int, memory: int, most: int | None) -> None:
    assert batch_bytes(row_bytes, memory) == most


def test_null_counts_as_a_number(tmp_path: Path) -> None:
    """DuckDB stores a NULL like a value, Parquet hardly at all: rows of many columns get row groups of fewer rows."""
    writer = StagingWriter(tmp_path / ("a" * 32))
    writer.write(pa.table({f"c{at}": pa.nulls(3000, pa.int64()) for at in range(500)}))
    staged = writer.finish()
    assert staged is not None
    assert row_bytes([verify([staged], (tmp_path,))]) == 4000


def test_a_few_large_rows_do_not_count_as_small_ones(tmp_path: Path) -> None:
    """Otherwise the last, small batch of a backlog of large rows would merge all rows of the table."""
    writer = StagingWriter(tmp_path / ("a" * 32))
    writer.write(pa.table({"text": ["x" * 1_000_000] * 3}))
    staged = writer.finish()
    assert staged is not None
    assert not choose(row_bytes([verify([staged], (tmp_path,))]), _KB * _KB // 2, 12 * _GB).merging
