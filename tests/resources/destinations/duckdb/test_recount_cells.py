"""The recount by cells of 128 offsets equals a count of every row."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resources.destinations.sql.ledger.duckdb_dialect import DIALECT

Row = tuple[str, int, int]
Spans = dict[tuple[str, int], list[tuple[int, int]]]

_ENGINE = duckdb.connect()
_PLACES = [("a", 0), ("a", 1), ("b", 0)]


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[Row], Spans]:
    """Rows with repeated and foreign offsets, and ranges that do not overlap, with and without gaps between them."""
    spans: Spans = {}
    for place in _PLACES:
        marks = sorted(draw(st.sets(st.integers(0, 800), max_size=8)))
        spans[place] = [(start, end) for start, end in pairwise(marks) if draw(st.booleans())]
    rows = draw(st.lists(st.tuples(st.sampled_from(_PLACES), st.integers(0, 850)), max_size=30))
    runs = draw(st.lists(st.tuples(st.sampled_from(_PLACES), st.integers(0, 600), st.integers(0, 300)), max_size=4))
    found = [(*place, offset) for place, offset in rows]
    found += [(*place, offset) for place, start, length in runs for offset in range(start, start + length)]
    return found, spans


@settings(max_examples=40)
@given(tables())
def test_the_sums_are_those_of_every_row(made: tuple[list[Row], Spans]) -> None:
    rows, spans = made
    assert by_cells(rows, spans, by_topic=True) == by_rows(rows, spans)


@settings(max_examples=40)
@given(tables())
def test_the_sums_of_one_topic_are_those_of_every_row(made: tuple[list[Row], Spans]) -> None:
    rows, spans = [row for row in made[0] if row[0] == "a"], {place: of for place, of in made[1].items() if place[0] == "a"}
    assert by_cells(rows, spans, by_topic=False) == by_rows(rows, spans)


@pytest.mark.parametrize("at", [0, 63, 64, 127, 128])
@pytest.mark.parametrize("edge", [0, 1, 63, 64, 65, 127, 128])
def test_offsets_of_both_halves_of_a_cell_are_told_apart(at: int, edge: int) -> None:
    """The same bit of both halves is a different offset; an offset that is repeated is counted, also beside an edge."""
    rows = [("a", 0, offset) for offset in (at, at, at + 64, *range(256))]
    spans = {("a", 0): [(start, end) for start, end in ((0, edge), (edge, 300)) if start < end]}
    assert by_cells(rows, spans, by_topic=False) == by_rows(rows, spans)


@pytest.mark.parametrize("offset", [2**40, 2**62, 2**63 - 1])
def test_large_offsets(offset: int) -> None:
    rows = [("a", 0, at) for at in (offset - 2, offset - 1, offset - 1)]
    spans = {("a", 0): [(offset - 2, offset)]}
    assert by_cells(rows, spans, by_topic=False) == by_rows(rows, spans) == {0: (3, 1, 3 * offset - 4)}


@settings(max_examples=40)
@given(tables(), st.integers(2, 5))
def test_offsets_with_more_rows_than_readings(made: tuple[list[Row], Spans], cover: int) -> None:
    """Of two readings each surplus is found; of more, one beside offsets that lost several rows may not be."""
    rows, spans = made
    found = by_cells(rows, spans, by_topic=True, cover=cover)
    surplus = {id for id, span in enumerate(_ranges(spans)) if max(_counted(rows, *span).values(), default=0) > cover}
    excess = {id for id, (_, again, _) in found.items() if again}
    assert excess == surplus if cover == 2 else excess <= surplus


@pytest.mark.parametrize("cover", [2, 3, 4])
@pytest.mark.parametrize("edge", [0, 50, 200])
def test_one_row_that_took_the_place_of_another_reading(cover: int, edge: int) -> None:
    rows: list[Row] = [("a", 0, offset) for offset in range(200)] * cover
    spans = {("a", 0): [(start, end) for start, end in ((0, edge), (edge, 200)) if start < end]}
    assert not any(again for _, again, _ in by_cells(rows, spans, by_topic=False, cover=cover).values())
    rows[rows.index(("a", 0, 60))] = ("a", 0, 61)
    assert any(again for _, again, _ in by_cells(rows, spans, by_topic=False, cover=cover).values())


def by_rows(rows: list[Row], spans: Spans) -> dict[int, tuple[int, int, int]]:
    result = {}
    for id, (place, start, end) in enumerate(_ranges(spans)):
        counted = _counted(rows, place, start, end)
        if counted:
            held = sum(counted.values())
            result[id] = (held, held - len(counted), sum(offset * n for offset, n in counted.items()))
    return result


def _counted(rows: list[Row], place: tuple[str, int], start: int, end: int) -> Counter[int]:
    return Counter(offset for *where, offset in rows if tuple(where) == place and start <= offset < end)


def by_cells(rows: list[Row], spans: Spans, by_topic: bool, cover: int = 1) -> dict[int, tuple[int, int, int]]:
    hits = DIALECT.hits.format(
        table="loaded",
        topic="AND t._kafka_topic = b.topic" if by_topic else "",
        of_row="t._kafka_topic" if by_topic else "''",
        of_range="b.topic" if by_topic else "''",
    )
    ranges = _ranges(spans)
    with _ENGINE.cursor() as connection:
        connection.register("loaded", _table(rows, ("_kafka_topic", "_kafka_partition", "_kafka_offset")))
        flat = [(*place, start, end) for place, start, end in ranges]
        names = ("topic", "batch_source_partition_id", "batch_earliest_offset", "batch_latest_offset")
        connection.register("given", _table(flat, names).append_column("id", pa.array(range(len(flat)), pa.int64())))
        found = connection.execute(
            f"WITH kpipe_ranges AS (SELECT *, {cover} AS cover FROM given), kpipe_hits AS ({hits})"
            " SELECT id, sum(n)::BIGINT, sum(again)::BIGINT, sum(summed) FROM kpipe_hits GROUP BY id"
        ).fetchall()
    return {id: (held, again, int(summed)) for id, held, again, summed in found}


def _ranges(spans: Spans) -> list[tuple[tuple[str, int], int, int]]:
    return [(place, start, end) for place, of in spans.items() for start, end in of]


def _table(rows: list[tuple[str, int, int]] | list[tuple[str, int, int, int]], names: tuple[str, ...]) -> pa.Table:
    kinds = [pa.string(), pa.int32(), *[pa.int64()] * (len(names) - 2)]
    return pa.table([pa.array([row[at] for row in rows], kind) for at, kind in enumerate(kinds)], names=list(names))
