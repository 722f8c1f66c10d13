"""Find the records that make a commit fail: rows that a table rejects, and duplicates beyond the limit."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kpipe.batch.batch import Commit
from kpipe.errors import KpipeError, SchemaConflict
from kpipe.ledger.ledger import Ledger
from kpipe.planning.preconditions import exceeded
from kpipe.tables.upsert import KeyRule
from kpipe.topics import PartitionId
from resources.destinations.commit_protocol import Failure, Steps
from resources.destinations.sql.engine import StagedTable, Violation
from resources.destinations.sql.sql_dialect import Connection
from resources.destinations.sql.store import Store
from resources.destinations.staged_file_check import row_bytes

__all__ = ["Source", "by_steps", "check_limit", "with_records"]

#: Finds the source of the record at a topic (None: the rows name none), a partition number and an offset; None if it is
#: ambiguous or unknown.
Source = Callable[[str | None, int, int], PartitionId | None]


def with_records(failure: Failure, steps: Steps, store: Store, parts: Sequence[StagedTable], source: Source) -> Failure:
    """Add the rejected records to the error of a failed transaction, if the table rejected rows of it.

    Args:
        failure: of the transaction, which is rolled back.
        steps: of the transaction.
        store: of the pipeline.
        parts: the staged files of each table.
        source: of the record at a topic, a partition number and an offset.
    """
    if steps.current == "data" and isinstance(failure.error, SchemaConflict):
        failure.error.name(_refused(store, parts, source))
    return failure


def _refused(store: Store, parts: Sequence[StagedTable], source: Source) -> dict[PartitionId, dict[int, str]]:
    """Return the records whose rows a table rejects, with the reasons, by offset; none if the database cannot be queried."""
    found: dict[PartitionId, dict[int, str]] = {}
    places: list[Violation] = []
    try:
        with store.writing(row_bytes([part.all_files for part in parts])) as connection:  # rolled back
            _, there = store.engine.begin(connection, store.pipeline, store.tables)
            for exists, part in zip(there, parts, strict=False):
                if exists and part.files.rows:
                    places += _violations(store, connection, part)
    except KpipeError:
        return found
    except store.engine.errors:
        return found
    for topic, number, offset, reason in places:
        if offset is not None and (where := source(topic, number, offset)) is not None:
            found.setdefault(where, {})[offset] = reason
    return found


def _violations(store: Store, connection: Connection, part: StagedTable) -> Sequence[Violation]:
    table, commit, rows = part.table.name, part.commit, part.files.rows
    known = store.engine.prepare(connection, table, True, commit, rows)
    return store.engine.violations(connection, table, commit, rows, known)


def by_steps(commit: Commit) -> Source:
    """Return a `Source` for the records of a batch: None if two of its partitions have that topic, number and offset."""

    def source(topic: str | None, number: int, offset: int) -> PartitionId | None:
        fitting = (step for step in commit.steps if step.source.partition == number and offset in step.range)
        sources = [step.source for step in fitting if topic in (None, step.source.topic.name)]
        return sources[0] if len(sources) == 1 else None

    return source


def check_limit(pipeline: str, rules: Sequence[KeyRule | None], before: Ledger | None, commit: Commit, done: Commit) -> None:
    """Check the pipeline's limit on dead letters, after `merge` found duplicates.

    Args:
        pipeline: its name.
        rules: of its tables.
        before: the ledger before the commit; None: no table has a key.
        commit: the commit as planned.
        done: the commit with the outcome of its rows.

    Raises:
        DeadLettersExceeded: the commit would exceed the limit.
    """
    most = next((rule.most for rule in rules if rule is not None), None)
    new = done.totals.dead_letters
    if before is not None and most is not None and commit.totals.dead_letters < new and before.dead_letters + new > most:
        raise exceeded(pipeline, before, new, most, "a row of the same key is in the table")
