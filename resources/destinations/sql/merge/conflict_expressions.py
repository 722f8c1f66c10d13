"""ON DUPLICATE KEY UPDATE: the writes of a key as one row, in order, by the expressions of the definition, in DuckDB's SQL."""

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

#: What the two rows are called in `Assignments.values`.
OLD, NEW = "kpipe_old", "kpipe_new"
_LONGEST = 60  # of what a message shows of an expression


@dataclass(frozen=True)
class Assignments:
    """What a later write of a key does to the row that is there.

    Attributes:
        values: column to expression over the two rows, as `folded` names them.
        read: columns that the expressions name.
        given: columns that the definition's `update` names, as the table spells them.
    """

    values: Mapping[str, str]
    read: Collection[str]
    given: Sequence[str]


def assignments(update: Mapping[str, str], carried: Sequence[str], key: Sequence[str], known: Columns, table: str) -> Assignments:
    """The columns of `update`, or, where there are none, those that the rows carry; Kafka's coordinates always.

    Args:
        update: column to expression.
        carried: columns that the rows of the batch fill.
        key: columns of the key, which the update may not set.
        known: all columns of the table.
        table: its name, by which an expression may name its columns.

    Raises:
        InvalidPipeline: `update` names a column that the table lacks, or one of the key; an expression names one that is not
            there.
    """
    values = {name: f"{NEW}.{quote(name)}" for name in carried if name in COORDINATES or not update}
    read: set[str] = set()
    given = []
    for column, text in update.items():
        name = next((found for found in known.names() if found.lower() == column.lower()), None)
        if name is None or name in COORDINATES or name.lower() in {part.lower() for part in key}:
            why = "is of the key" if name is not None and name not in COORDINATES else "is no column of the table"
            raise InvalidPipeline(f"into.update sets {column}, which {why}", "leave it out")
        values[name], names = _bound(text, table, known, str(known.get(name)))
        read |= names
        given.append(name)
    return Assignments(values, read, given)


def folded(columns: Columns, values: Mapping[str, str], order: str) -> str:
    """An aggregate over structs `v` of these columns: the first as it is, changed by each later one.

    Args:
        columns: of the structs.
        values: see `Assignments`.
        order: what orders them, as SQL.
    """
    changed = ", ".join(
        f"{quote(name)} := CAST({values[name]} AS {sql_type(kind)})"
        if name in values
        else f"{quote(name)} := {OLD}.{quote(name)}"
        for name, kind in columns
    )
    return f"list_reduce(list(v ORDER BY {order}), lambda {OLD}, {NEW}: struct_pack({changed}))"


def _bound_mysql(text: str, table: str, known: Columns, wanted: str) -> tuple[str, set[str]]:
    """As `_bound`, of an expression of MySQL's."""
    used: set[str] = set()

    def resolve(parts: tuple[str, ...]) -> Value:
        if len(parts) > 2 or (len(parts) == 2 and parts[0].lower() not in ("excluded", table.lower())):
            raise Untranslated(f"{'.'.join(parts)} is no column of {table}", f"name a column, {table}.column, or VALUES(column)")
        name = next((found for found in known.names() if found.lower() == parts[-1].lower()), None)
        if name is None:
            raise Untranslated(f"the table has no column {parts[-1]}", "name a column, or VALUES(column)")
        used.add(name)
        side = NEW if len(parts) == 2 and parts[0].lower() == "excluded" else OLD
        return of_column(f"{side}.{quote(name)}", known.get(name))

    try:
        return to_duckdb(text, resolve, wanted), used
    except Untranslated as error:
        raise InvalidPipeline(f"into.update: {error.what}", error.hint) from error


def _bound(text: str, table: str, known: Columns, wanted: str) -> tuple[str, set[str]]:
    """An expression in which `excluded.x` is the new row's value, and `x`, or `table.x`, the value that is there; its columns."""
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
