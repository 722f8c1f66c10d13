"""Fingerprints of rows: equal for equal rows only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from kpipe.maintenance.facts import Fingerprint
from resources.destinations.lakehouse.maintenance.positions import Deleted, DeletedPositions

LISTS, DEEP = pa.list_(pa.int64()), pa.list_(pa.list_(pa.int64()))
STRUCT = pa.struct([("a b", pa.int64()), ("it's", pa.struct([("c", pa.float64())]))])
MAP, FLOAT = pa.map_(pa.string(), LISTS), pa.float32()
#: Values of one type, no two of which are the same.
DIFFERENT: dict[str, tuple[pa.DataType, list[Any]]] = {
    "list": (LISTS, [None, [], [None], [None, None], [1], [1, 1], [2, 2], [1, 2], [2, 1], [1, None]]),
    "list of lists": (
        DEEP,
        [None, [], [None], [[]], [[None]], [[1, 2]], [[1], [2]], [[1, 2], []], [[], [1, 2]], [[1], None, [2]]],
    ),
    "struct": (
        STRUCT,
        [None, {}, {"a b": 0}, {"it's": {}}, {"it's": {"c": 0.0}}, {"it's": {"c": -0.0}}, {"a b": 0, "it's": {"c": 0.0}}],
    ),
    "list of structs": (
        pa.list_(STRUCT),
        [None, [], [None], [{}], [{"it's": {}}], [{"a b": 1}], [{}, {"a b": 1}], [{"a b": 1}, {}]],
    ),
    "map": (
        MAP,
        [None, [], [("a", None)], [("a", [])], [("a", [None])], [("", [])], [("a", [1]), ("b", [])], [("b", []), ("a", [1])]],
    ),
    "float": (FLOAT, [None, 0.0, -0.0, float("nan"), float("inf"), 1e-45]),
    "double": (pa.float64(), [None, 0.0, -0.0, float("nan"), float("-inf"), 5e-324]),
    "text": (pa.string(), [None, "", "\0", "a", "a\0", "NULL", "é", "e\u0301", "x" * 13, "x" * 14]),
    "bytes": (pa.binary(), [None, b"", b"\0", b"\0\0", b"NULL"]),
    "decimal": (pa.decimal128(38, 2), [None, 0, 1, -1]),
    "local time": (pa.timestamp("us"), [None, 0, 1, -(2**62)]),
    "instant": (pa.timestamp("us", "UTC"), [None, 0, 1, 2**62]),
    "boolean": (pa.bool_(), [None, True, False]),
}


@pytest.fixture(scope="module")
def hashes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    positions = DeletedPositions(tmp_path_factory.mktemp("hashes"))
    deleted: Deleted = positions.resolved([], [])
    yield lambda table: deleted.fingerprint("x", iter([table]))
    positions.close()


@pytest.mark.parametrize("name", list(DIFFERENT))
def test_different_values_have_different_hashes(hashes: Any, name: str) -> None:
    kind, values = DIFFERENT[name]
    found: dict[Fingerprint, Any] = {}
    for value in values:
        table = pa.table({"u": [1], "v": pa.array([value], kind), "w": [None]})
        made = hashes(table)
        assert made.rows == 1 and made not in found, (value, found.get(made))
        found[made] = value


def test_hashes_do_not_depend_on_order_nor_on_blocks(hashes: Any) -> None:
    """Readers return slices of row groups; DuckDB refuses those of STRUCTs."""
    kind, values = DIFFERENT["struct"]
    table = pa.table({"v": pa.array(values, kind), "_kafka_partition": range(7), "_kafka_offset": range(7)})
    whole = hashes(table)
    assert whole == hashes(table.take(list(reversed(range(7))))) == hashes(table.slice(0, 3)) + hashes(table.slice(3))
    assert whole != hashes(table.set_column(1, "_kafka_partition", pa.array([*range(6), 9])))
