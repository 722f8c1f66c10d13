"""Rows with a key in PostgreSQL. Nobody else writes the table meanwhile (`layout.keep_out`): a row stays where it was found."""

# ruff: noqa: S608 - names in statements are constants or quoted, values are always parameters
from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from kpipe.batch.batch import Commit
from kpipe.ledger.ledger import Ledger
from kpipe.schema.columns import Columns, Scalar, Type
from kpipe.tables.upsert import KeyRule
from kpipe.topics import Part
from kpipe.verification.verify import Holding
from resources.destinations.postgres.connection import Session
from resources.destinations.postgres.merge_staging import FATES, FOLDED, ROWS, WRITES
from resources.destinations.sql import csv_copy
from resources.destinations.sql.conflict_update import FIRST, LAST, Folding, fold
from resources.destinations.sql.merge_outcomes import judged, superseded
from resources.destinations.sql.row_balance import TOPIC
from resources.destinations.sql.sql_dialect import quote
from resources.destinations.sql.upsert import Words, met, same_key, settle

__all__ = ["upsert"]

_ROW = "t.ctid = f.rid AND t.tableoid = f.part"
_FATED = f"{FATES} AS f JOIN {WRITES} AS w ON w.ctid = f.wid"
_WORDS = Words(
    writes=WRITES,
    fates=FATES,
    write="ctid",
    more=", t.ctid AS rid, t.tableoid AS part",
    nowhere="''",
    held="t.ctid IS NOT NULL",
    text="{0}::text",
    delete=f"DELETE FROM {{table}} AS t USING {FATES} AS f WHERE {_ROW}",
    update=f"UPDATE {{table}} AS t SET {{values}} FROM {_FATED}{{more}} WHERE {_ROW}",
    make="CREATE TEMP TABLE {name} ON COMMIT DROP AS {select}",
    folded=FOLDED,
    rows=ROWS,
    assign="{0} = {1}.{0}",
    cause="a trigger or a rule of the table leaves rows out: remove it, or load into another table",
)


def upsert(
    session: Session,
    table: str,
    commit: Commit,
    rule: KeyRule,
    ledger: Ledger,
    key: tuple[str, ...],
    carried: Sequence[str],
    known: Columns,
    reader: Any,
) -> tuple[Commit, dict[Part, Holding]]:
    """Apply all writes of the batch to the table. Rows that are dead letters now are in `DUPLICATES`.

    Args:
        session: inside a transaction that keeps others from writing the table, with `kpipe_writes`.
        ledger: as it was before the commit.
        table: and the rest, with result and errors: see `settle`.
        commit: see there.
        rule: see there.
        key: see there.
        carried: see there.
        known: all columns of the table.
        reader: a connection of DuckDB's.
    """
    topics = TOPIC in known.names()
    found = met(_WORDS, table, key, superseded(commit, ledger, rule, topics), topics)
    session.execute(f"CREATE TEMP TABLE kpipe_fates ON COMMIT DROP AS {judged(f'({found})', len(key), rule)}")
    session.execute(f"ANALYZE {FATES}")
    refold = partial(fold, session, reader, _folding(table), table, same_key(key), rule, key, carried, known)
    return settle(session, _WORDS, table, commit, rule, key, carried, topics, refold if rule.update else None)


def _folding(table: str) -> Folding:
    return Folding(
        writes=_FATED,
        held=f"{_FATED} JOIN {{table}} AS t ON {_ROW}",
        lock="",
        write="f.wid::text",
        group="f.gid::text",
        shown=_shown,
        put=partial(_put, table),
    )


def _shown(value: str, kind: Type) -> str:
    if kind == Scalar("BLOB"):
        return f"encode({value}, 'hex')"
    dated = isinstance(kind, Scalar) and kind.name in ("DATE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE")
    return rf"regexp_replace({value}::text, '^([^ ]+)(.*) BC$', '\1 (BC)\2')" if dated else f"{value}::text"


def _put(table: str, session: Session, reader: Any, columns: Columns, source: str) -> None:
    """See `Folding`."""
    names = [LAST, FIRST, *map(quote, columns.names())]
    places = f"NULL::tid AS {LAST}, NULL::tid AS {FIRST}"
    session.execute(
        f"CREATE TEMP TABLE {FOLDED} ON COMMIT DROP AS SELECT {', '.join([places, *names[2:]])} FROM {quote(table)} WITH NO DATA"
    )
    fields = [*(csv_copy.filled(name, Scalar("VARCHAR")) for name in names[:2])]
    fields += [csv_copy.filled(quote(name), kind) for name, kind in columns]
    between = ", ',', ".join(fields)
    rows = csv_copy.blocks(reader, f"SELECT concat({between}, chr(10)) FROM {source}", [])
    session.copy(f"COPY {FOLDED} ({', '.join(names)}) FROM STDIN (FORMAT csv)", rows)
