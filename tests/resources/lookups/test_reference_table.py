"""Which row a key finds: a dict is the oracle."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kpipe.definition.lookups import Version
from kpipe.definition.pipeline import Pipeline
from kpipe.schema.columns import Columns
from resources.duckdb_engine.expression_checks import checked_selection
from resources.lookups import reference_table
from resources.lookups.loader import Lookups
from resources.lookups.reference_table import Reference, packed

KINDS = {
    "BIGINT": (pa.int64(), st.integers(-3, 3)),
    "VARCHAR": (pa.string(), st.sampled_from(["", "a", "A", "ä", "a\0", "b" * 40])),
}


def made(columns: Columns, table: pa.Table, keys: int) -> Reference:
    return Reference("l", keys, columns, False, Version("", table.num_rows, 0), packed(table))


def asked(found: Reference, probes: pa.Table) -> list[int | None]:
    result: list[int | None] = found.find(probes).to_pylist()
    return result


@settings(deadline=None)
@given(st.data(), st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=2), st.booleans())
def test_a_key_finds_its_row_and_no_other(data: st.DataObject, kinds: list[str], collide: bool) -> None:
    keys = st.tuples(*(KINDS[kind][1] for kind in kinds))
    rows = data.draw(st.lists(keys, unique=True, max_size=20))
    probes = data.draw(st.lists(st.tuples(*(st.none() | KINDS[kind][1] for kind in kinds)), max_size=30))

    def table(items: list[Any]) -> pa.Table:
        columns = list(zip(*items, strict=True)) or [()] * len(kinds)
        names = [f"k{at}" for at in range(len(kinds))]
        return pa.table(
            [pa.array(list(column), KINDS[kind][0]) for column, kind in zip(columns, kinds, strict=True)], names=names
        )

    columns = Columns.of({f"k{at}": kind for at, kind in enumerate(kinds)})
    expected = [next((at for at, row in enumerate(rows) if row == probe), None) for probe in probes]
    with pytest.MonkeyPatch.context() as patch:
        if collide:  # all keys have one of two hashes: chance would take longer
            real = reference_table._hashed
            patch.setattr(reference_table, "_hashed", lambda found: real(found) % np.uint64(2))
        assert asked(made(columns, table(rows), len(kinds)), table(probes)) == expected


def test_it_travels_without_what_was_made_of_it() -> None:
    table = pa.table({"k": pa.array(range(10_000))})
    found = made(Columns.of({"k": "BIGINT"}), table, 1)
    before = len(pickle.dumps(found))
    assert asked(found, table.slice(5, 2)) == [5, 6]
    assert len(pickle.dumps(found)) == before
    assert asked(pickle.loads(pickle.dumps(found)), table.slice(7, 1)) == [7]


@pytest.fixture
def lookups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Lookups, list[float]]]:
    monkeypatch.chdir(tmp_path)

    def make(**fields: Any) -> tuple[Lookups, list[float]]:
        definition = Pipeline.model_validate(
            {
                "name": "p", "source": {"brokers": "b", "topic": "t"}, "into": {"table": "t"},
                "lookups": {"l": {"path": "x.csv", "key": "k", **fields}, "unused": {"path": "none.csv", "key": "k"}},
                "set": {"v": "l(k).v"},
            }
        )  # fmt: skip
        now = [0.0]
        return Lookups(definition, checked_selection(definition), clock=lambda: now[0]), now

    return make


def rows_of(found: Lookups, batch: str) -> int:
    (held,) = found.of_batch(batch).values()
    return held.value.version.rows


def test_it_is_read_once_a_run(lookups: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("k,v\n1,a\n")
    found, now = lookups()
    assert rows_of(found, "a") == 1
    (tmp_path / "x.csv").unlink()
    now[0] = 1e9
    assert rows_of(found, "b") == 1


def test_it_is_read_again_when_it_is_old_but_never_within_a_batch(lookups: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("k,v\n1,a\n")
    found, now = lookups(refresh_s=60)
    assert rows_of(found, "a") == 1
    (tmp_path / "x.csv").write_text("k,v\n1,a\n2,b\n")
    now[0] = 59
    assert rows_of(found, "b") == 1
    now[0] = 61
    assert rows_of(found, "b") == 1, "that batch has begun with the other"
    assert rows_of(found, "c") == 2
    (tmp_path / "x.csv").unlink()
    now[0] = 62
    assert rows_of(found, "d") == 2
