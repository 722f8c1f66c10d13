"""JSON kept as JSON or as text, and numbers of any length: compiled, and row by row, as they were written."""

from __future__ import annotations

import json
import shutil

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kpipe.schema.columns import Columns
from resources.decode.block import Payloads
from resources.decode.json.decoder import JsonDecoder
from resources.decode.json.native import GOOD, LOOK, native_json
from resources.decode.json.rows import load

COLUMNS = Columns.of({"j": "JSON", "v": "VARCHAR", "d": "DECIMAL(38,20)", "h": "HUGEINT"})

number = st.from_regex(r"-?(0|[1-9][0-9]{0,40})(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,3})?", fullmatch=True)
text = st.one_of(st.text(max_size=8), st.sampled_from(["\x00", "\x7f", '"\\/', "\u2028", "é", "\U0001f600", "\n\t\b\f\r\x1f"]))


value = st.recursive(
    st.one_of(
        st.sampled_from(["null", "true", "false"]),
        number,
        st.builds(json.dumps, text),
        st.builds(lambda t: json.dumps(t, ensure_ascii=False), text),
        st.sampled_from(['"\\/"', '"\\u0041"', '"\\u000a"', '"\\ud83d\\ude00"', '"\\ud800"', "NaN", "-0", "01", "1.", "[1,]"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: "[" + " , ".join(items) + "]"),
        st.lists(st.tuples(st.sampled_from(["a", "b", "é", "", "A"]), inner), max_size=3).map(
            lambda items: "{ " + ",".join(f"{json.dumps(name)} :\t{item}" for name, item in items) + "}"
        ),
    ),
    max_leaves=6,
)
payload = st.dictionaries(st.sampled_from(["j", "v", "d", "h"]), value, max_size=4).map(
    lambda members: ("{" + ", ".join(f'"{name}": {item}' for name, item in members.items()) + "}").encode(
        "utf-8", "surrogatepass"
    )
)


@settings(max_examples=60, deadline=None)
@given(st.lists(payload, max_size=6))
@example([b'{"j": 1.10, "v": 1.10, "d": 0.12345678901234567890, "h": 123456789012345678901234567890}'])
@example([b'{"j": {"x": [1e400, 0.12345678901234567890, -0.0]}, "v": {"x": 1.50}}'])
@example([b'{"j": ' + b"1" * 5000 + b"}", b'{"z": ' + b"1" * 5000 + b"}"])
def test_the_same_as_row_by_row_and_as_written(values: list[bytes]) -> None:
    decoder = JsonDecoder(COLUMNS)
    found = decoder.decode(Payloads.of(values))
    decoder._native = None
    alone = decoder.decode(Payloads.of(values))
    assert found.table.to_pylist() == alone.table.to_pylist()
    assert list(found.rejects) == list(alone.rejects)
    assert [*(found.kept or range(found.rows))] == [*(alone.kept or range(alone.rows))]


@pytest.mark.parametrize("others", [b"", b', "new": [{}]'], ids=["alone", "with a new list"])
@pytest.mark.parametrize("kind", ["DOUBLE", "FLOAT", "BIGINT"])
def test_an_integer_of_too_many_digits_is_a_reject_in_every_way_of_decoding(kind: str, others: bytes) -> None:
    long, real = b"9" * 5000, b"9" * 5000 + b"e-4999"
    values = [b'{"c": %b%b}' % (item, others) for item in [b"1", long, b"-" + long, b"2"] * 10]
    decoder = JsonDecoder(Columns.of({"c": kind}))
    compiled = decoder.decode(Payloads.of(values))
    decoder._native = None
    arrow = decoder.decode(Payloads.of(values))
    for found in (compiled, arrow):
        assert found.table.column("c").to_pylist() == [1, 2] * 10
        assert found.rejects == [(at, "a number of too many digits") for at in range(40) if at % 4 in (1, 2)]
    if kind == "DOUBLE":
        for reads in (JsonDecoder(Columns.of({"c": kind})), decoder):
            whole = reads.decode(Payloads.of([b'{"c": %b%b}' % (real, others)] * 20))
            assert (whole.table.column("c").to_pylist(), list(whole.rejects)) == ([10.0] * 20, [])


def test_digits_are_kept() -> None:
    given = b'{"j": {"x":[0.12345678901234567890,1.10]}, "v": 1.10, "d": 0.12345678901234567890}'
    row = JsonDecoder(COLUMNS).decode(Payloads.of([given])).table.to_pylist()[0]
    assert (row["j"], row["v"], str(row["d"])) == ('{"x":[0.12345678901234567890,1.10]}', "1.10", "0.12345678901234567890")


@pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler here, so there is no compiled part")
@settings(max_examples=60, deadline=None)
@given(st.lists(payload, max_size=6))
@example([b'{"z": 1, "z": 2, "v": "x"}', b'{"z": {"a": 1, "a": 2}}', b'{"z": "\xff"}', b'{"\xff": 1}', b'{"z": [}'])
def test_members_that_are_skipped_are_read_as_strictly(values: list[bytes]) -> None:
    """With one column only, all others are left out; what is taken, the exact reader takes, with the same value."""
    native = native_json(Columns.of({"v": "VARCHAR"}), ways=[()])
    assert native is not None
    table, status = native.decode(Payloads.of(values))
    absent = native.absent(1, table.num_rows).tolist()
    rows = iter(zip(table.column("v").to_pylist(), absent, strict=True))
    for item, code in zip(values, status.tolist(), strict=True):
        assert code in (GOOD, LOOK)
        if code == GOOD:
            whole = load(item)
            text, nothing = next(rows)
            assert nothing == ("v" not in whole)
            assert (text is None) == (whole.get("v") is None)
            if isinstance(whole.get("v"), str):
                assert text == whole["v"]
