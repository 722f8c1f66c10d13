"""Compare types: does one store all values of another exactly, and what must a column gain for that? For every destination."""

from __future__ import annotations

import re
from collections.abc import Iterable

from kpipe.batch.batch import Commit
from kpipe.errors import SchemaConflict
from kpipe.schema.columns import Columns, ListOf, MapOf, Scalar, Struct, Type

__all__ = ["COORDINATES", "Path", "additions", "carried", "carries", "fits", "grown"]

#: Kafka's own coordinates, which no payload column can shadow.
COORDINATES = Columns.of(
    {
        "_kafka_partition": "INTEGER",
        "_kafka_offset": "BIGINT",
        "_kafka_timestamp": "TIMESTAMP WITH TIME ZONE",
        "_kafka_topic": "VARCHAR",
        "_kafka_key": "BLOB",
        "_kafka_headers": "STRUCT(name VARCHAR, value BLOB)[]",
    }
)

#: Path of a nested field: column, then field names; `element` steps into a list.
Path = tuple[str, ...]

_BITS = {
    "TINYINT": 7, "SMALLINT": 15, "INTEGER": 31, "BIGINT": 63, "HUGEINT": 127,
    "UTINYINT": 8, "USMALLINT": 16, "UINTEGER": 32, "UBIGINT": 64,
}  # fmt: skip
_MANTISSA = {"FLOAT": 24, "DOUBLE": 53}  # bits of the integers that an IEEE 754 number represents exactly
# Types that Parquet lacks are written as text or as a decimal, and read back with the same meaning.
_AS_TEXT = {"JSON", "UUID", "HUGEINT"}


def carried(commit: Commit, names: Iterable[str]) -> Columns:
    """Return the columns that the table of a commit must have: its payload columns, and the coordinates in its files.

    Args:
        commit: what is written.
        names: of the columns of its staged files.

    Raises:
        SchemaConflict: a payload column has the name of a coordinate.
    """
    columns = commit.only.columns
    shadows = [name for name, _ in columns if name in COORDINATES]
    if shadows:
        raise SchemaConflict(f"column {shadows[0]!r} of batch {commit.id} has the name of one of Kafka's coordinates")
    held = {name.lower() for name in names}
    return Columns((*columns.items, *((name, kind) for name, kind in COORDINATES if name in held)))


def fits(given: Type, wanted: Type) -> bool:
    """Return True if every value of `given` is a value of `wanted`, exactly."""
    if given == wanted:
        return True
    if isinstance(given, ListOf) and isinstance(wanted, ListOf):
        return fits(given.item, wanted.item)
    if isinstance(given, MapOf) and isinstance(wanted, MapOf):
        return fits(given.item, wanted.item)
    if isinstance(given, Struct) and isinstance(wanted, Struct):
        known = Columns(wanted.fields)
        kinds = [(kind, known.get(name)) for name, kind in given.fields]
        return all(other is not None and fits(kind, other) for kind, other in kinds)
    return isinstance(given, Scalar) and isinstance(wanted, Scalar) and _number_fits(given.name, wanted.name)


def carries(stored: Type, meant: Type) -> bool:
    """Return True if values of `meant` are written to Parquet as `stored`."""
    if isinstance(stored, ListOf) and isinstance(meant, ListOf):
        return carries(stored.item, meant.item)
    if isinstance(stored, MapOf) and isinstance(meant, MapOf):
        return carries(stored.item, meant.item)
    if isinstance(stored, Struct) and isinstance(meant, Struct):
        known = Columns(meant.fields)
        kinds = [(kind, known.get(name)) for name, kind in stored.fields]
        return all(other is not None and carries(kind, other) for kind, other in kinds)
    if isinstance(stored, Scalar) and isinstance(meant, Scalar) and stored.name == "VARCHAR" and meant.name in _AS_TEXT:
        return True
    return fits(stored, meant)


def additions(have: Type, wanted: Type, at: Path) -> list[tuple[Path, Type]]:
    """Return fields that must be added inside `have` so that it can store every value of `wanted`.

    Raises:
        SchemaConflict: no addition is enough; the message names the column.
    """
    if fits(wanted, have):
        return []
    if isinstance(have, ListOf) and isinstance(wanted, ListOf):
        return additions(have.item, wanted.item, (*at, "element"))
    if isinstance(have, Struct) and isinstance(wanted, Struct):
        known = Columns(have.fields)
        result: list[tuple[Path, Type]] = []
        for name, kind in wanted.fields:
            old = known.get(name)
            result += [((*at, name), kind)] if old is None else additions(old, kind, (*at, name))
        return result
    raise SchemaConflict(
        f"column {'.'.join(at)} is {have} in the table, the batch contains {wanted}",
        "change the column's type, or declare that type under `columns`",
    )


def grown(have: Type, at: Path, kind: Type) -> Type:
    """Return a type with one of its `additions`.

    Args:
        have: the type.
        at: path of the new field inside `have`.
        kind: the field's type.
    """
    if isinstance(have, ListOf):
        return ListOf(grown(have.item, at[1:], kind))  # at[0] is `element`
    if not isinstance(have, Struct):
        msg = f"nothing can be added inside of {have}"
        raise TypeError(msg)
    if len(at) == 1:
        return Struct((*have.fields, (at[0], kind)))
    step = at[0].lower()
    return Struct(tuple((n, grown(k, at[1:], kind) if n.lower() == step else k) for n, k in have.fields))


def _number_fits(given: str, wanted: str) -> bool:
    bits, decimal = _BITS.get(given), _decimal(given)
    if bits is not None:
        if wanted in _BITS:
            return bits <= _BITS[wanted] and (given.startswith("U") or not wanted.startswith("U"))
        if wanted in _MANTISSA:
            return bits <= _MANTISSA[wanted]
        digits = _decimal(wanted)
        return digits is not None and 2**bits < 10 ** (digits[0] - digits[1])
    if decimal is not None:
        precision, scale = decimal
        other = _decimal(wanted)
        if other is not None:
            return other[1] >= scale and other[0] - other[1] >= precision - scale
        return scale == 0 and wanted in _BITS and not wanted.startswith("U") and 10**precision <= 2 ** _BITS[wanted]
    return (given, wanted) == ("FLOAT", "DOUBLE")


def _decimal(name: str) -> tuple[int, int] | None:
    match = re.fullmatch(r"DECIMAL\((\d+),(\d+)\)", name)
    return (int(match[1]), int(match[2])) if match else None
