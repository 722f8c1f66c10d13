"""Compile ON DUPLICATE KEY UPDATE: DuckDB's SQL that folds the writes of a key, in order, into one row."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from kpipe.errors import InvalidPipeline
from kpipe.expressions import duckdb_dialect
from kpipe.expressions.errors import Untranslated
from kpipe.expressions.languages import is_mysql, to_duckdb
from kpipe.expressions.mysql.columns import of_column
from kpipe.expressions.mysql.values import Value
from kpipe.schema.columns import Columns
from resources.duckdb_engine.sandbox import quote
from resources.duckdb_engine.sql_types import sql_type
from resources.type_compatibility import COORDINATES

__all__ = ["NEW", "OLD", "Assignments", "assignments", "folded"]

#: Names of the two rows in `Assignments.values`.
OLD, NEW = "kpipe_old", "kpipe_new"
_LONGEST = 60  # characters of an expression in a message


@dataclass(frozen=True)
class Assignments:
    """The changes that a later write of a key makes to the existing row.

    Attributes:
        values: column to expression over the two rows, `OLD` and `NEW`.
        read: columns in the expressions.
        given: columns that the definition's `update` sets, as the table spells them.
    """

    values: Mapping[str, str]
    read: Collection[str]
    given: Sequence[str]


def assignments(update: Mapping[str, str], carried: Sequence[str], key: Sequence[str], known: Columns, table: str) -> Assignments:
    """Return the assignments of `update`; if it is empty, of all columns of the rows. Kafka's coordinates are always set.

    Args:
        update: column to expression.
        carried: columns that the rows of the batch fill.
        key: key columns, which `update` must not set.
        known: all columns of the table.
        table: its name, which may qualify columns in an expression.

    Raises:
        InvalidPipeline: `update` sets a key column or a column that does not exist; or an expression contains a column that does
            not exist.
    """
    values = {name: f"{NEW}.{quote(name)}" for name in carried if name in COORDINATES or not update}
    read: set[str] = set()
    given = []
    for column, text in update.items():
        name = next((found for found in known.names() if found.lower() == column.lower()), None)
        if name is None or name in COORDINATES or name.lower() in {part.lower() for part in key}:
            why = "is a key column" if name is not None and name not in COORDINATES else "is not a column of the table"
            raise InvalidPipeline(f"into.update sets {column}, which {why}", "leave it out")
        values[name], names = _bound(text, table, known, str(known.get(name)))
        read |= names
        given.append(name)
    return Assignments(values, read, given)


def folded(columns: Columns, values: Mapping[str, str], order: str) -> str:
    """Return an aggregate over structs `v` of these columns: it starts with the first struct, and each later one changes it.

    Args:
        columns: of the structs.
        values: see `Assignments`.
        order: of the structs, as SQL after ORDER BY.
    """
    changed = ", ".join(
        f"{quote(name)} := CAST({values[name]} AS {sql_type(kind)})"
        if name in values
        else f"{quote(name)} := {OLD}.{quote(name)}"
        for name, kind in columns
    )
    return f"list_reduce(list(v ORDER BY {order}), lambda {OLD}, {NEW}: struct_pack({changed}))"


def _bound_mysql(text: str, table: str, known: Columns, wanted: str) -> tuple[str, set[str]]:
    """Do the same as `_bound` for an expression in MySQL's SQL."""
    used: set[str] = set()

    def resolve(parts: tuple[str, ...]) -> Value:
        if len(parts) > 2 or (len(parts) == 2 and parts[0].lower() not in ("excluded", table.lower())):
            raise Untranslated(
                f"{'.'.join(parts)} is not a column of {table}", f"name a column, {table}.column, or VALUES(column)"
            )
        name = next((found for found in known.names() if found.lower() == parts[-1].lower()), None)
        if name is None:
            raise Untranslated(f"the table has no column {parts[-1]}", "name a column, or VALUES(column)")
        used.add(name)
        side = NEW if len(parts) == 2 and parts[0].lower() == "excluded" else OLD
        return of_column(f"{side}.{quote(name)}", known.get(name))

    try:
        return to_duckdb(text, resolve, wanted, coerced=False), used
    except Untranslated as error:
        raise InvalidPipeline(f"into.update: {error.what}", error.hint) from error


def _bound(text: str, table: str, known: Columns, wanted: str) -> tuple[str, set[str]]:
    """Return an expression with bound columns, and the columns' names.

    `excluded.x` is the value of the new row, `x` or `table.x` the existing value.
    """
    import sqlglot
    from sqlglot import exp

    if is_mysql(text):
        return _bound_mysql(text, table, known, wanted)
    try:
        tree = sqlglot.parse_one(f"SELECT ({duckdb_dialect.to_duckdb(text)}\n)", read="duckdb").expressions[0].this
    except Untranslated as error:
        raise InvalidPipeline(f"into.update: {error.what}", error.hint) from error
    own = {str(name.name) for item in tree.find_all(exp.Lambda) for name in item.expressions}
    used: set[str] = set()

    def bind(node: exp.Expression) -> exp.Expression:
        if not isinstance(node, exp.Column) or node.name in own:
            return node
        names = [part.name for part in node.parts]
        side = OLD
        if len(names) > 1 and names[0].lower() in ("excluded", table.lower()):
            side = NEW if names[0].lower() == "excluded" else OLD
            names = names[1:]
        if names[0] not in known:
            shown, name = (part if len(part) <= _LONGEST else f"{part[:_LONGEST]}..." for part in (text, names[0]))
            raise InvalidPipeline(f"into.update: {shown}: the table has no column {name}", "name a column, or excluded.column")
        used.add(names[0])
        found: exp.Expression = exp.column(names[0], table=side, quoted=True)
        for name in names[1:]:  # a field of a STRUCT
            found = exp.Dot(this=found, expression=exp.to_identifier(name, quoted=True))
        return found

    return str(tree.transform(bind).sql(dialect="duckdb", comments=False)), used
