"""Merge rows with a key in PostgreSQL. A lock blocks other writers (`sql_dialect.keep_out`), so a row keeps its ctid."""

# ruff: noqa: S608 - names in statements are constants or quoted, values are always parameters
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kpipe.batch.batch import Commit
from kpipe.schema.columns import Columns, Scalar, Type
from kpipe.topics import Part
from kpipe.verification.verify import Holding
from resources.destinations.postgres import target_table, text_lengths, types
from resources.destinations.postgres.connection import Session
from resources.destinations.postgres.merge_staging import EPOCHS, FATES, FOLDED, MARKS, ROWS, TOUCHED, WRITES
from resources.destinations.sql import csv_copy
from resources.destinations.sql.merge.conflict_update import FIRST, LAST, Folding
from resources.destinations.sql.merge.emptied_tables import expand
from resources.destinations.sql.merge.kept_values import kept_columns
from resources.destinations.sql.merge.keyed_batch import KeyedBatch
from resources.destinations.sql.merge.merge_outcomes import judged
from resources.destinations.sql.merge.upsert import MergeSql, met, settle
from resources.destinations.sql.sql_dialect import quote

__all__ = ["merge"]


def merge(session: Session, reader: Any, batch: KeyedBatch, carried: Sequence[str]) -> tuple[Commit, dict[Part, Holding]]:
    """Merge the writes of the batch into the table. `DUPLICATES` selects the rows that became dead letters.

    Args:
        session: inside a transaction that has locked the table against other writers, with `kpipe_writes`.
        reader: see `settle`, also for the result and the errors.
        batch: see `settle`.
        carried: see `settle`.
    """
    expand(session, WRITES, batch, _SQL.make, EPOCHS, MARKS)
    kept = kept_columns(session, WRITES, batch.known)
    fates = judged(f"({met(_SQL, batch)})", len(batch.key), batch.rule, bool(kept))
    session.execute(f"CREATE TEMP TABLE kpipe_fates ON COMMIT DROP AS {fates}")
    session.execute(f"ANALYZE {FATES}")
    counters = target_table.counters(session, batch.table) if batch.rule.on_conflict == "replace" else None
    defaults = None if counters is None else {name: "DEFAULT" for name in batch.known.names() if name not in counters}
    return settle(session, reader, _SQL, batch, carried, kept, defaults)


def _shown(value: str, kind: Type) -> str:
    return f"encode({value}, 'hex')" if kind == Scalar("BLOB") else types.text(value, kind)


def _put(session: Session, reader: Any, table: str, columns: Columns, source: str) -> None:
    """See `Folding`."""
    names = [LAST, FIRST, *map(quote, columns.names())]
    places = f"NULL::tid AS {LAST}, NULL::tid AS {FIRST}"
    session.execute(
        f"CREATE TEMP TABLE {FOLDED} ON COMMIT DROP AS SELECT {', '.join([places, *names[2:]])} FROM {quote(table)} WITH NO DATA"
    )
    kinds = dict(columns)
    most = {name: size for name, size in text_lengths.limits(session, table).items() if name in kinds}
    text_lengths.check(reader, table, most, {name: quote(name) for name in most}, source)
    fields = [*(csv_copy.filled(name, Scalar("VARCHAR")) for name in names[:2])]
    fields += [csv_copy.filled(quote(name), kind) for name, kind in columns]
    between = ", ',', ".join(fields)
    rows = csv_copy.blocks(reader, f"SELECT concat({between}, chr(10)) FROM {source}", [])
    session.copy(f"COPY {FOLDED} ({', '.join(names)}) FROM STDIN (FORMAT csv)", rows)


_ROW = "t.ctid = f.rid AND t.tableoid = f.part"
_FATED = f"{FATES} AS f JOIN {WRITES} AS w ON w.ctid = f.wid"
_SQL = MergeSql(
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
    touched=TOUCHED,
    rows=ROWS,
    folding=Folding(
        writes=_FATED,
        held=f"{_FATED} JOIN {{table}} AS t ON {_ROW}",
        lock="",
        write="f.wid::text",
        group="f.gid::text",
        shown=_shown,
        put=_put,
    ),
    assign="{0} = {1}",
    cause="a trigger or a rule of the table skips rows: remove it, or load into another table",
)
