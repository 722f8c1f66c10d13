"""Texts of ISO 8601 as timestamps."""

from __future__ import annotations

from typing import Any

from kpipe.schema.columns import VARCHAR, Columns, Scalar, merge
from kpipe.schema.inference import infer
from kpipe.schema.timestamps import has_text, with_timestamps
from tests.cases import each_case

ZONED, LOCAL = "TIMESTAMP WITH TIME ZONE", "TIMESTAMP"


def _typed(*values: Any) -> str:
    records = [{"x": value} for value in values]
    return str(with_timestamps(infer(records), records).get("x"))


CASES: list[tuple[tuple[Any, ...], str]] = [
    (("2026-11-26T18:00:00Z",), ZONED),
    (("2026-11-26 18:00:00.123456+05:30", None, "2024-02-29T00:00:00-14:00"), ZONED),
    (("2026-11-26 18:00:00", "2026-11-26T18:00:00.5"), LOCAL),
    (("2026-11-26 18:00:00", "2026-11-26T18:00:00Z"), "VARCHAR"),
    (("2026-11-26T18:00:00Z", "soon"), "VARCHAR"),
    (("2026-11-26T18:00:00Z", ""), "VARCHAR"),
    (("2026-11-26",), "VARCHAR"),
    (("2026-02-30 18:00:00",), "VARCHAR"),
    (("0000-01-01 00:00:00",), "VARCHAR"),
    (("2026-11-26 24:00:00",), "VARCHAR"),
    (("2026-11-26 18:00:60",), "VARCHAR"),
    (("2026-11-26 18:00",), "VARCHAR"),
    (("2026-11-26 18:00:00.1234567",), "VARCHAR"),
    (("2026-11-26 18:00:00+15:00",), "VARCHAR"),
    (("2026-11-26 18:00:00Z ",), "VARCHAR"),
    (("٢٠٢٦-11-26 18:00:00",), "VARCHAR"),
    (("2026-11-26T18:00:00Z", 5), "JSON"),
    ((["2026-11-26T18:00:00Z"], [], [None]), f"{ZONED}[]"),
    ((["2026-11-26T18:00:00Z"], ["x"]), "VARCHAR[]"),
    (({"a": "2026-11-26 18:00:00", "b": "x"}, {"a": None}), "STRUCT(a TIMESTAMP, b VARCHAR)"),
    (([{"a": "2026-11-26 18:00:00"}], [{"a": "x"}]), "STRUCT(a VARCHAR)[]"),
]


@each_case(("values", "kind"), CASES, ids=[str(at) for at in range(len(CASES))])
def test_a_column_of_texts_is_a_timestamp_if_all_of_them_are(values: tuple[Any, ...], kind: str) -> None:
    assert _typed(*values) == kind


def test_names_match_in_any_case_and_other_columns_stay() -> None:
    columns = Columns.of({"At": "VARCHAR", "n": "BIGINT", "later": "VARCHAR"})
    found = with_timestamps(columns, [{"at": "2026-11-26 18:00:00", "n": 1}, {"AT": "2026-11-26 18:00:00"}])
    assert found == Columns.of({"At": "TIMESTAMP", "n": "BIGINT", "later": "VARCHAR"})
    assert has_text(columns)
    assert not has_text(Columns.of({"n": "BIGINT", "m": "MAP(VARCHAR, VARCHAR)"}))


def test_timestamps_and_text_are_text_together() -> None:
    pairs = [(ZONED, LOCAL), (LOCAL, "VARCHAR"), ("VARCHAR", ZONED)]
    assert {merge(Scalar(one), Scalar(other)) for one, other in pairs} == {VARCHAR}
