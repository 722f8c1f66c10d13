"""Blocks whose records have many different members without a column: the same result as record by record, without more work."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from kpipe.column_growth import Closed
from kpipe.schema.columns import Columns
from kpipe.schema.growth_limits import room
from resources.decode.block import Decoded, Payloads
from resources.decode.growth_guard import Bound
from resources.decode.json import decoder as module
from resources.decode.json.decoder import JsonDecoder
from resources.native import library

pytestmark = pytest.mark.skipif(library() is None, reason="without compiled code, such records are read one by one")

_COLUMNS = Columns.of({"id": "BIGINT", "name": "VARCHAR", "price": "DOUBLE", "place": "STRUCT(x BIGINT)", "tags": "VARCHAR[]"})
_EXACT = Columns.of({"id": "BIGINT", "price": "DECIMAL(9,2)", "document": "JSON"})


def _bound(columns: Columns, closed: Closed | None = None, destination: str = "duckdb") -> Bound:
    return Bound(columns, room=room(destination), table=columns, closed=closed, destination=destination)


def _odd(at: int, record: dict[str, Any]) -> bytes:
    """Return the record, or one that needs other code."""
    text = json.dumps(record)
    odd: dict[int, str] = {
        3: json.dumps({**record, "ID": 1}),
        5: json.dumps({**record, "id": "not a number"}),
        7: json.dumps({**record, "bad\0name": 1}),
        11: text[:-1],
        13: text[:-1] + ', "id": 7}',
        17: json.dumps({**record, "place": {"x": 1, f"y{at}": 2}}),
        19: json.dumps({**record, "place": {"X": 1}}),
        23: json.dumps({**record, "place": 5}),
        29: json.dumps({"id": at}),
        31: json.dumps({**record, "_kafka_offset": 5, "nothing": None, "empty": [], "none": {}}),
        37: json.dumps({**record, "id": 1.5}),
        41: "[1]",
        43: text.replace("{", "{\n", 1),
        47: json.dumps({**record, "price": "12.34", "tags": ["a", None], "name": "z"}),
        53: json.dumps({f"x{at}_{k}": k for k in range(1200)}),
    }
    return odd.get(at % 59, text).encode()


def _payloads(count: int, members: int, per: int, odd: bool = True) -> list[bytes]:
    rng = random.Random(members)
    values: list[Any] = [1, 2.5, "text", True, None, {"a": 1}, [1, 2], 2**70]
    made = []
    for at in range(count):
        record = {"id": at, **{f"m{(at * per + k) % members:04d}": rng.choice(values) for k in range(per)}}
        made.append(_odd(at, record) if odd else json.dumps(record).encode())
    return made


def _one_by_one(decoder: JsonDecoder, payloads: list[bytes]) -> tuple[list[dict[str, Any]], list[tuple[int, str]], Columns]:
    rows: list[dict[str, Any]] = []
    rejects: list[tuple[int, str]] = []
    new = Columns()
    for at, payload in enumerate(payloads):
        kept: list[int] = []
        part = decoder._row_by_row(Payloads.of([payload]), lambda _, at=at: at, kept, rejects)
        rows += part.table.to_pylist()
        new = new.joined(part.new_columns, apart=True)
    return rows, rejects, new


def _same(found: Decoded, count: int, rows: list[dict[str, Any]], rejects: list[tuple[int, str]], new: Columns) -> None:
    assert found.table.to_pylist() == rows and found.rows == len(rows)
    assert list(found.rejects) == rejects
    assert (list(range(count)) if found.kept is None else list(found.kept)) == sorted({*range(count)} - {at for at, _ in rejects})
    assert dict(found.new_columns.items) == dict(new.items)


def _cases() -> Iterator[object]:
    """Every kind of columns and table for DuckDB; each other destination, whose bound alone differs, once."""
    for destination in ("duckdb", "postgres", "mysql", "iceberg"):
        for name, columns in (("blockwise", _COLUMNS), ("exact types", _EXACT)):
            for full in (False, True):
                quick = destination == "duckdb" or (name, full) == ("blockwise", False)
                yield pytest.param(
                    columns, destination, full, id=f"{full}-{destination}-{name}", marks=() if quick else pytest.mark.chaos
                )


@pytest.mark.parametrize(("columns", "destination", "full"), list(_cases()))
def test_block_decodes_as_its_records_do(columns: Columns, destination: str, full: bool) -> None:
    closed = Closed("the table is full", "no more fields") if full else None
    decoder = JsonDecoder(columns, _bound(columns, closed, destination))
    payloads = _payloads(240, 2000, 9)
    _same(decoder.decode(Payloads.of(payloads)), len(payloads), *_one_by_one(decoder, payloads))


def test_table_at_its_limit() -> None:
    columns = Columns.of({"id": "BIGINT", **{f"m{at:04d}": "BIGINT" for at in range(995)}})
    decoder = JsonDecoder(columns, _bound(columns))
    payloads = [json.dumps({"id": at, **{f"m{(at * 3 + k) % 1100:04d}": k for k in range(3)}}).encode() for at in range(400)]
    payloads += [json.dumps({"id": 1, **{f"n{k}": k for k in range(9)}}).encode()]
    found = decoder.decode(Payloads.of(payloads))
    _same(found, len(payloads), *_one_by_one(decoder, payloads))
    assert [at for at, _ in found.rejects] == [400] and "1,000 columns at most" in found.rejects[0][1]


@pytest.mark.parametrize("full", [False, True])
def test_each_record_is_looked_at_once(monkeypatch: pytest.MonkeyPatch, full: bool) -> None:
    """The time is linear: neither is a block read again in parts, nor is a record converted column by column."""
    reads, records = [], []
    monkeypatch.setattr(module.pj, "read_json", lambda *_, **__: reads.append(1))
    load, row = module.load, module.row
    monkeypatch.setattr(module, "load", lambda payload: (records.append(1), load(payload))[1])
    monkeypatch.setattr(module, "row", lambda *given: (reads.append(1), row(*given))[1])
    bound = _bound(_COLUMNS, Closed("the table is full") if full else None)
    count = 2000
    payloads = _payloads(count, 3000, 20, odd=False)
    found = JsonDecoder(_COLUMNS, bound).decode(Payloads.of(payloads))
    assert found.rows == (0 if full else count) and len(found.rejects) == (count if full else 0)
    nested = sum(any(isinstance(value, dict | list) for value in json.loads(payload).values()) for payload in payloads)
    assert not reads and nested < count and len(records) == (count if full else nested)
    assert replace(found, table=None).new_columns == Columns() if full else len(found.new_columns) == 3000


def _plain(draw: random.Random, at: int) -> bytes:
    """Return a record whose new members have no members themselves, with names and values at the edges of rules."""
    numbers = [0, -1, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 10**25]
    values = [*map(str, numbers), "1.0", "1e3", "-0", "true", "null", '"x"']
    names = [f"m{(at * 7 + k) % 1700:04d}" for k in range(7)]
    unusual = [
        "M0003", "ID", "Name", "é", "É", "ß", "\u212a", "k", "K", "i\u0307", "i", "\u0130", "a.b", "place.x",
        "x" * 63, "y" * 64, "é" * 32, "z" * 255, "z" * 256, "end ", "ctid", "db_row_id", "_kafka_offset", "_KAFKA_x", "𝄞", "",
        'quo"te', "back\\slash", "\u0000",
    ]  # fmt: skip
    if draw.random() < 0.3:
        names += draw.sample(unusual, draw.randrange(1, 4))
    if draw.random() < 0.01:
        names.append(names[0])
    if draw.random() < 0.004:
        names += [f"n{at}_{k}" for k in range(1001)]
    members = [json.dumps(name, ensure_ascii=draw.random() < 0.2) + ": " + draw.choice(values) for name in names]
    return ("{" + f'"id": {at}, ' + ", ".join(members) + "}").encode()


@pytest.mark.parametrize("destination", ["duckdb", "postgres", "mysql", "iceberg"])
@pytest.mark.parametrize("columns", [_COLUMNS, _EXACT], ids=["blockwise", "exact types"])
def test_plain_members_with_unusual_names(destination: str, columns: Columns) -> None:
    """Each name is judged once for all payloads, with the same result as each payload alone."""
    draw = random.Random(destination)
    decoder = JsonDecoder(columns, _bound(columns, None, destination))
    for _ in range(2):
        payloads = [_plain(draw, at) for at in range(100)]
        found = decoder.decode(Payloads.of(payloads))
        assert found.rejects and found.rows
        rows, rejects, new = _one_by_one(decoder, payloads)
        folded = {name.lower(): kind for name, kind in new}  # of names that differ by case only, records in any order give one
        assert {name.lower(): kind for name, kind in found.new_columns} == folded
        _same(replace(found, new_columns=new), len(payloads), rows, rejects, new)


def test_table_that_is_almost_full_takes_plain_members_by_record() -> None:
    columns = Columns.of({"id": "BIGINT", **{f"c{at:04d}": "BIGINT" for at in range(994)}})
    decoder = JsonDecoder(columns, _bound(columns))
    payloads = [json.dumps({"id": at, **{f"n{at}_{k}": k for k in range(at % 8)}}).encode() for at in range(48)]
    found = decoder.decode(Payloads.of(payloads))
    _same(found, len(payloads), *_one_by_one(decoder, payloads))
    assert [at for at, _ in found.rejects] == [at for at in range(48) if at % 8 > 5]


def test_python_reads_no_record_of_plain_members(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither for few names nor for many: the time is that of compiled code, and of each distinct name."""
    monkeypatch.setattr(module, "load", lambda payload: pytest.fail(f"read by Python: {payload!r}"))
    monkeypatch.setattr(module.pj, "read_json", lambda *_, **__: pytest.fail("read by Arrow"))
    for names in (20, 500, 3000):
        payloads = [json.dumps({"id": at, **{f"m{(at * 20 + k) % names}": k for k in range(20)}}).encode() for at in range(600)]
        found = JsonDecoder(_COLUMNS, _bound(_COLUMNS)).decode(Payloads.of(payloads))
        assert found.rows == 600 and len(found.new_columns) == names


def test_names_that_collide_are_read_by_exact_code() -> None:
    """Very many names of one hash cannot slow compiled code down: names that differ by case only have one."""
    draw = random.Random(1)
    names = sorted({"".join(draw.choice((c, c.upper())) for c in "abcdefghijkl") for _ in range(400)})
    payloads = [json.dumps({"id": at, name: at}).encode() for at, name in enumerate(names)]
    decoder = JsonDecoder(_COLUMNS, _bound(_COLUMNS))
    found = decoder.decode(Payloads.of(payloads))
    _same(found, len(payloads), *_one_by_one(decoder, payloads))
    assert found.rows == len(names)
