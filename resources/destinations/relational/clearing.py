"""All rows of tables deleted, and taken back in the ledgers of the pipelines that wrote them, in one transaction."""

# ruff: noqa: S608 - names in statements are constants or quoted, values are always parameters
from __future__ import annotations

import uuid
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

from kpipe.batch import Commit
from kpipe.clearing import CLEARED, Cleared, TakenBack, take_back
from kpipe.counts import Counts
from kpipe.errors import Fenced, NotAvailable
from kpipe.faults import reach
from kpipe.ledger import Ledger, seal
from kpipe.oversight import ledger_only
from resources.destinations.outcome import Failure, land
from resources.destinations.relational import lanes
from resources.destinations.relational import recount as counting
from resources.destinations.relational.dialect import Connection
from resources.destinations.relational.replays import ReplayingDestination
from resources.destinations.relational.tables import BATCHES, COMMITS, ERRORS, HOLDINGS, PIPELINES, TARGETS
from resources.destinations.relational.targets import WRITTEN
from resources.destinations.rows import STATES, commit_row, range_rows

__all__ = ["ClearingDestination"]

# What the row of a range shows of its reading, of which a range that clears has none.
_SHOWN = (
    "batch_rows_written", "batch_partition_parsed_rows", "batch_partition_extracted_bytes", "batch_partition_extracted_rows",
)  # fmt: skip


class ClearingDestination(ReplayingDestination):
    """A destination that can clear tables (kpipe/clearing.py)."""

    def clear(self, tables: Sequence[str], who: str, only: Collection[str] | None = None) -> Cleared:
        """See `Clearing`."""
        marker = Commit(uuid.uuid4().hex, self.pipeline, (), kind="clear")
        done: list[Cleared] = []

        def attempt() -> Failure | None:
            done.clear()
            return self._cleared(marker, tables, who, only, done)

        def read_back() -> tuple[int | None, Ledger]:
            def read(connection: Connection) -> int | None:
                if done and not done[0].pipelines:  # no ledger speaks of the rows
                    return 0
                found = f"SELECT seq FROM {COMMITS.sql} WHERE batch_id = $1"
                row = connection.execute(found, [marker.id]).fetchone() if self._present(connection) else None
                return None if row is None else int(row[0])

            return self._read(read, 0 if done else None), Ledger(self.pipeline)

        land(marker, self.describe(), attempt, read_back)
        return done[0]

    def _cleared(
        self, marker: Commit, tables: Sequence[str], who: str, only: Collection[str] | None, done: list[Cleared]
    ) -> Failure | None:
        """One transaction, as `_attempt` of a commit."""
        step = ""

        def enter(name: str) -> None:
            nonlocal step
            step = name
            reach(f"commit.{name}")

        if not self._there():
            done.append(Cleared(dict.fromkeys(tables, 0)))
            return None
        try:
            enter("open")
            with self._writing() as connection:
                there = [table for table in tables if self._exists(connection, table)]
                enter("begin")
                known, _ = self._begin(connection)
                enter("ledger")
                writers = self._writers(connection, tables) if known else []
                if known:
                    self._check_alone(connection, writers, tables)
                found = self._taken_back(connection, writers, tables, only)
                for at, (name, back) in enumerate(found.items()):
                    self._record(connection, name, back, who, tables, marker.id if not at else uuid.uuid4().hex)
                if known:
                    for table in tables:
                        # Nothing is there now. A count begun anew would take what is put there by hand for its beginning.
                        connection.execute(
                            f'UPDATE {HOLDINGS.sql} SET "rows" = 0, offsets = 0, baseline = 0 WHERE target_table = lower($1)',
                            [table],
                        )
                enter("data")
                rows = dict.fromkeys(tables, 0)
                for table in there:
                    row = connection.execute(f"SELECT count(*) FROM {self.dialect.name(table)}").fetchone()
                    connection.execute(f"DELETE FROM {self.dialect.name(table)}")
                    rows[table] = int(row[0])
                if known and self._writers(connection, tables) != writers:
                    raise Fenced(f"a pipeline has written table {', '.join(tables)} meanwhile", "run it again")
                words = {
                    name: [f"{source} {item}" for source, ranges in back.gone.items() for item in ranges]
                    for name, back in found.items()
                }
                done.append(Cleared(rows, words))
                enter("before")
                self._commit(connection)
                enter("after")
        except Exception as error:
            if done and not done[0].pipelines:  # nothing can be read back that would say whether they are gone
                done.clear()
            return self._failure(error, step, marker)
        return None

    def _taken_back(
        self, connection: Connection, writers: Sequence[str], tables: Sequence[str], only: Collection[str] | None
    ) -> dict[str, TakenBack]:
        """What it means for each pipeline that has left rows there. Their rows in the ledger are locked first.

        Raises:
            NotAvailable: another pipeline, or another table of the same records, would be concerned.
        """
        result: dict[str, TakenBack] = {}
        for name in writers:
            connection.execute(f"UPDATE {PIPELINES.sql} SET seq = seq WHERE pipeline_name = $1", [name])
            back = take_back(lanes.read(connection, name)[1], counting.entries(connection, name), tables)
            others = self._beside(connection, name, tables)
            if others:
                raise NotAvailable(
                    f"pipeline {name} writes table {others[0]} from the same records: their offsets cannot be read again for"
                    " one of the tables",
                    f"RESET PIPELINE {name} clears all of its tables, and reads them again",
                )
            if back is None:
                continue
            if only is not None and name not in only:
                raise NotAvailable(
                    f"table {', '.join(back.parts)} holds rows of pipeline {name}, too",
                    f"RESET PIPELINE {', '.join([*only, name])} reads the rows of all of them again",
                )
            result[name] = back
        return result

    def _check_alone(self, connection: Connection, writers: Sequence[str], tables: Sequence[str]) -> None:
        """Refuse what the ledger does not take back so far.

        Raises:
            NotAvailable: a writer has, or had, several tables or several rows of a record, or another table's name differs in
                case only.
        """
        hint = "load into another table, by a pipeline of another name, and drop this one"
        for name in writers:
            found = connection.execute(f"SELECT 1 FROM {TARGETS.sql} WHERE pipeline_name = $1 LIMIT 1", [name]).fetchall()
            if found:
                raise NotAvailable(f"pipeline {name} has written several tables, or several rows of a record", hint)
        for table in tables:
            found = connection.execute(
                f"SELECT DISTINCT target_table FROM {WRITTEN} AS w WHERE lower(target_table) = lower($1)", [table]
            ).fetchall()
            if len(found) > 1:
                names = " and ".join(sorted(name for (name,) in found))
                raise NotAvailable(f"tables {names} differ in upper and lower case only", hint)

    def _writers(self, connection: Connection, tables: Sequence[str]) -> list[str]:
        named = " OR ".join(self.dialect.same_name.format("target_table", f"${at}") for at in range(1, len(tables) + 1))
        found = connection.execute(f"SELECT DISTINCT pipeline_name FROM {WRITTEN} AS w WHERE {named}", list(tables)).fetchall()
        return sorted(name for (name,) in found)

    def _beside(self, connection: Connection, pipeline: str, tables: Sequence[str]) -> list[str]:
        """Tables that hold rows of the same ranges, and are not cleared."""
        named = " OR ".join(self.dialect.same_name.format("y.target_table", f"${at}") for at in range(2, len(tables) + 2))
        found = connection.execute(
            f"SELECT target_table FROM {TARGETS.sql} AS x WHERE pipeline_name = $1"
            f" AND EXISTS (SELECT 1 FROM {TARGETS.sql} AS y WHERE y.batch_id = x.batch_id AND ({named}))"
            ' GROUP BY target_table HAVING sum("rows") > 0',
            [pipeline, *tables],
        ).fetchall()
        cleared = {table.lower() for table in tables}
        return sorted(name for (name,) in found if name.lower() not in cleared)

    def _record(
        self, connection: Connection, pipeline: str, back: TakenBack, who: str, tables: Sequence[str], number: str
    ) -> None:
        """Swap the lanes, and write the history, with the id `number`."""
        words = ", ".join(f"{source} {item}" for source, ranges in back.gone.items() for item in ranges)
        note = f"clear: {', '.join(tables)}: {words or 'nothing that is read'}; {who}"
        commit = ledger_only(pipeline, "clear", back.changes, note, (), "sql", "", number)
        lanes.swap(connection, self.dialect, commit)
        letters = self._letters_gone(connection, pipeline, list(back.parts))
        sums, sealed = back.counts, seal(lane for change in back.changes for lane in (change.expect, change.become))
        self.dialect.change(
            connection,
            f'UPDATE {PIPELINES.sql} SET seq = seq + 1, "rows" = "rows" + $1, dead_letters = dead_letters - $2,'
            f" last_batch_id = $3, updated = $4, seal = {self.dialect.xor.format('seal', '$6')} WHERE pipeline_name = $5",
            [sums.inserted - sums.deleted, letters, number, datetime.now(timezone.utc), pipeline, sealed],
        )
        row = connection.execute(
            f"SELECT seq, database_name FROM {PIPELINES.sql} WHERE pipeline_name = $1", [pipeline]
        ).fetchone()
        seq, database = int(row[0]), str(row[1])
        for at, (table, items) in enumerate(back.parts.items()):
            steps, counts = tuple(step for step, _ in items), {step.lane.key: found for step, found in items}
            part = replace(commit, steps=steps, counts=counts)
            if not at:
                COMMITS.insert(connection, self.dialect, [{**commit_row(commit, table, seq), **vars(sums)}])
            rows = [{**row, **dict.fromkeys(_SHOWN, 0)} for row in range_rows(part, table, seq, database)]
            BATCHES.insert(connection, self.dialect, rows)
            self._record_targets(connection, part, table, seq)

    def _letters_gone(self, connection: Connection, pipeline: str, tables: Sequence[str]) -> int:
        """Dead letters of cleared ranges are counted no longer; they stay to be looked at."""
        gone = 0
        for table in tables:
            gone += self.dialect.change(
                connection,
                f"UPDATE {ERRORS.sql} SET dead_letter = false WHERE pipeline_name = $1 AND dead_letter AND batch_id IN"
                f" (SELECT batch_id FROM {BATCHES.sql} AS b WHERE b.pipeline_name = $2"
                f" AND {self.dialect.same_name.format('b.target_table', '$3')})",
                [pipeline, pipeline, table],
            )
        return gone

    def _record_targets(self, connection: Connection, commit: Commit, table: str, seq: int) -> None:
        """The same for each table, where rows of these ranges went into several, or a record gave several."""
        same = self.dialect.same_name.format("b.target_table", "$2")
        found = connection.execute(
            f"SELECT t.target_table, t.cluster_id, t.topic_id, t.topic, t.batch_source_partition_id,"
            ' sum(t."rows"), sum(t.inserted), sum(t.updated), sum(t.deleted), sum(t.ignored)'
            f" FROM {TARGETS.sql} AS t WHERE t.pipeline_name = $1 AND t.batch_id IN"
            f" (SELECT b.batch_id FROM {BATCHES.sql} AS b WHERE b.pipeline_name = $1 AND {same})"
            " GROUP BY t.target_table, t.cluster_id, t.topic_id, t.topic, t.batch_source_partition_id",
            [commit.pipeline, table],
        ).fetchall()
        if not found:
            return
        rows: list[dict[str, Any]] = []
        others = sorted({row[0] for row in found if row[0].lower() != table.lower()})
        sums = {tuple(row[:5]): row[5:] for row in found}
        first = {step.source: step for step in reversed(commit.steps)}
        for source, step in first.items():
            where = (source.topic.cluster, source.topic.topic_id, source.topic.name, source.partition)
            counts = commit.counts.get(step.lane.key, Counts())
            given = {table: (counts.rows, counts.inserted, counts.updated, counts.deleted, counts.ignored)}
            keys = {name: (name, *where) for name in others}
            given |= {name: tuple(-int(n) for n in sums[key]) for name, key in keys.items() if key in sums}
            rows += [
                {
                    "pipeline_name": commit.pipeline, "batch_id": commit.id, "seq": seq, "cluster_id": where[0],
                    "topic_id": where[1], "topic": where[2], "batch_source_partition_id": where[3],
                    "batch_earliest_offset": step.range.start, "batch_latest_offset": step.range.end, "closed_by": CLEARED,
                    "batch_state": STATES["clear"], "target_table": name,
                    **dict(zip(("rows", "inserted", "updated", "deleted", "ignored"), numbers, strict=True)),
                }
                for name, numbers in given.items()
            ]  # fmt: skip
        TARGETS.insert(connection, self.dialect, rows)
