"""Apply the writes of a batch to a table with a key, in order, as statements over all of them (kpipe/tables/upsert.py).

The writes (merge_staging.py) are joined with the table by the key. What becomes of each follows from the write of the same
key before it and from whether the table holds the key: a window, no loop, and no ON CONFLICT, which ignores
order. Then rows that give way are deleted, those that change are updated, and the others that remain are inserted. No other
writer changes what the join has seen until the transaction ends: the database at hand sees to that.
"""

# ruff: noqa: S608 - names in statements are constants or quoted, values are always parameters
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kpipe.batch.batch import Commit
from kpipe.errors import SchemaConflict
from kpipe.tables.upsert import KeyRule
from kpipe.topics import Part
from kpipe.verification.verify import Holding
from resources.destinations.sql.conflict_update import FIRST, LAST
from resources.destinations.sql.merge_outcomes import counted, effects, gained
from resources.destinations.sql.merge_staging import GONE, PLACE
from resources.destinations.sql.row_balance import TOPIC
from resources.destinations.sql.sql_dialect import quote
from resources.type_compatibility import COORDINATES

__all__ = ["Words", "met", "same_key", "settle"]


@dataclass(frozen=True)
class Words:
    """How a database says it. `t` is the table's row, `w` the write, `f` its fate.

    Attributes:
        writes: the relation of writes.
        fates: the relation of fates.
        write: the column by which a write is known, which its fate names as `wid`.
        more: further columns of the join of writes and table, each with a comma before it.
        nowhere: an empty text, as wide as a topic's name.
        held: condition that the join has found a row; `{key}` is the first column of the key.
        text: a value for people.
        delete: the statement that deletes rows by their fates; ends with a condition. `{table}` is the table, `{same}` that `t`
            and `w` have one key.
        update: as `delete`; `{values}` are assignments, `{more}` is a further join behind those of `t`, `f` and `w`.
        make: the statement that makes a temporary relation `{name}` of `{select}`.
        folded: the relation of folded rows (conflict_update.py), and `rows` that of the rows they make.
        assign: an assignment of the column `{0}` from the relation `{1}`.
        cause: what can have kept a row from being written, and what to do.
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
    rows: str
    assign: str
    cause: str


def met(words: Words, table: str, key: tuple[str, ...], stale: str, topics: bool) -> str:
    """`SELECT` of the writes joined with the table, as `judged` wants them.

    Args:
        words: of the database.
        table: name of the table.
        key: columns of the key.
        stale: condition that the row is of a later record than the write (`superseded`).
        topics: whether the table's rows name their topic.
    """
    same = same_key(key)
    keys = ", ".join(f"w.{quote(name)} AS k{at}" for at, name in enumerate(key))
    tn, oldtn = (f"coalesce({side}.{TOPIC}, '')" if topics else words.nowhere for side in "wt")
    return (
        f"SELECT w.{words.write} AS wid, w.{GONE} AS gone, w.{PLACE} AS place, {tn} AS tn, {oldtn} AS oldtn,"
        f" w._kafka_partition AS p, w._kafka_offset AS o, {keys}, {words.held.format(key=quote(key[0]))} AS held{words.more},"
        f" t._kafka_partition AS oldp, t._kafka_offset AS oldo, {stale} AS stale"
        f" FROM {words.writes} AS w LEFT JOIN {quote(table)} AS t ON {same}"
    )


def same_key(key: Sequence[str]) -> str:
    """That the write `w` and the table's row `t` have one key."""
    return " AND ".join(f"w.{quote(name)} = t.{quote(name)}" for name in key)


def settle(
    session: Any,
    words: Words,
    table: str,
    commit: Commit,
    rule: KeyRule,
    key: tuple[str, ...],
    carried: Sequence[str],
    topics: bool,
    refold: Callable[[], Sequence[str]] | None = None,
) -> tuple[Commit, dict[Part, Holding]]:
    """Do to the table what the fates say.

    Args:
        session: inside a transaction, with the relations of writes and of fates.
        words: of the database.
        table: name of the table.
        commit: what is written.
        rule: of the key.
        key: columns of the key.
        carried: columns that rows fill, as the table spells them.
        topics: whether the table's rows name their topic.
        refold: where the rule has expressions: folds the writes of each key (conflict_update.py), returns the columns set.

    Returns:
        The commit with what became of its rows, and what the table has gained by partition.

    Raises:
        StagingFailed: a write lies outside of the ranges of the batch.
        SchemaConflict: a row cannot be told by its key; the key is there and the rule says that this is an error; or the
            table takes other rows than it is given.
    """
    _refuse(session, words, table, key, rule)
    counts = counted(session, words.fates, commit, rule, topics)
    gone, stays = effects(rule)
    delta = gained(session, words.fates, rule)
    # A row that is changed keeps the columns that the new rows do not have, unless it was deleted in between.
    changed = "f.held AND NOT f.cut" if rule.on_conflict == "update" else "false"
    name, same = quote(table), same_key(key)
    _apply(session, words, table, words.delete.format(table=name, same=same), f"{gone} AND NOT ({changed})")
    if not carried:  # there are deletes only
        return commit.settled(counts), delta
    given = () if refold is None else tuple(refold())
    made = "" if refold is None else f" JOIN {words.rows} AS r ON r.{LAST} = f.wid"
    if refold is not None:
        _make_rows(session, words, carried, given)
    side = {column: _side(column, given, made) for column in dict.fromkeys((*carried, *given))}
    if rule.on_conflict == "update":
        sets = [column for column in side if column in given or not made or column in COORDINATES]
        values = ", ".join(words.assign.format(quote(column), side[column]) for column in sets)
        update = words.update.format(table=name, same=same, values=values, more=made)
        _apply(session, words, table, update, f"{stays} AND {changed}")
    columns, values = ", ".join(map(quote, side)), ", ".join(f"{side[column]}.{quote(column)}" for column in side)
    rows = f"SELECT {values} FROM {words.writes} AS w JOIN {words.fates} AS f ON f.wid = w.{words.write}{made} WHERE true"
    _apply(session, words, table, f"INSERT INTO {name} ({columns}) {rows}", f"{stays} AND NOT ({changed})")
    return commit.settled(counts), delta


def _make_rows(session: Any, words: Words, carried: Sequence[str], given: Sequence[str]) -> None:
    """Of each key the row that a table without it gets, but for coordinates, which are those of its last write."""
    first = [column for column in carried if column not in given and column not in COORDINATES]
    columns = [f"k.{LAST}", *(f"w.{quote(column)}" for column in first), *(f"k.{quote(column)}" for column in given)]
    select = f"SELECT {', '.join(columns)} FROM {words.folded} AS k JOIN {words.writes} AS w ON w.{words.write} = k.{FIRST}"
    session.execute(words.make.format(name=words.rows, select=select))


def _side(column: str, given: Sequence[str], made: str) -> str:
    """The relation that a column comes from: `r`, rows made of folded writes, or `w`, a write."""
    return "r" if made and (column in given or column not in COORDINATES) else "w"


def _refuse(session: Any, words: Words, table: str, key: tuple[str, ...], rule: KeyRule) -> None:
    found = session.execute(f"SELECT (SELECT count(*) FROM {words.fates}) > (SELECT count(*) FROM {words.writes})").fetchone()
    if found[0]:
        raise SchemaConflict(
            f"table {table} holds a key ({', '.join(key)}) more than once",
            "remove all but one row of each key, or name another key",
        )
    if rule.on_conflict != "error" or rule.duplicates != "fail":
        return
    values = ", ".join(words.text.format(f"w.{quote(name)}") for name in key)
    row = session.execute(
        f"SELECT f.p, f.o, {values} FROM {words.fates} AS f JOIN {words.writes} AS w ON w.{words.write} = f.wid"
        " WHERE f.fate = 'duplicate' ORDER BY f.tn, f.p, f.o, f.place LIMIT 1"
    ).fetchone()
    if row is not None:
        raise SchemaConflict(
            f"partition {row[0]} offset {row[1]}: a row of the key {', '.join(map(str, row[2:]))} is in table {table} already",
            "set into.on_conflict (replace, ignore, update), or errors.duplicate_key: dead_letter or skip",
        )


def _apply(session: Any, words: Words, table: str, statement: str, which: str) -> None:
    """One statement over the fates of which a condition is true: each must find, or make, one row."""
    count = session.execute(f"{statement} AND {which}").rowcount
    expected = session.execute(f"SELECT count(*) FROM {words.fates} AS f WHERE {which}").fetchone()[0]
    if count != expected:
        raise SchemaConflict(
            f"table {table}: {statement.split()[0]} of {expected} rows has changed {count}; nothing was written", words.cause
        )
