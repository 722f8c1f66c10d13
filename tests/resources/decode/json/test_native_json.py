"""The compiled decoder never takes what the exact one refuses, and never reads it otherwise."""

from __future__ import annotations

import json
import math
import random
import shutil
import struct
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kpipe.schema.columns import Columns
from resources.decode.block import Payloads
from resources.decode.json.native import GOOD, UNKNOWN, native_json
from resources.decode.json.rows import Reject, load, row
from resources.native import library

COLUMNS = Columns.of(
    {
        "a": "BIGINT",
        "b": "VARCHAR",
        "c": "DOUBLE",
        "d": "STRUCT(x BIGINT, y VARCHAR[], z STRUCT(deep DOUBLE))",
        "e": "BOOLEAN[]",
        "f": "UBIGINT",
        "g": "TINYINT",
        "h": "STRUCT(p BOOLEAN, q INTEGER[][])[]",
        'é"\\': "BOOLEAN",
    }
)

pytestmark = pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler here, so there is no compiled part")


def exact(payload: bytes) -> Any:
    """The row, or None; and whether there is more than the columns hold."""
    try:
        return row(load(payload), COLUMNS)
    except Reject:
        return None, None


def compare(payloads: list[bytes]) -> list[int]:
    decoder = native_json(COLUMNS)
    assert decoder is not None, "the compiled part is not built -> make install"
    table, status = decoder.decode(Payloads.of(payloads))
    table.validate(full=True)
    rows = iter(table.to_pylist())
    for payload, code in zip(payloads, status.tolist(), strict=True):
        if code != GOOD:
            continue
        expected, more = exact(payload)
        assert expected is not None, f"taken, although it is none: {payload!r}"
        assert not more, f"something was left out: {payload!r}"
        assert next(rows) == expected, payload
    assert next(rows, None) is None
    return list(status.tolist())


number = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.from_regex(r"-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,3})?", fullmatch=True),
)
text = st.text(max_size=40)
good = st.fixed_dictionaries(
    {},
    optional={
        "a": st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)),
        "b": st.one_of(st.none(), text),
        "c": st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False), st.integers(-(2**60), 2**60)),
        "d": st.one_of(
            st.none(),
            st.fixed_dictionaries(
                {},
                optional={
                    "x": st.integers(-5, 5),
                    "y": st.lists(st.one_of(st.none(), text), max_size=3),
                    "z": st.fixed_dictionaries({}, optional={"deep": st.floats(allow_nan=False, allow_infinity=False)}),
                },
            ),
        ),
        "e": st.one_of(st.none(), st.lists(st.one_of(st.none(), st.booleans()), max_size=9)),
        "f": st.integers(0, 10**19 - 1),
        "g": st.integers(-128, 127),
        "h": st.lists(
            st.one_of(
                st.none(),
                st.fixed_dictionaries(
                    {}, optional={"q": st.lists(st.lists(st.integers(-(2**31), 2**31 - 1), max_size=2), max_size=2)}
                ),
            ),
            max_size=3,
        ),
    },
)


@st.composite
def payloads(draw: st.DrawFn) -> bytes:
    value = draw(good)
    raw = json.dumps(value, ensure_ascii=draw(st.booleans()), indent=draw(st.sampled_from([None, 2])))
    return raw.encode("utf-8", "surrogatepass")


@given(st.lists(payloads(), max_size=20))
def test_what_is_plainly_good_is_taken(items: list[bytes]) -> None:
    assert set(compare(items)) <= {GOOD}


PIECES = [bytes([at]) for at in b'\\"{}[],:0-.e\n\x00\xff\xc3 ']
PIECES += [b"", b"\xed\xa0\x80", b"\\u", b"\\ud800", b"null", b"true", b"1e999"]


@st.composite
def spoilt(draw: st.DrawFn) -> bytes:
    data = bytearray(draw(payloads()))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(data)))
        what = draw(st.sampled_from(PIECES))
        data[at : at + draw(st.integers(0, 2))] = what
    return bytes(data)


SPOILT = [
    b"",
    b"{",
    b"{}}",
    b"{}{}",
    b"[]",
    b"null",
    b'{"b":"',
    b'{"b',
    b'{"b":"x}',
    b'{"}',
    b'{"b":"\t"}',
    b"\xef\xbb\xbf{}",
]


@given(st.lists(spoilt(), max_size=20))
@example(SPOILT)
def test_what_is_spoilt_is_never_taken_for_something_else(items: list[bytes]) -> None:
    compare(items)


@given(st.lists(number, min_size=1, max_size=30))
def test_numbers_are_read_as_python_reads_them(items: list[Any]) -> None:
    compare([f'{{"c":{item}}}'.encode() for item in items] + [f'{{"a":{item}}}'.encode() for item in items])


def test_a_hundred_thousand_doubles_bit_by_bit() -> None:
    """Where the short way to round is not certain, the long one is taken."""
    chance = random.Random(1)
    values = [
        struct.unpack("d", struct.pack("Q", chance.getrandbits(64)))[0]
        if at % 3
        else round(chance.random() * 10 ** chance.randrange(20), chance.randrange(18))
        for at in range(100_000)
    ]
    texts = [repr(value) for value in values if math.isfinite(value)]
    texts += [f"{chance.getrandbits(64)}e{chance.randrange(-25, 25)}" for _ in range(50_000)]
    # Half way between two doubles, and a digit beside it.
    texts += [f"{2**53 + 2 * at + 1}{tail}" for at in range(1000) for tail in ("", ".0", ".00000000000000001", "e1")]
    decoder = native_json(Columns.of({"c": "DOUBLE"}))
    assert decoder is not None
    table, status = decoder.decode(Payloads.of([b'{"c":%s}' % text.encode() for text in texts]))
    assert not status.any()
    found = table.column("c").to_pylist()
    wrong = [
        (text, got) for text, got in zip(texts, found, strict=True) if struct.pack("d", got) != struct.pack("d", float(text))
    ]
    assert not wrong


def test_members_without_a_column_are_told_of() -> None:
    assert compare([b'{"a":1}', b'{"a":1,"new":2}', b'{"d":{"x":1,"w":2}}', b'{"a":"x"}'])[1:3] == [UNKNOWN, UNKNOWN]


def test_it_can_be_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    library.cache_clear()
    monkeypatch.setenv("KPIPE_NATIVE", "0")
    try:
        assert native_json(COLUMNS) is None
    finally:
        library.cache_clear()
