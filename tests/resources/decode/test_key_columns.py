"""Decode keys and values to columns of one table."""

from __future__ import annotations

import pyarrow as pa

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
