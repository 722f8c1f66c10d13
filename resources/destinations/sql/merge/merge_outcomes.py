"""Compute the outcomes of the writes of a batch with a key (kpipe/tables/upsert.py), in SQL that all databases share.

A database joins the writes with the table and creates a relation of *fates*, a row for each write. Its columns:

- `p` and `o`: partition and offset of the write;
- `tn`, if rows name their topic: that name, empty if the row does not name it;
- `fate`: `inserted`, `updated`, `ignored`, `deleted`, `missed` (a delete that found no row) or `duplicate`.
"""

# ruff: noqa: S608 - statements contain integers and the relation's own name
from __future__ import annotations

from collections.abc import Mapping

from kpipe.batch.batch import Commit, Counts
from kpipe.errors import StagingFailed
from kpipe.ledger.ledger import Ledger, Step
from kpipe.offsets import Range
from kpipe.tables.upsert import KeyRule
from kpipe.topics import Part
from kpipe.verification.verify import Holding
from resources.destinations.sql.ledger.row_balance import NOWHERE, TOPIC, named
from resources.destinations.sql.sql_dialect import Connection, quote

__all__ = ["MET", "counted", "effects", "gained", "judged", "superseded"]

#: By the rule's `on_conflict`: fate of a row whose key exists.
MET = {"replace": "updated", "update": "updated", "ignore": "ignored", "error": "duplicate"}

_LAST = "f.last AND NOT f.stale"


def effects(rule: KeyRule) -> tuple[str, str]:
    """Return conditions over the fates: whether the row in the table is removed, and whether the row of the write stays."""
    if rule.on_conflict in ("replace", "update"):
        return f"({_LAST} AND f.held)", f"({_LAST} AND NOT f.is_delete)"
    return f"({_LAST} AND f.held AND f.cut)", "(f.fate = 'inserted' AND f.behind = 0)"


def judged(met: str, width: int, rule: KeyRule, numbered: bool = False) -> str:
    """Return the `SELECT` of the fate of each write, as if writes were applied one by one: a window function, no loop.

    Args:
        met: the writes joined with the table, as SQL. Its columns: `wid`, the id of the write; `is_delete`; `tn`, `p`, `o` and
            `place`, which order the writes; `k0` and so on, the key; `held`, the table has a row of that key; `stale`, that row
            is of a later record of the partition; and all others of the database.
        width: number of key columns.
        rule: of the key.
        numbered: whether the rows have `gid` and `nth` although the rule has no expressions.

    Returns:
        A statement whose rows have these columns, and `fate`; `last`, it is the last write of its key; `behind`, the number of
        later deletes of its key; `cut`, the writes contain a delete of its key. If the rule has expressions also `gid`, the
        first write of the key, and `nth`, the number of the write in its group.
    """
    group = ", ".join(f"k{at}" for at in range(width)) + ", stale"
    order, delete = f"PARTITION BY {group} ORDER BY tn, p, o, place", "CASE WHEN is_delete THEN 1 ELSE 0 END"
    grouped = f" first_value(wid) OVER ({order}) AS gid, row_number() OVER ({order}) AS nth," if rule.update or numbered else ""
    return (
        f"WITH seen AS (SELECT m.*,{grouped} lag(is_delete) OVER ({order}) AS earlier, lead(wid) OVER ({order}) IS NULL AS last,"
        f" coalesce(sum({delete}) OVER ({order} ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING), 0) AS behind,"
        f" max({delete}) OVER (PARTITION BY {group}) = 1 AS cut FROM {met} AS m),"
        " state AS (SELECT s.*, CASE WHEN earlier IS NULL THEN held ELSE NOT earlier END AS present FROM seen AS s)"
        " SELECT state.*, CASE"
        " WHEN stale THEN CASE WHEN is_delete THEN 'missed' ELSE 'ignored' END"
        " WHEN is_delete THEN CASE WHEN present THEN 'deleted' ELSE 'missed' END"
        f" WHEN present THEN '{MET[rule.on_conflict]}' ELSE 'inserted' END AS fate FROM state"
    )


def superseded(commit: Commit, ledger: Ledger, rule: KeyRule, topics: bool) -> str:
    """Return the condition that the table's row `t` is of a later record than the write `w`, because the write is of a backfill.

    A row contains its partition's number and at most its topic's name, not the topic's id. So the row is a later row of the
    write's own source in two cases: no other source can have written it, or the source has read the row's offset. Any other row
    is older by the order of commits. Offsets that two such sources have read are rejected before
    (kpipe/verification/commit_order.py).

    Args:
        commit: the commit.
        ledger: as it was before the commit.
        rule: of the key. A rule with expressions applies late writes like any others.
        topics: whether the table's rows name their topic; rows from before that have NULL.
    """
    found = []
    for step in () if rule.update else commit.steps:
        behind = [item for item in ledger.committed(step.source) if item.start >= step.end]
        if not behind:
            continue
        read = f"({' OR '.join(_inside('t', item) for item in behind)})"
        alike = [x.topic.name for x in ledger.sources() if x.partition == step.source.partition and x != step.source]
        if not alike:  # rows of SET OFFSETS ... REREAD are also later rows
            read = "t._kafka_offset > w._kafka_offset"
        elif topics and step.source.topic.name not in alike:
            read = f"t._kafka_offset > w._kafka_offset AND (t.{TOPIC} IS NOT NULL OR {read})"
        number, name = step.source.partition, _text(step)
        one = f"w._kafka_partition = {number:d} AND t._kafka_partition = {number:d} AND {_inside('w', step.range)} AND {read}"
        if topics:
            one += "".join(f" AND coalesce({side}.{TOPIC}, {name}) = {name}" for side in "wt")
        found.append(f"({one})")
    return f"coalesce({' OR '.join(found)}, false)" if found else "false"


def _inside(row: str, item: Range) -> str:
    return f"({row}._kafka_offset >= {item.start:d} AND {row}._kafka_offset < {item.end:d})"


def _text(step: Step) -> str:
    """Return the step's topic as SQL. Kafka allows no quotes in names, but the ledger's text is not trusted."""
    return "'" + step.source.topic.name.replace("'", "''") + "'"


def counted(connection: Connection, fates: str, commit: Commit, rule: KeyRule, topics: bool = False) -> Mapping[tuple, Counts]:
    """Return the batch's counts by lane, with the outcome of its rows.

    Args:
        connection: inside the transaction of the commit.
        fates: the relation, as SQL.
        commit: the commit.
        rule: of the key.
        topics: whether the relation has `tn`.

    Raises:
        StagingFailed: a write is outside of the ranges of the batch.
    """
    steps = commit.steps
    names = ("step", "topic", "number", "first", "behind")
    ranges = " UNION ALL ".join(  # VALUES has another spelling in MySQL
        "SELECT " + ", ".join(f"{value} AS {quote(name)}" for name, value in zip(names, values, strict=True))
        for at, step in enumerate(steps)
        for values in [(at, _text(step), step.source.partition, step.range.start, step.range.end)]
    )
    same = " AND (f.tn = '' OR f.tn = s.topic)" if topics else ""
    found = connection.execute(
        f"SELECT s.step, f.fate, count(*) FROM ({ranges}) AS s"
        f" JOIN {fates} AS f ON f.p = s.number AND f.o >= s.first AND f.o < s.behind{same} GROUP BY s.step, f.fate"
    ).fetchall()
    counts = {step.lane.key: commit.only.counts.get(step.lane.key, Counts()) for step in steps}
    for at, fate, number in found:
        more = {
            "inserted": Counts(inserted=number),
            "updated": Counts(updated=number),
            "deleted": Counts(deleted=number),
            "ignored": Counts(ignored=number),
            "duplicate": Counts(ignored=number) if rule.duplicates == "skip" else Counts(rows=-number, dead_letters=number),
        }
        counts[steps[at].lane.key] += more.get(fate, Counts())
    for lane, count in counts.items():
        if count.unsettled:
            raise StagingFailed(f"batch {commit.id}: {lane[0]}: {count.unsettled} writes are outside of their range")
    return counts


def gained(connection: Connection, fates: str, rule: KeyRule) -> dict[Part, Holding]:
    """Return the change of the table's rows by the fates, by partition; negative numbers are removed rows.

    Args:
        connection: inside the transaction of the commit.
        fates: the relation, with all columns of `judged`.
        rule: of the key.
    """
    gone, stays = effects(rule)
    # An updated row keeps its topic if the new rows do not name one.
    changes = rule.on_conflict == "update"
    told = "CASE WHEN f.tn = '' AND f.held AND NOT f.cut THEN f.oldtn ELSE f.tn END" if changes else "f.tn"
    # Both sides in one pass: MySQL opens a temporary table only once in a statement (error 1137).
    rows = connection.execute(
        f"SELECT CASE WHEN p IS NULL THEN '' ELSE tn END, coalesce(p, {NOWHERE}), sum(n), coalesce(sum(n * o), 0) FROM"
        f" (SELECT CASE WHEN s.n < 0 THEN f.oldtn ELSE {told} END AS tn, CASE WHEN s.n < 0 THEN f.oldp ELSE f.p END AS p,"
        f" CASE WHEN s.n < 0 THEN f.oldo ELSE f.o END AS o, s.n FROM {fates} AS f"
        " CROSS JOIN (SELECT -1 AS n UNION ALL SELECT 1 AS n) AS s"
        f" WHERE (s.n < 0 AND {gone}) OR (s.n > 0 AND {stays})) AS d GROUP BY 1, 2"
    ).fetchall()
    return {named(topic, number): Holding(int(count), int(offsets)) for topic, number, count, offsets in rows}
