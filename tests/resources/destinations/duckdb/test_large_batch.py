"""Batches larger than the engine's memory limit, and values larger than the rest."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from kpipe.batch.batch import Commit
from kpipe.errors import DestinationError
from kpipe.interfaces import Destination
from kpipe.tables.upsert import KeyRule
from resources.destinations.staged_file_check import row_bytes, verify
from resources.duckdb_engine.memory_limit import VARIABLE
from resources.testing.place import COORDINATES, batch
from resources.testing.state import begun, loaded, proof
from tests.resources.destinations.place import DuckDBPlace

pytestmark = pytest.mark.heavy

_SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string()), *COORDINATES.items()])


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DuckDBPlace:
    monkeypatch.setenv(VARIABLE, "100MB")
    return DuckDBPlace(tmp_path)


def _text(number: int, size: int) -> str:
    return f"{number:016x}" * (size // 16)


def _commit(place: DuckDBPlace, destination: Destination, count: int, size: int) -> Commit:
    """Return a batch of so many rows with texts of that size."""
    rows = [
        {"id": at, "text": _text(at, size), "_kafka_partition": 0, "_kafka_offset": at, "_kafka_timestamp": at}
        for at in range(count)
    ]
    return batch(place, destination.ledger()[1], {0: count}).writing(files=(place.file(rows, _SCHEMA),))


@pytest.mark.parametrize("rule", [None, KeyRule(("id",), "replace")], ids=["append", "upsert"])
def test_batch_larger_than_the_limit_is_loaded(place: DuckDBPlace, rule: KeyRule | None) -> None:
    count, size = 12_000, 16_000
    destination = begun(place, rule=rule)
    commit = _commit(place, destination, count, size)
    if rule is not None:  # only the commit knows
        commit = commit.stored({lane: replace(found, inserted=0) for lane, found in commit.counts.items()})
    destination.commit(commit)
    with duckdb.connect(str(place.path), read_only=True) as connection:
        found = "SELECT count(*), sum(id), count(*) FILTER (text = repeat(printf('%016x', id), 1000)) FROM tweets"
        assert connection.execute(found).fetchone() == (count, count * (count - 1) // 2, count)
        if rule is None:
            groups = "SELECT max(total) FROM (SELECT sum(count) AS total FROM pragma_storage_info('tweets') WHERE column_id = 0"
            groups += " AND segment_type = 'BIGINT' GROUP BY row_group_id)"
            assert connection.execute(groups).fetchone() == (4096,)
    assert proof(destination).ok
    assert [path.name for path in place.path.parent.iterdir()] == ["kpipe.duckdb"]


def test_values_too_large_for_the_limit_name_the_settings(place: DuckDBPlace) -> None:
    """DuckDB needs the values of a vector of 2,048 rows at once."""
    destination = begun(place)
    with pytest.raises(DestinationError) as caught:
        destination.commit(_commit(place, destination, 300, 1_000_000))
    assert VARIABLE in str(caught.value.hint) and "batch.max_bytes_per_partition" in str(caught.value.hint)
    assert "Possible solutions" not in str(caught.value)
    assert place.rows() == [] and proof(destination).ok
    destination.commit(_commit(place, destination, 10, 1_000_000))
    assert len(place.rows()) == 10 and proof(destination).ok


def test_row_size_is_that_of_the_table_with_the_largest_rows(place: DuckDBPlace) -> None:
    commit = _commit(place, loaded(place), 2100, 16_000)
    small = verify(batch(place, place.open().ledger()[1], {0: 1500}).only.files, (place.staging,))
    large = verify(commit.only.files, (place.staging,))
    assert row_bytes([]) == row_bytes([(), ()]) == 0
    assert row_bytes([small]) < 200 and 16_000 <= row_bytes([small, large]) < 17_000 and row_bytes([[*small, *large]]) < 12_000


def test_few_rows_count_as_a_vector(place: DuckDBPlace) -> None:
    large = verify(_commit(place, loaded(place), 64, 16_000).only.files, (place.staging,))
    assert 500 <= row_bytes([large]) < 600
