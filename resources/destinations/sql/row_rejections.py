"""What stands in the way of a commit because of single records: rows that a table refuses, and duplicates beyond the limit."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kpipe.batch.batch import Commit
from kpipe.errors import KpipeError
from kpipe.ledger.ledger import Ledger
from kpipe.planning.preconditions import exceeded
from kpipe.tables.upsert import KeyRule
from kpipe.topics import PartitionId
from resources.destinations.sql.hooks import Hooks
from resources.destinations.staged_file_check import Writes

__all__ = ["Source", "by_steps", "check_limit", "refused"]

#: Finds the source of the record at a partition number and an offset; None where it is not known.
Source = Callable[[int, int], PartitionId | None]


def refused(
    destination: Hooks, parts: Sequence[tuple[Hooks, Commit]], staged: Sequence[Writes], source: Source
) -> dict[PartitionId, dict[int, str]]:
    """Records of a batch whose rows a table refuses, with the reasons, by offset; none where that cannot be said.

    Args:
        destination: makes the connection.
        parts: the tables, and what is written to each.
        staged: its files.
        source: of the record at a partition number and an offset.
    """
    found: dict[PartitionId, dict[int, str]] = {}
    places: list[tuple[int, int | None, str]] = []
    try:
        with destination._writing() as connection:  # rolled back
            _, there = destination._begin(connection)
            for exists, writes, (table, part) in zip(there, staged, parts, strict=False):
                places += table._violations(connection, part, writes.rows) if exists and writes.rows else ()
    except KpipeError:
        return found
    except destination.failures:
        return found
    for number, offset, reason in places:
        if offset is None:
            continue
        if (where := source(number, offset)) is not None:
            found.setdefault(where, {})[offset] = reason
    return found


def by_steps(commit: Commit) -> Source:
    """Return what finds the source of a record of a batch: None where two topics of the batch have that number and offset."""

    def source(number: int, offset: int) -> PartitionId | None:
        sources = [s.source for s in commit.steps if s.source.partition == number and offset in s.range]
        return sources[0] if len(sources) == 1 else None

    return source


def check_limit(pipeline: str, rules: Sequence[KeyRule | None], before: Ledger | None, commit: Commit, done: Commit) -> None:
    """The pipeline's limit on dead letters, where rows have turned out to be duplicates.

    Args:
        pipeline: its name.
        rules: of its tables.
        before: the ledger before the commit; None: no table has a key.
        commit: what was to be written.
        done: what became of it.

    Raises:
        DeadLettersExceeded: it would be passed.
    """
    most = next((rule.most for rule in rules if rule is not None), None)
    new = done.totals.dead_letters
    if before is not None and most is not None and commit.totals.dead_letters < new and before.dead_letters + new > most:
        raise exceeded(pipeline, before, new, most, "a row of the same key is in the table")
