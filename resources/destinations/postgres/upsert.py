"""Rows with a key in PostgreSQL. Nobody else writes the table meanwhile (`layout.keep_out`): a row stays where it was found."""

from __future__ import annotations

from collections.abc import Sequence

from kpipe.audit import Holding
from kpipe.batch import Commit
from kpipe.keys import KeyRule
from kpipe.ledger import Ledger
from kpipe.source import Part
from resources.destinations.postgres.connection import Session
from resources.destinations.postgres.writes import FATES, WRITES
from resources.destinations.relational.fates import judged, older
from resources.destinations.relational.upsert import Words, met, settle

__all__ = ["upsert"]

_ROW = "t.ctid = f.rid AND t.tableoid = f.part"
_WORDS = Words(
    writes=WRITES,
    fates=FATES,
    write="ctid",
    more=", t.ctid AS rid, t.tableoid AS part",
    nowhere="''",
    held="t.ctid IS NOT NULL",
    text="{0}::text",
    delete=f"DELETE FROM {{table}} AS t USING {FATES} AS f WHERE {_ROW}",  # noqa: S608
    update=f"UPDATE {{table}} AS t SET {{values}} FROM {FATES} AS f JOIN {WRITES} AS w ON w.ctid = f.wid WHERE {_ROW}",  # noqa: S608
    assign="{0} = w.{0}",
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
    topics: bool,
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
        topics: see there.
    """
    found = met(_WORDS, table, key, older(commit, ledger), topics)
    session.execute(f"CREATE TEMP TABLE kpipe_fates ON COMMIT DROP AS {judged(f'({found})', len(key), rule)}")
    session.execute(f"ANALYZE {FATES}")
    return settle(session, _WORDS, table, commit, rule, key, carried, topics)
