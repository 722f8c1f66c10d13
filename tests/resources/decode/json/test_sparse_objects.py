"""Objects with few of very many columns: compiled code fills the absent values later, and decodes what exact code does."""

from __future__ import annotations

import json
import random
import shutil
from typing import Any

import pyarrow as pa
import pytest

from kpipe.schema.columns import Columns
from resources.decode.block import Payloads
from resources.decode.json.decoder import JsonDecoder
from resources.decode.json.native import GOOD, LOOK, UNKNOWN, NativeJson, native_json
from resources.decode.json.rows import Reject, load, row
from resources.duckdb_engine.arrow_types import wire_type

pytestmark = pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler here, so there is no compiled part")

_SCALARS = ("BIGINT", "VARCHAR", "DOUBLE", "BOOLEAN", "TINYINT", "JSON", "UINTEGER", "FLOAT")
_INNER = ", ".join(f"inner_{at} {_SCALARS[at % 5]}" for at in range(12))
_NESTED = (f"STRUCT({_INNER})", f"STRUCT({_INNER})[]", "VARCHAR[]", f"STRUCT(x STRUCT({_INNER}), y BIGINT)", "BIGINT[][]")
COLUMNS = Columns.of({f"member_{at:03d}": (*_SCALARS, *_NESTED)[at % 13] for at in range(130)})


def _scalar(at: int, draw: random.Random) -> Any:
    if draw.random() < 0.1:
        return None
    if draw.random() < 0.02:
        return draw.choice(["no number", {"x": 1}, [1], 1 << 70])
    whole = draw.randrange(100)
    return (whole, f"text {whole} é", whole / 4, whole % 2 == 0, whole, [whole], whole, whole / 4)[at]


def _inner(draw: random.Random) -> dict[str, Any]:
    chosen = draw.sample(range(12), draw.randrange(4))
    return {f"inner_{at}": _scalar(at % 5, draw) for at in chosen}


def _value(at: int, draw: random.Random) -> Any:
    kind = at % 13
    if kind < len(_SCALARS):
        return _scalar(kind, draw)
    if draw.random() < 0.1:
        return None
    few = range(draw.randrange(4))
    nested = {
        8: lambda: _inner(draw),
        9: lambda: [draw.choice([None, _inner(draw), _inner(draw)]) for _ in few],
        10: lambda: [draw.choice([None, "", "text"]) for _ in few],
        11: lambda: draw.choice([{}, {"x": None, "y": 1}, {"x": _inner(draw)}]),
        12: lambda: [draw.choice([None, [], [1, None]]) for _ in few],
    }
    return nested[kind]()


def _payload(draw: random.Random) -> bytes:
    members = [(f"member_{at:03d}", _value(at, draw)) for at in draw.sample(range(130), draw.randrange(8))]
    chance = draw.random()
    if chance < 0.05 and members:
        members.append(members[0])  # a duplicate
    elif chance < 0.1:
        members.append((draw.choice(["member_130", "Member_007", "MEMBER_129", "member_0070", ""]), 1))
    elif chance < 0.12:
        members = [(f"member_{at:03d}", _value(at, draw)) for at in range(130)]
    text = "{" + ", ".join(f"{json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}" for name, value in members) + "}"
    return (text[:-1] if chance > 0.97 else text).encode()


def _exact(payload: bytes) -> tuple[dict[str, Any], dict[str, Any]] | None:
    try:
        return row(load(payload), COLUMNS)
    except Reject:
        return None


def _made(ways: tuple[()] | None = None) -> NativeJson:
    made = native_json(COLUMNS, ways)
    assert made is not None, "the compiled part is not built -> make install"
    return made


@pytest.mark.parametrize("seed", range(8))
def test_the_same_as_exact_code(seed: int) -> None:
    draw = random.Random(seed)
    strict, skipping = _made(), _made(())
    taken = 0
    for size in (1, 0, 60, 3, 40):  # a decoder keeps its columns from block to block
        payloads = [_payload(draw) for _ in range(size)]
        for native in (strict, skipping):
            table, status = native.decode(Payloads.of(payloads))
            table.validate(full=True)
            absent = {name: native.absent(_node(name), table.num_rows) for name in ("member_000", "member_008", "member_129")}
            rows = iter(table.to_pylist())
            for payload, code in zip(payloads, status.tolist(), strict=True):
                expected = _exact(payload)
                if code != GOOD:
                    assert code == LOOK or (native is strict and (expected is None or expected[1])), payload
                    continue
                taken += 1
                assert expected is not None, f"taken, although it is none: {payload!r}"
                assert native is skipping or not expected[1], f"something was left out: {payload!r}"
                assert next(rows) == expected[0], payload
            good = [json.loads(payload) for payload, code in zip(payloads, status.tolist(), strict=True) if code == GOOD]
            assert next(rows, None) is None
            assert all([name not in item for item in good] == found.tolist() for name, found in absent.items())
    assert taken > 100


def _node(name: str) -> int:
    """Return the number of a column among all columns in depth-first order."""
    node = 1
    for other, kind in COLUMNS:
        if other == name:
            return node
        node += 1 + _inside(wire_type(kind))
    raise AssertionError(name)


def _inside(kind: pa.DataType) -> int:
    if pa.types.is_list(kind):
        return 1 + _inside(kind.value_type)
    return sum(1 + _inside(item.type) for item in kind) if pa.types.is_struct(kind) else 0


def test_a_block_whose_rows_have_no_member() -> None:
    table, status = _made().decode(Payloads.of([b"{}"] * 5))
    table.validate(full=True)
    assert status.tolist() == [GOOD] * 5
    assert table.to_pylist() == [dict.fromkeys(COLUMNS.names())] * 5


def test_columns_of_null_share_their_memory() -> None:
    """So rows with few of many columns take the memory of the few."""
    wide = Columns.of({f"member_{at:04d}": "BIGINT" for at in range(4000)})
    native = native_json(wide)
    assert native is not None
    before = pa.total_allocated_bytes()
    table, status = native.decode(Payloads.of([b'{"member_0007": 7}'] * 4000))
    assert (status == GOOD).all()
    assert pa.total_allocated_bytes() - before < 10 * 4000 * 8
    assert table.column("member_0007").null_count == 0
    assert table.column("member_3999").null_count == 4000


def test_a_block_of_more_columns_than_slots() -> None:
    """Columns that no record of the block has do not count."""
    wide = Columns.of({f"member_{at:04d}": "BIGINT" for at in range(3000)})
    found = JsonDecoder(wide).decode(Payloads.of([b'{"member_0001": %d}' % at for at in range(4000)]))
    assert found.rows == 4000
    assert found.table.column("member_0001").to_pylist() == list(range(4000))


def test_items_of_lists_count_with_all_their_fields() -> None:
    """`[{},{},...]` has very many values in few bytes."""
    fields = ", ".join(f"f{at} BIGINT" for at in range(1000))
    native = native_json(Columns.of({"items": f"STRUCT({fields})[]"}))
    assert native is not None
    with pytest.raises(MemoryError):
        native.decode(Payloads.of([b'{"items": [' + b",".join([b"{}"] * 20_000) + b"]}"]))


def test_names_that_collide() -> None:
    """Names that differ in one letter, in the order of a permutation, with a case variant of each."""
    names = [f"measurement_{at:02d}_of_the_sensor" for at in range(40)]
    native = native_json(Columns.of(dict.fromkeys(names, "BIGINT")), ways=())
    assert native is not None
    mixed = names[::-1][::3] + names[1::3]
    rows = [json.dumps({name: at for at, name in enumerate(mixed)}).encode(), json.dumps({names[5].upper(): 1}).encode()]
    table, status = native.decode(Payloads.of(rows))
    assert status.tolist() == [GOOD, LOOK]
    assert {name: value for name, value in table.to_pylist()[0].items() if value is not None} == {
        name: at for at, name in enumerate(mixed)
    }
    strict = native_json(Columns.of(dict.fromkeys(names, "BIGINT")))
    assert strict is not None
    assert strict.decode(Payloads.of([rows[1]]))[1].tolist() == [UNKNOWN]
