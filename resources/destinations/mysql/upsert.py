"""Merge rows with a key in MariaDB and MySQL. Rows have no row id, only their key.

ON DUPLICATE KEY UPDATE and REPLACE are not used: they need a unique index, and count a row as 0, 1 or 2. The join of the writes
with the table locks the rows that it finds, and the gaps where it finds none. So no other session changes its result.
"""

# ruff: noqa: S608 - names in statements are constants or quoted, values are always parameters
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pymysql

from kpipe.batch.batch import Commit
from kpipe.errors import SchemaConflict
from kpipe.schema.columns import Columns, Scalar, Type
from kpipe.topics import Part
from kpipe.verification.verify import Holding
from resources.destinations.mysql import foreign_keys, insert_literals, target_table
from resources.destinations.mysql.merge_staging import EPOCHS, FATES, FOLDED, ID, MARKS, MET, ROWS, TOUCHED, WRITES
from resources.destinations.mysql.not_null_times import not_null_times
from resources.destinations.mysql.session import Session
from resources.destinations.sql.merge.conflict_update import FIRST, LAST, Folding
from resources.destinations.sql.merge.emptied_tables import expand
from resources.destinations.sql.merge.kept_values import kept_columns
from resources.destinations.sql.merge.keyed_batch import KeyedBatch
from resources.destinations.sql.merge.merge_outcomes import judged
from resources.destinations.sql.merge.upsert import MergeSql, met, settle
from resources.destinations.sql.sql_dialect import quote

__all__ = ["merge"]

_SORTED, _LONGEST = 1024, 8_388_608  # max_sort_length: its default, and its maximum
_DUPLICATE = 1062
_GRANT = "GRANT PROCESS ON *.* TO the account, which then sees all foreign keys"
_WEIGHT = 4  # maximum of bytes by which a collation compares one byte of a text


def merge(session: Session, reader: Any, batch: KeyedBatch, carried: Sequence[str]) -> tuple[Commit, dict[Part, Holding]]:
    """Merge the writes of the batch into the table. `duplicates` selects the rows that became dead letters.

    Args:
        session: inside a transaction of REPEATABLE READ, with `kpipe_writes`.
        reader: see `settle`, also for the result and the other errors.
        batch: see `settle`.
        carried: see `settle`.

    Raises:
        SchemaConflict: a key is longer than MySQL can compare; or a row cannot be replaced, and the account cannot see whether
            other tables refer to it.
    """
    _sort_all(session, batch.key)
    expand(session, WRITES, batch, _SQL.make, EPOCHS, MARKS)
    kept = kept_columns(session, WRITES, batch.known)
    found = met(_SQL, batch)
    session.execute(f"CREATE TEMPORARY TABLE {MET} ENGINE=InnoDB AS {found} LIMIT 0")
    session.execute(f"INSERT INTO {MET} {found} FOR UPDATE")  # MySQL rejects a locking read in CREATE TABLE (error 1746)
    session.execute(f"CREATE TEMPORARY TABLE {FATES} ENGINE=InnoDB AS {judged(MET, len(batch.key), batch.rule, bool(kept))}")
    defaults, seen = _defaults(session, batch, carried)
    times, numbered = not_null_times(session, batch.table), target_table.numbered(session, batch.table)
    try:
        return settle(session, reader, _SQL, batch, carried, kept, defaults, times, numbered)
    except pymysql.err.IntegrityError as error:
        if seen or error.args[0] != _DUPLICATE:
            raise
        why = f"rejected by the table: {error.args[1]}"
        raise SchemaConflict(
            f"table {batch.table}: {why}; nothing was written",
            f"change the records or the UNIQUE index. If values move between rows: {_GRANT}",
            why,
        ) from error


def _defaults(session: Session, batch: KeyedBatch, carried: Sequence[str]) -> tuple[Mapping[str, str] | None, bool]:
    """Return the defaults for `settle`, and whether foreign keys were seen, or do not matter.

    Raises:
        SchemaConflict: an UPDATE cannot apply a default, and other tables may refer to the rows.
    """
    if batch.rule.on_conflict != "replace" or not carried:
        return None, True
    found = target_table.defaults(session, batch.table)
    unknown = [name for name in batch.known.names() if found.get(name, "") is None and name not in carried]
    refer: bool | None = True
    if unknown or foreign_keys.has_other_unique(session, batch.table, batch.key):
        refer = foreign_keys.refer(session, batch.table)
    if refer is False:
        return None, True
    if unknown:
        raise SchemaConflict(
            f"table {batch.table}, column {unknown[0]!r}: records do not fill it, and its default is missing, or an expression"
            " that an UPDATE cannot apply: rows that other tables may refer to cannot be replaced; nothing was written",
            "give the column a value in a transform, or a constant as its default"
            + ("" if refer else f"; or, if no foreign key refers to the table: {_GRANT}"),
            by_rows=False,
        )
    return {name: text for name, text in found.items() if text is not None}, refer is not None


def _shown(value: str, kind: Type) -> str:
    if kind == Scalar("BLOB"):
        return f"hex({value})"
    if kind == Scalar("FLOAT"):
        return f"CAST({value} + 0e0 AS CHAR)"  # without the sum, MySQL shows six digits only
    text = f"CAST({value} AS CHAR)"
    return f"concat({text}, '+00')" if kind == Scalar("TIMESTAMP WITH TIME ZONE") else text


def _put(session: Session, reader: Any, table: str, columns: Columns, source: str) -> None:
    """See `Folding`."""
    names = [LAST, FIRST, *map(quote, columns.names())]
    session.execute(
        f"CREATE TEMPORARY TABLE {FOLDED} ({LAST} BIGINT, {FIRST} BIGINT) ENGINE=InnoDB CHARACTER SET utf8mb4 AS"
        f" SELECT {', '.join(f't.{name}' for name in names[2:])} FROM (SELECT 1 AS one) AS o"
        f" LEFT JOIN {quote(table)} AS t ON false WHERE o.one = 0"
    )
    fields = [insert_literals.filled(f"CAST({name} AS BIGINT)", Scalar("BIGINT")) for name in names[:2]]
    fields += [insert_literals.filled(quote(name), kind) for name, kind in columns]
    insert_literals.insert(session, reader, FOLDED, names, fields, (), f"table {table}", source)


def _sort_all(session: Session, key: tuple[str, ...]) -> None:
    """Let window functions compare whole keys: for MySQL, keys are equal if their first max_sort_length bytes are."""
    row = session.execute(
        f"SELECT {', '.join(f'coalesce(max(length({quote(name)})), 0)' for name in key)} FROM {WRITES}"
    ).fetchone()
    longest = _WEIGHT * max(map(int, row))
    if longest > _LONGEST:
        raise SchemaConflict(
            f"key ({', '.join(key)}): a value has {longest // _WEIGHT} bytes", f"expected at most {_LONGEST // _WEIGHT} bytes"
        )
    if longest > _SORTED:
        session.execute(f"SET SESSION max_sort_length = {longest:d}")


_FOUND = f"{FATES} AS f JOIN {WRITES} AS w ON w.{ID} = f.wid JOIN {{table}} AS t ON {{same}}"
_SQL = MergeSql(
    writes=WRITES,
    fates=FATES,
    write=ID,
    more="",
    nowhere="CAST('' AS CHAR(249))",
    held="t.{key} IS NOT NULL",
    text="{0}",
    delete=f"DELETE t FROM {_FOUND} WHERE true",
    update=f"UPDATE {_FOUND}{{more}} SET {{values}} WHERE true",
    make="CREATE TEMPORARY TABLE {name} ENGINE=InnoDB AS {select}",
    folded=FOLDED,
    touched=TOUCHED,
    rows=ROWS,
    folding=Folding(
        writes=f"{FATES} AS f JOIN {WRITES} AS w ON w.{ID} = f.wid",
        held=_FOUND,
        lock=" FOR UPDATE",  # otherwise the statement would read a snapshot from before the lock
        write="CAST(f.wid AS CHAR)",
        group="CAST(f.gid AS CHAR)",
        shown=_shown,
        put=_put,
    ),
    assign="t.{0} = {1}",
    cause="a trigger of the table or another user has changed rows during the merge: remove it, or load into another table",
)
