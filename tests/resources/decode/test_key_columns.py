"""Decode keys and values to columns of one table."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from kpipe.definition.formats import Format
from kpipe.schema.columns import Columns
from resources.decode.block import Payloads
from resources.decode.factory import decoder


def test_an_invalid_key_is_a_reject_before_the_table_has_columns() -> None:
    both = decoder(Format(type="json"), Columns(), Format(type="json"))
    found = both.decode(Payloads.of([b"{}", b'{"id": 1}', b"{}"]), pa.array([b"oops", b'{"k": 2}', None], pa.binary()))
    assert ([index for index, _ in found.rejects], found.kept, found.rows) == ([0], [1, 2], 2)
    assert found.rejects[0][1].startswith("key: ")
    assert found.new_columns.to_dict() == {"id": "BIGINT", "k": "BIGINT"}


@pytest.mark.parametrize(
    ("values", "keys", "rejects", "new"),
    [
        ([{"amount": "n/a"}, {"amount": 5}], [{"id": "x"}, {"id": 1}], [0], {"amount": "BIGINT"}),
        ([{"id": "x"}, {"id": 1}], [{"shop": "n/a"}, {"shop": 5}], [0], {"shop": "BIGINT"}),
        ([{"amount": 5}, {"id": 1, "amount": "n/a"}], [{"id": 1}, {"id": 2}], [1], {"amount": "BIGINT"}),
        ([{"amount": 5}], [{"id": "x"}], [0], {}),
        ([{}, {"a": 1}, {}, {"b": "x"}], [{"id": 1}, {"id": "x"}, {"id": 2}, {"id": 3}], [1], {"b": "VARCHAR"}),
    ],
    ids=["key", "value", "both", "alone", "between"],
)
def test_a_reject_adds_no_columns(values: list[Any], keys: list[Any], rejects: list[int], new: dict[str, str]) -> None:
    reads = decoder(Format(type="json"), Columns.of({"id": "BIGINT"}), Format(type="json"))
    payloads = Payloads.of([json.dumps(value).encode() for value in values])
    found = reads.decode(payloads, pa.array([json.dumps(key).encode() for key in keys], pa.binary()))
    assert ([index for index, _ in found.rejects], found.new_columns.to_dict()) == (rejects, new)
    kept = [at for at in range(len(values)) if at not in rejects]
    assert (found.kept, found.rows) == (kept, len(kept))
    assert found.table.column("id").to_pylist() == [keys[at].get("id", values[at].get("id")) for at in kept]
