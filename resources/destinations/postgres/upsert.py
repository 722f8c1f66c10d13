"""Rows with a key in PostgreSQL: the writes of a batch applied in order, as statements over all of them at once (kpipe/keys.py).

The writes (writes.py) are joined with the table by the key. What becomes of each follows from the write of the same key before it
and from whether the table holds the key: a window, no loop, and no ON CONFLICT, which knows nothing of order. Then rows that give
way are deleted, those that change are updated, and the others that remain are inserted. Nobody else writes the table meanwhile
(`layout.keep_out`), so a row stays where the join has found it.
"""

# ruff: noqa: S608 - names in statements are constants or quoted, values are always parameters
from __future__ import annotations

from collections.abc import Mapping, Sequence

from kpipe.audit import Holding
from kpipe.batch import Commit, Counts, Step
from kpipe.errors import SchemaConflict, StagingFailed
from kpipe.keys import KeyRule
from kpipe.ledger import READ as READ_LANE
from kpipe.ledger import Ledger
from resources.destinations.postgres.connection import Session
from resources.destinations.postgres.writes import FATES, GONE, PLACE, WRITES
from resources.destinations.relational.dialect import quote
from resources.destinations.relational.holdings import NOWHERE

__all__ = ["upsert"]

_FATE = {"replace": "updated", "update": "updated", "ignore": "ignored", "error": "duplicate"}
_LAST = "f.last AND NOT f.stale"


def upsert(
    session: Session, table: str, commit: Commit, rule: KeyRule, ledger: Ledger, key: tuple[str, ...], carried: Sequence[str]
) -> tuple[Commit, dict[int, Holding]]:
    """Apply all writes of the batch to the table.

    Args:
        session: inside a transaction that keeps others from writing the table, with `kpipe_writes`.
        table: name of the table.
        commit: what is written.
        rule: of the key; its update has no expressions.
        ledger: as it was before the commit.
        key: columns of the key.
        carried: columns that rows fill, as the table spells them.

    Returns:
        The commit with what became of its rows, and what the table has gained by partition. Rows that are dead letters now are
        in `DUPLICATES`.

    Raises:
        StagingFailed: a file is not what was reported.
        SchemaConflict: a row cannot be told by its key; the key is there and the rule says that this is an error; or the
            table takes other rows than it is given.
    """
    _judge(session, table, key, rule, [step for step in commit.steps if _older(step, ledger)])
    _refuse(session, table, key, rule)
    counts = _counted(session, commit, rule)
    gone, stays = _effects(rule)
    delta = session.execute(
        f"SELECT coalesce(p, {NOWHERE}), sum(n), coalesce(sum(n * o), 0) FROM"
        f" (SELECT f.oldp AS p, f.oldo AS o, -1 AS n FROM {FATES} AS f WHERE {gone}"
        f" UNION ALL SELECT f.p, f.o, 1 AS n FROM {FATES} AS f WHERE {stays}) AS d GROUP BY 1"
    ).fetchall()
    # A row that is changed keeps the columns that the new rows do not have, unless it was deleted in between.
    changed = "f.rid IS NOT NULL AND NOT f.cut" if rule.on_conflict == "update" else "false"
    name, row = quote(table), "t.ctid = f.rid AND t.tableoid = f.part"
    _apply(session, table, f"DELETE FROM {name} AS t USING {FATES} AS f WHERE {row}", f"{gone} AND NOT ({changed})")
    if carried and rule.on_conflict == "update":
        values = ", ".join(f"{quote(column)} = w.{quote(column)}" for column in carried)
        source = f"{FATES} AS f JOIN {WRITES} AS w ON w.ctid = f.wid"
        _apply(session, table, f"UPDATE {name} AS t SET {values} FROM {source} WHERE {row}", f"{stays} AND {changed}")
    if carried:  # else there are deletes only
        columns, values = ", ".join(map(quote, carried)), ", ".join(f"w.{quote(column)}" for column in carried)
        rows = f"SELECT {values} FROM {WRITES} AS w JOIN {FATES} AS f ON f.wid = w.ctid WHERE true"
        _apply(session, table, f"INSERT INTO {name} ({columns}) {rows}", f"{stays} AND NOT ({changed})")
    return commit.settled(counts), {number: Holding(int(rows), int(offsets)) for number, rows, offsets in delta}


def _older(step: Step, ledger: Ledger) -> bool:
    """Whether offsets behind these have been read already: a backfill."""
    return any(
        lane.kind == READ_LANE and lane.start > step.lane.start and lane.next > lane.start for lane in ledger.of(step.source)
    )


def _judge(session: Session, table: str, key: tuple[str, ...], rule: KeyRule, older: Sequence[Step]) -> None:
    """What becomes of each write, as if they came one by one."""
    same = " AND ".join(f"w.{quote(name)} = t.{quote(name)}" for name in key)
    keys = ", ".join(f"w.{quote(name)} AS k{at}" for at, name in enumerate(key))
    group = ", ".join(f"k{at}" for at in range(len(key))) + ", stale"
    ranges = " OR ".join(
        f"(w._kafka_partition = {step.source.partition:d} AND w._kafka_offset >= {step.range.start:d}"
        f" AND w._kafka_offset < {step.range.end:d})"
        for step in older
    )
    stale = f"t._kafka_partition = w._kafka_partition AND t._kafka_offset > w._kafka_offset AND ({ranges})" if ranges else "false"
    session.execute(
        f"CREATE TEMP TABLE kpipe_fates ON COMMIT DROP AS WITH met AS (SELECT w.ctid AS wid, w.{GONE} AS gone,"
        f" w.{PLACE} AS place, w._kafka_partition AS p, w._kafka_offset AS o, {keys}, t.ctid AS rid, t.tableoid AS part,"
        f" t._kafka_partition AS oldp, t._kafka_offset AS oldo, coalesce({stale}, false) AS stale"
        f" FROM {WRITES} AS w LEFT JOIN {quote(table)} AS t ON {same}),"
        " seen AS (SELECT met.*, lag(gone) OVER writes AS before, lead(wid) OVER writes IS NULL AS last,"
        " count(*) FILTER (WHERE gone) OVER (writes ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING) AS behind,"
        f" bool_or(gone) OVER (PARTITION BY {group}) AS cut FROM met"
        f" WINDOW writes AS (PARTITION BY {group} ORDER BY p, o, place)),"
        " state AS (SELECT *, CASE WHEN before IS NULL THEN rid IS NOT NULL ELSE NOT before END AS present FROM seen)"
        " SELECT wid, gone, p, o, place, rid, part, oldp, oldo, stale, last, behind, cut, CASE"
        " WHEN stale THEN CASE WHEN gone THEN 'missed' ELSE 'ignored' END"
        " WHEN gone THEN CASE WHEN present THEN 'deleted' ELSE 'missed' END"
        f" WHEN present THEN '{_FATE[rule.on_conflict]}' ELSE 'inserted' END AS fate FROM state"
    )
    session.execute(f"ANALYZE {FATES}")


def _refuse(session: Session, table: str, key: tuple[str, ...], rule: KeyRule) -> None:
    found = session.execute(f"SELECT (SELECT count(*) FROM {FATES}) > (SELECT count(*) FROM {WRITES})").fetchone()
    if found[0]:
        raise SchemaConflict(
            f"table {table} holds a key ({', '.join(key)}) more than once",
            "remove all but one row of each key, or name another key",
        )
    if rule.on_conflict != "error" or rule.duplicates != "fail":
        return
    values = ", ".join(f"w.{quote(name)}::text" for name in key)
    row = session.execute(
        f"SELECT f.p, f.o, {values} FROM {FATES} AS f JOIN {WRITES} AS w ON w.ctid = f.wid WHERE f.fate = 'duplicate'"
        " ORDER BY f.p, f.o, f.place LIMIT 1"
    ).fetchone()
    if row is not None:
        raise SchemaConflict(
            f"partition {row[0]} offset {row[1]}: a row of the key {', '.join(row[2:])} is in table {table} already",
            "set into.on_conflict (replace, ignore, update), or errors.duplicate_key: dead_letter or skip",
        )


def _effects(rule: KeyRule) -> tuple[str, str]:
    """Conditions over the fates: whose row in the table gives way, and which write's row stays."""
    if rule.on_conflict in ("replace", "update"):
        return f"({_LAST} AND f.rid IS NOT NULL)", f"({_LAST} AND NOT f.gone)"
    return f"({_LAST} AND f.rid IS NOT NULL AND f.cut)", "(f.fate = 'inserted' AND f.behind = 0)"


def _apply(session: Session, table: str, statement: str, which: str) -> None:
    """One statement over the fates of which a condition is true: each must find, or make, one row."""
    count = session.execute(f"{statement} AND {which}").rowcount
    expected = session.execute(f"SELECT count(*) FROM {FATES} AS f WHERE {which}").fetchone()[0]
    if count != expected:
        raise SchemaConflict(
            f"table {table}: {statement.split()[0]} of {expected} rows has changed {count}; nothing was written",
            "a trigger or a rule of the table leaves rows out: remove it, or load into another table",
        )


def _counted(session: Session, commit: Commit, rule: KeyRule) -> Mapping[tuple, Counts]:
    steps = commit.steps
    found = session.execute(
        "SELECT s.at, f.fate, count(*) FROM (SELECT unnest($1::BIGINT[]) AS at, unnest($2::INTEGER[]) AS number,"
        f" unnest($3::BIGINT[]) AS first, unnest($4::BIGINT[]) AS behind) AS s JOIN {FATES} AS f"
        " ON f.p = s.number AND f.o >= s.first AND f.o < s.behind GROUP BY s.at, f.fate",
        [
            list(range(len(steps))), [step.source.partition for step in steps], [step.range.start for step in steps],
            [step.range.end for step in steps],
        ],
    ).fetchall()  # fmt: skip
    counts = {step.lane.key: commit.counts.get(step.lane.key, Counts()) for step in steps}
    for at, fate, number in found:
        lane = steps[at].lane.key
        more = {
            "inserted": Counts(inserted=number),
            "updated": Counts(updated=number),
            "deleted": Counts(deleted=number),
            "ignored": Counts(ignored=number),
            "duplicate": Counts(ignored=number) if rule.duplicates == "skip" else Counts(rows=-number, dead_letters=number),
        }
        counts[lane] += more.get(fate, Counts())
    for lane, count in counts.items():
        if count.unsettled:
            raise StagingFailed(f"batch {commit.id}: {lane[0]}: {count.unsettled} writes lie outside of their range")
    return counts
