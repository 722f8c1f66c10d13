"""Framing: whatever goes in can be read back by a program that knows only the documented form."""

from __future__ import annotations

import base64
import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transforms import NewlineInValue, json_envelopes, length_prefixed, lines

VALUES = st.lists(st.binary(max_size=40), max_size=20)


@given(VALUES)
def test_lines_are_read_back_or_the_culprits_are_named(values: list[bytes]) -> None:
    culprits = tuple(index for index, value in enumerate(values) if b"\n" in value)
    if culprits:
        with pytest.raises(NewlineInValue) as caught:
            lines(values)
        assert caught.value.indices == culprits
    else:
        assert lines(values).split(b"\n")[:-1] == values


DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=10),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(max_size=5), children, max_size=4),
    max_leaves=10,
)


@given(st.lists(DOCUMENTS, max_size=10), st.sampled_from([None, 1, 2]), st.sampled_from(["", "\n", "\r\n", "\r"]))
def test_json_of_any_layout_becomes_one_line_each(documents: list[object], indent: int | None, end: str) -> None:
    values = [(json.dumps(document, indent=indent, ensure_ascii=False) + end).encode() for document in documents]
    framed = lines(values, json=True)
    assert b"\r" not in framed
    assert [json.loads(line) for line in framed.decode().split("\n")[:-1]] == documents
    assert framed.count(b"\n") == len(values)


def test_what_is_not_json_after_all_keeps_its_nul_and_its_place() -> None:
    assert lines([b"a\0\nb", b"c\n"], json=True) == b"a\0 b\nc \n"


@given(VALUES)
def test_length_prefixed_is_read_back(values: list[bytes]) -> None:
    data, found = length_prefixed(values), []
    while data:
        (size,) = struct.unpack_from("@Q", data)
        found.append(data[8 : 8 + size])
        data = data[8 + size :]
    assert found == values


def plain(value: object) -> bytes | None:
    if isinstance(value, dict):
        return base64.b64decode(value["base64"], validate=True)
    assert value is None or isinstance(value, str)
    return value.encode() if value is not None else None


OPTIONAL = st.none() | st.binary(max_size=20) | st.text(max_size=10).map(str.encode)
HEADERS = st.none() | st.lists(st.tuples(st.text(max_size=5), OPTIONAL), max_size=3)


@given(st.lists(st.tuples(st.integers(0, 2**63 - 1), st.integers(-1, 2**53), OPTIONAL, OPTIONAL, HEADERS), max_size=8), st.text())
def test_envelopes_are_read_back(
    records: list[tuple[int, int, bytes | None, bytes | None, list[tuple[str, bytes | None]] | None]], topic: str
) -> None:
    framed = json_envelopes(
        topic=topic,
        partition=3,
        offsets=[record[0] for record in records],
        timestamps=[record[1] for record in records],
        keys=[record[2] for record in records],
        values=[record[3] for record in records],
        headers=[record[4] for record in records],
    )
    rows = [json.loads(line) for line in framed.decode().split("\n")[:-1]]
    assert len(rows) == len(records)
    for row, (offset, timestamp, key, value, headers) in zip(rows, records, strict=True):
        assert list(row) == ["topic", "partition", "offset", "timestamp", "key", "value", "headers"]
        assert (row["topic"], row["partition"], row["offset"], row["timestamp"]) == (topic, 3, offset, timestamp)
        assert (plain(row["key"]), plain(row["value"])) == (key, value)
        assert [(name, plain(data)) for name, data in row["headers"]] == list(headers or [])


def test_columns_of_unequal_length_are_refused() -> None:
    with pytest.raises(ValueError, match="shorter"):
        json_envelopes(topic="t", partition=0, offsets=[1, 2], timestamps=[1], keys=[None], values=[b""])


def test_nothing_frames_to_nothing() -> None:
    assert lines([]) == length_prefixed([]) == b""
    assert json_envelopes(topic="t", partition=0, offsets=[], timestamps=[], keys=[], values=[]) == b""


@pytest.mark.parametrize("bad", [b'{"a":"x\ny"}', b'{"a\r":1}', b'{"a":"\\"x\ny"}', b'{"a":"x\n', b'{"a":"\\\n"}'], ids=ascii)
def test_a_newline_in_a_string_is_not_json_and_is_not_replaced(bad: bytes) -> None:
    """As a space it would change the value, and the program would take an invalid record for a valid one."""
    good = b'{\n"a":\r"x\\ny"\n}'
    with pytest.raises(NewlineInValue) as error:
        lines([good, bad, b"{}", bad], json=True)
    assert error.value.indices == (1, 3)
    assert lines([good], json=True) == b'{ "a": "x\\ny" }\n'
