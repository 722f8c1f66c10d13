"""Define the values that paths select from JSON records: column, type, and default."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa

from kpipe.definition.formats import Mapped
from kpipe.definition.json_path import parse_path, write_path
from kpipe.errors import InvalidPipeline
from kpipe.schema.columns import VARCHAR, Columns, Scalar, Type
from resources.decode.json.rows import Reject, load, wire_parts
from resources.decode.paths.tree import picked
from resources.duckdb_engine import in_memory
from resources.duckdb_engine.arrow_types import wire_type

__all__ = ["Leaf", "leaf_of", "path_of", "wire_of"]

_NUMBERS = re.compile(r"U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?$|FLOAT$|DOUBLE$|DECIMAL\(")


@dataclass(frozen=True)
class Leaf:
    """A column, and the path of its value.

    Attributes:
        name: of the column, or @variable.
        kind: its type.
        parts: the path.
        optional: whether the value may be absent.
        default: its wire value then.
        counts: whether `true` and `false` become 1 and 0.
    """

    name: str
    kind: Type
    parts: tuple[str | int, ...]
    optional: bool = False
    default: Any = None
    counts: bool = False

    @property
    def missing(self) -> str:
        """Reason of the reject of a record without the value."""
        return f"{self.name}: the record has no {write_path(self.parts)} (DEFAULT NULL makes that NULL)"


def path_of(item: str | Mapped) -> tuple[str | int, ...]:
    """Return the path of a mapping's item."""
    return parse_path(item.path if isinstance(item, Mapped) else item)


def leaf_of(name: str, kind: Type, item: str | Mapped, counts: bool) -> Leaf:
    """Return a column, or @variable, and the path of its value.

    Raises:
        InvalidPipeline: the default is not a value of the type.
    """
    parts = path_of(item)
    counts = counts and isinstance(kind, Scalar) and (kind == VARCHAR or _NUMBERS.match(kind.name) is not None)
    if not isinstance(item, Mapped):
        return Leaf(name, kind, parts, counts=counts)
    if item.default is None:
        return Leaf(name, kind, parts, True, counts=counts)
    try:
        # Parsed and converted like a record's value, so that the results are equal.
        given = load(json.dumps({"v": item.default}, ensure_ascii=False).encode())["v"]
        value, _ = wire_parts(_number(given, kind) if counts else given, kind, name)
        default = pa.array([value], wire_type(kind))
        in_memory.cast(pa.table([default], names=["v"]), Columns((("v", kind),)))
    except (Reject, duckdb.Error, pa.ArrowInvalid) as error:
        raise InvalidPipeline(
            f"format.mapping: DEFAULT {item.default!r} of {name} is not a {kind}", "write a value of the column's type"
        ) from error
    return Leaf(name, kind, parts, True, value, counts)


def _number(value: Any, kind: Type) -> Any:
    """Convert a boolean to the number 1 or 0, or its text; return other values unchanged."""
    if not isinstance(value, bool):
        return value
    return str(int(value)) if kind == VARCHAR else int(value)


def wire_of(value: Any, leaf: Leaf) -> tuple[Any, Any]:
    """Return the leaf's value in a record, and its members that the leaf's type lacks (None: none).

    Raises:
        Reject: the value is absent, and the path has no default.
    """
    there, found = picked(value, leaf.parts)
    if not there:
        if not leaf.optional:
            raise Reject(leaf.missing)
        return leaf.default, None
    return wire_parts(_number(found, leaf.kind) if leaf.counts else found, leaf.kind, leaf.name)
