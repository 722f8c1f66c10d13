"""Apply the writes of a batch to a table with a key, in order, as statements over all of them (kpipe/tables/upsert.py).

The writes (merge_staging.py) are joined with the table by the key. The fate of a write depends on the previous write of the same
key, and on whether the table contains the key. This is a window function: no loop, and no ON CONFLICT, which ignores the order.
Then rows are deleted, updated and inserted. Each database ensures that no other writer changes the joined rows until the
transaction ends.

A row that is replaced is deleted and inserted: a single UPDATE could not exchange values of a UNIQUE column. If other tables
may refer to rows of the table, a delete could delete theirs: there it is updated, unless its key was deleted in between.
"""

# ruff: noqa: S608 - names in statements are constants or quoted, values are always parameters
from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kpipe.batch.batch import Commit
from kpipe.errors import SchemaConflict
from kpipe.tables.changes import mark
from kpipe.tables.upsert import KeyRule
from kpipe.topics import Part
from kpipe.verification.verify import Holding
from resources.destinations.sql.column_matching import NULL_HINT
from resources.destinations.sql.ledger.row_balance import TOPIC
from resources.destinations.sql.merge.conflict_update import FIRST, LAST, Folding, fold, fold_kept
from resources.destinations.sql.merge.kept_values import marked, refuse_unknown
from resources.destinations.sql.merge.keyed_batch import KeyedBatch, same_key
from resources.destinations.sql.merge.merge_outcomes import counted, effects, gained, superseded
from resources.destinations.sql.merge.merge_staging import GONE, KEPT, PLACE
from resources.destinations.sql.sql_dialect import quote
from resources.type_compatibility import COORDINATES

__all__ = ["MergeSql", "met", "settle"]


@dataclass(frozen=True)
class MergeSql:
    """The SQL of one database for a merge. `t` is the table's row, `w` the write, `f` its fate.

    Attributes:
        writes: the relation of writes.
        fates: the relation of fates.
        write: the column that identifies a write, which is `wid` in its fate.
        more: further columns of the join of writes and table, each with a comma before it.
        nowhere: an empty text, as wide as a topic's name.
        held: condition that the join has found a row; `{key}` is the first key column.
        text: a value as text, for messages.
        delete: the statement that deletes rows by their fates; ends with a condition. `{table}` is the table, `{same}` the
            condition that `t` and `w` have one key.
        update: as `delete`; `{values}` are assignments, `{more}` is a further join after those of `t`, `f` and `w`.
        make: the statement that creates a temporary relation `{name}` of `{select}`.
        folded: the relation of folded rows (conflict_update.py).
        touched: the relation of the groups with a write that keeps a value.
        rows: the relation of the rows to insert that are made from folded rows.
        folding: how the expressions of the rule fold the writes of a key.
        assign: an assignment of the value `{1}` to the column `{0}`.
        cause: possible causes of a row that was not written, and what to do.
    """

    writes: str
    fates: str
    write: str
    more: str
    nowhere: str
    held: str
    text: str
    delete: str
    update: str
    make: str
    folded: str
    touched: str
    rows: str
    folding: Folding
    assign: str
    cause: str


def met(sql: MergeSql, batch: KeyedBatch) -> str:
    """Return the `SELECT` of the writes joined with the table, as `judged` reads them."""
    topics = batch.has_topics
    stale = superseded(batch.commit, batch.ledger, batch.rule, topics)
    keys = ", ".join(f"w.{quote(name)} AS k{at}" for at, name in enumerate(batch.key))
    tn, oldtn = (f"coalesce({side}.{TOPIC}, '')" if topics else sql.nowhere for side in "wt")
    return (
        f"SELECT w.{sql.write} AS wid, w.{GONE} AS is_delete, w.{PLACE} AS place, {tn} AS tn, {oldtn} AS oldtn,"
        f" w._kafka_partition AS p, w._kafka_offset AS o, {keys}, {sql.held.format(key=quote(batch.key[0]))} AS held{sql.more},"
        f" t._kafka_partition AS oldp, t._kafka_offset AS oldo, {stale} AS stale"
        f" FROM {sql.writes} AS w LEFT JOIN {quote(batch.table)} AS t ON {same_key(batch.key)}"
    )


def settle(
    session: Any,
    reader: Any,
    sql: MergeSql,
    batch: KeyedBatch,
    carried: Sequence[str],
    kept: Sequence[str] | None,
    defaults: Mapping[str, str] | None,
    not_null: Collection[str] = (),
    numbered: Collection[str] = (),
) -> tuple[Commit, dict[Part, Holding]]:
    """Delete, update and insert the rows of the table by the fates.

    Args:
        session: inside a transaction, with the relations of writes and of fates.
        reader: a connection of DuckDB, which computes the expressions of the rule.
        sql: of the database.
        batch: the writes.
        carried: columns that rows fill, as the table spells them.
        kept: columns that a write keeps (kept_values.py), if a write left out a value; with columns, each fate has a group and
            a number in it.
        defaults: for `replace`, if other tables may refer to rows of the table: what a replaced row gets in columns that rows do
            not fill, as SQL, by column. It keeps its value in the others, which the database numbers. Else None.
        not_null: columns in which the database would store another value than NULL without an error.
        numbered: columns in which the database stores the next number for NULL. An updated row keeps its number there.

    Returns:
        The commit with the outcome of its writes, and the change of the table's rows by partition.

    Raises:
        StagingFailed: a write is outside of the ranges of the batch.
        SchemaConflict: a key is duplicate in the table; a key exists and the rule makes that an error; a row has NULL in a
            column of `not_null`; or the database wrote another number of rows than expected.
    """
    table, rule, same = batch.table, batch.rule, same_key(batch.key)
    _refuse(session, sql, table, batch.key, rule)
    if kept is not None:
        refuse_unknown(session, sql.fates, sql.writes, sql.write, table)
    if kept:  # before the rows with these values are deleted
        groups = (
            f"SELECT DISTINCT f.gid FROM {sql.folding.writes} WHERE w.{KEPT} IS NOT NULL AND f.behind = 0 AND NOT f.is_delete"
        )
        session.execute(sql.make.format(name=sql.touched, select=groups))
        fold_kept(session, reader, sql.folding, batch, kept, sql.touched)
    done = batch.commit.settled([counted(session, sql.fates, batch.commit, rule, batch.has_topics)])
    gone, stays = effects(rule)
    delta = gained(session, sql.fates, rule)
    updates = rule.on_conflict == "update" or defaults is not None
    changed = "f.held AND NOT f.cut" if updates else "false"
    name = quote(table)
    _apply(session, sql, table, sql.delete.format(table=name, same=same), f"{gone} AND NOT ({changed})")
    if not carried:  # all writes are deletes
        return done, delta
    given: tuple[str, ...] = ()
    made = f" LEFT JOIN {sql.folded} AS r ON r.{LAST} = f.wid" if kept else ""
    if rule.update:
        given = tuple(fold(session, reader, sql.folding, batch, carried))
        made = f" JOIN {sql.rows} AS r ON r.{LAST} = f.wid"
        _make_rows(session, sql, carried, given)
    source = f"{sql.writes} AS w JOIN {sql.fates} AS f ON f.wid = w.{sql.write}{made}"
    side = {column: _side(column, given, made if rule.update else "") for column in dict.fromkeys((*carried, *given))}
    values = {column: _value(column, side[column], kept or ()) for column in side}
    checked = {column: value for column, value in values.items() if column in not_null}
    if updates:
        # An updated row keeps the columns that the new rows do not have; a replaced one gets their defaults.
        sets = {column: values[column] for column in side if column in given or not made or column in COORDINATES}
        if defaults is not None:
            sets = {**defaults, **values}
        _refuse_nulls(
            session, table, source, {column: checked[column] for column in checked if column in sets}, f"{stays} AND {changed}"
        )
        sets |= {column: f"coalesce({sets[column]}, t.{quote(column)})" for column in numbered if column in sets}
        assigned = ", ".join(sql.assign.format(quote(column), value) for column, value in sets.items())
        update = sql.update.format(table=name, same=same, values=assigned, more=made)
        _apply(session, sql, table, update, f"{stays} AND {changed}")
    columns = ", ".join(map(quote, side))
    _refuse_nulls(session, table, source, checked, f"{stays} AND NOT ({changed})")
    rows = f"SELECT {', '.join(values.values())} FROM {source} WHERE true"
    _apply(session, sql, table, f"INSERT INTO {name} ({columns}) {rows}", f"{stays} AND NOT ({changed})")
    return done, delta


def _make_rows(session: Any, sql: MergeSql, carried: Sequence[str], given: Sequence[str]) -> None:
    """Create the row to insert for each new key. Its coordinates are not included: they are those of the last write."""
    first = [column for column in carried if column not in given and column not in COORDINATES]
    columns = [f"k.{LAST}", *(f"w.{quote(column)}" for column in first), *(f"k.{quote(column)}" for column in given)]
    select = f"SELECT {', '.join(columns)} FROM {sql.folded} AS k JOIN {sql.writes} AS w ON w.{sql.write} = k.{FIRST}"
    session.execute(sql.make.format(name=sql.rows, select=select))


def _side(column: str, given: Sequence[str], made: str) -> str:
    """Return the relation that contains a column: `r`, rows made of folded writes, or `w`, a write."""
    return "r" if made and (column in given or column not in COORDINATES) else "w"


def _value(column: str, side: str, kept: Sequence[str]) -> str:
    """Return the value of a column in a new row."""
    value = f"{side}.{quote(column)}"
    test = marked(f"w.{KEPT}").format(mark(column))
    return f"CASE WHEN {test} THEN r.{quote(column)} ELSE {value} END" if column in kept else value


def _refuse(session: Any, sql: MergeSql, table: str, key: tuple[str, ...], rule: KeyRule) -> None:
    found = session.execute(f"SELECT (SELECT count(*) FROM {sql.fates}) > (SELECT count(*) FROM {sql.writes})").fetchone()
    if found[0]:
        raise SchemaConflict(
            f"table {table} contains a key ({', '.join(key)}) more than once",
            "remove all but one row of each key, or name another key",
        )
    if rule.on_conflict != "error" or rule.duplicates != "fail":
        return
    values = ", ".join(sql.text.format(f"w.{quote(name)}") for name in key)
    row = session.execute(
        f"SELECT f.p, f.o, {values} FROM {sql.fates} AS f JOIN {sql.writes} AS w ON w.{sql.write} = f.wid"
        " WHERE f.fate = 'duplicate' ORDER BY f.tn, f.p, f.o, f.place LIMIT 1"
    ).fetchone()
    if row is not None:
        raise SchemaConflict(
            f"partition {row[0]} offset {row[1]}: duplicate key {', '.join(map(str, row[2:]))}: table {table} has it already",
            "set into.on_conflict (replace, ignore, update), or errors.duplicate_key: dead_letter or skip",
        )


def _refuse_nulls(session: Any, table: str, source: str, values: Mapping[str, str], which: str) -> None:
    """Refuse NULL as the new value of these columns, for the fates that match a condition."""
    for column, value in values.items():
        row = session.execute(
            f"SELECT f.p, f.o FROM {source} WHERE {which} AND ({value}) IS NULL ORDER BY f.tn, f.p, f.o, f.place LIMIT 1"
        ).fetchone()
        if row is not None:
            raise SchemaConflict(
                f"partition {row[0]} offset {row[1]}: table {table}, column {column!r}: NULL in a NOT NULL column; nothing was"
                " written",
                NULL_HINT,
            )


def _apply(session: Any, sql: MergeSql, table: str, statement: str, which: str) -> None:
    """Run a statement over the fates that match a condition: each must find, or insert, one row."""
    count = session.execute(f"{statement} AND {which}").rowcount
    expected = session.execute(f"SELECT count(*) FROM {sql.fates} AS f WHERE {which}").fetchone()[0]
    if count != expected:
        raise SchemaConflict(
            f"table {table}: {statement.split()[0]}: expected {expected} rows, found {count}; nothing was written", sql.cause
        )
