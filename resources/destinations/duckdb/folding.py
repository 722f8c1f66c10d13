"""ON DUPLICATE KEY UPDATE: the writes of each key folded into one row, in order, by the expressions of the definition."""

# ruff: noqa: S608 - names in statements are constants or quoted; expressions are the definition's own, parsed before
from __future__ import annotations

from collections.abc import Mapping, Sequence

from kpipe.errors import InvalidPipeline
from kpipe.schema import Columns
from resources.destinations.duckdb.connection import Connection, quote
from resources.destinations.duckdb.target import sql_type
from resources.destinations.fitting import COORDINATES

__all__ = ["fold"]

_OLD, _NEW = "kpipe_old", "kpipe_new"


def fold(
    connection: Connection, table: str, key: Sequence[str], update: Mapping[str, str], carried: Sequence[str], known: Columns
) -> None:
    """Make `temp.kpipe_kept`: the row that stays of each key, with all columns of the table.

    The first row of a key is inserted as it is. Each later one changes the row that is there: the columns of `update`, or,
    where there are none, the columns that the rows carry. Kafka's coordinates are always those of the last write.

    Args:
        connection: inside a transaction, with the relations of upsert.py.
        table: name of the table, by which an expression may name its columns.
        key: columns of the key; the update may not set them.
        update: column to expression.
        carried: columns that the rows of the batch fill.
        known: all columns of the table.

    Raises:
        InvalidPipeline: `update` names a column that the table lacks, or one of the key; an expression names one that is not
            there.
    """
    set_to = {name: f"{_NEW}.{quote(name)}" for name in carried if name in COORDINATES or not update}
    for column, text in update.items():
        name = next((found for found in known.names() if found.lower() == column.lower()), None)
        if name is None or name in COORDINATES or name.lower() in {part.lower() for part in key}:
            why = "is of the key" if name is not None and name not in COORDINATES else "is no column of the table"
            raise InvalidPipeline(f"into.update sets {column}, which {why}", "leave it out")
        set_to[name] = _bound(text, table, known)
    whole = ", ".join(f"{quote(name)} := {{0}}.{quote(name)}" for name in known.names())
    changed = ", ".join(
        f"{quote(name)} := CAST({set_to[name]} AS {sql_type(kind)})"
        if name in set_to
        else f"{quote(name)} := {_OLD}.{quote(name)}"
        for name, kind in known
    )
    columns = ", ".join(f"v.{quote(name)} AS {quote(name)}" for name in known.names())
    last = "f.behind = 0 AND NOT f.gone AND NOT f.stale"
    connection.execute(
        "CREATE OR REPLACE TEMP TABLE kpipe_kept AS WITH parts AS ("
        f" SELECT f.gid, '' AS tn, -1 AS p, -1::BIGINT AS o, -1::BIGINT AS place, struct_pack({whole.format('t')}) AS v"
        f"   FROM temp.kpipe_fates AS f JOIN {quote('main', table)} AS t ON t.rowid = f.rid"
        "   WHERE f.last AND NOT f.stale AND NOT f.cut"
        f" UNION ALL SELECT f.gid, f.tn, f.p, f.o, f.place, struct_pack({whole.format('w')}) AS v"
        f"   FROM temp.kpipe_fates AS f JOIN temp.kpipe_writes AS w ON w.rowid = f.wid WHERE {last}),"
        f" folded AS (SELECT list_reduce(list(v ORDER BY tn, p, o, place), lambda {_OLD}, {_NEW}: struct_pack({changed})) AS v"
        "   FROM parts GROUP BY gid)"
        f" SELECT {columns} FROM folded"
    )


def _bound(text: str, table: str, known: Columns) -> str:
    """An expression in which `excluded.x` is the new row's value, and `x`, or `table.x`, the value that is there."""
    import sqlglot
    from sqlglot import exp

    from kpipe.sql.expressions import Untranslated, to_duckdb

    try:
        tree = sqlglot.parse_one(f"SELECT ({to_duckdb(text)}\n)", read="duckdb").expressions[0].this
    except Untranslated as error:
        raise InvalidPipeline(f"into.update: {error.what}", error.hint) from error
    own = {str(name.name) for item in tree.find_all(exp.Lambda) for name in item.expressions}

    def bind(node: exp.Expression) -> exp.Expression:
        if not isinstance(node, exp.Column) or node.name in own:
            return node
        names = [part.name for part in node.parts]
        side = _OLD
        if len(names) > 1 and names[0].lower() in ("excluded", table.lower()):
            side = _NEW if names[0].lower() == "excluded" else _OLD
            names = names[1:]
        if names[0] not in known:
            raise InvalidPipeline(f"into.update: {text}: the table has no column {names[0]}", "name a column, or excluded.column")
        found: exp.Expression = exp.column(names[0], table=side, quoted=True)
        for name in names[1:]:  # a field of a STRUCT
            found = exp.Dot(this=found, expression=exp.to_identifier(name, quoted=True))
        return found

    return str(tree.transform(bind).sql(dialect="duckdb", comments=False))
