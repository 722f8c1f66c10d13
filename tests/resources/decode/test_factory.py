"""One function gives the decoder of a format; raw keeps bytes as they are."""

from __future__ import annotations

import pyarrow as pa

from kpipe.definition.formats import Format
from kpipe.schema.columns import Columns
from resources.decode.block import Payloads
from resources.decode.factory import decoder
from tests.cases import each_case

VALUES = [b"a", None, b"", b"two\nlines", b"\xff\n"]


def lines(values: list[bytes | None]) -> pa.Array:
    return pa.array([None if value is None else value + b"\n" for value in values], pa.large_binary())


@each_case("start", [0, 1, 3])
def test_raw_keeps_keys_and_values_and_tombstones_as_they_are(start: int) -> None:
    raw = decoder(Format(type="raw"), Columns())
    assert raw.takes_nulls
    keys = pa.array([b"k", None, b"", b"\n", b"x"], pa.binary())
    decoded = raw.decode(Payloads.of_array(lines(VALUES)[start:]), keys[start:])
    assert decoded.table.to_pydict() == {"key": keys.to_pylist()[start:], "value": VALUES[start:]}
    assert (decoded.rows, decoded.kept, decoded.rejects) == (5 - start, None, ())


def test_raw_takes_a_programs_lines_without_keys() -> None:
    decoded = decoder(Format(type="raw"), Columns()).decode(Payloads.of_lines(b"a\n\nb c\n"))
    assert decoded.table.to_pydict() == {"key": [None] * 3, "value": [b"a", b"", b"b c"]}


def test_payloads_of_a_column_are_those_of_a_list() -> None:
    column = Payloads.of_array(lines([b"a", b"", b"two\nlines"]))
    assert list(column.values) == [b"a", b"", b"two\nlines"]
    assert column.missing is None
    assert list(column.part(1, 3).values) == [b"", b"two\nlines"]
