"""Read what the ledgers and tables by topic contain about an offset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from kpipe.errors import InvalidPipeline
from kpipe.ledger.ledger import Ledger
from kpipe.provenance.facts import Facts, Found, Query, Reading, RowSources, Snapshot
from resources.destinations.lakehouse import commit_log
from resources.destinations.lakehouse.current_reads import at_one_version
from resources.destinations.lakehouse.destination import LakeDestination
from resources.destinations.lakehouse.topics.seen import Seen

__all__ = ["TableVersions", "TopicTracing"]


class TableVersions:
    """The states of one table, with the numbers of the pipeline's commits; see `Versioned`.

    Args:
        place: the table.
        seen: the same with its ledger; None: nothing is committed.
    """

    def __init__(self, place: LakeDestination, seen: Seen | None) -> None:
        self._place, self._seen = place, seen

    def snapshots(self, seqs: Sequence[int]) -> Mapping[int, Snapshot]:
        """Return the snapshots that these commits of the pipeline made in the table."""
        if self._seen is None:
            return {}
        items = commit_log.items(self._place.lake.ledger, self._seen.record)
        numbers = {item["commit"]["seq"]: item["number"] for item in items if item["number"] in seqs}
        found = self._place.snapshots(list(numbers))
        return {numbers[seq]: replace(snapshot, seq=numbers[seq]) for seq, snapshot in found.items()}

    def writers(self, table: str) -> Sequence[str]:
        """Return the pipelines that have committed to the table."""
        return self._place.writers(table)

    def queries(self, snapshot: Snapshot, condition: str = "") -> Sequence[Query]:
        """Return queries of a snapshot."""
        return self._place.queries(snapshot, condition)

    def row_sources(self, table: str) -> RowSources:
        """Return how the rows of the table name the source of their records."""
        return self._place.row_sources(table)


class TopicTracing:
    """The methods of `Traceable` and `VersionedTables`, for `TopicLakes`: each topic is traced in its own table."""

    def place(self, table: str) -> LakeDestination:
        """Return the destination of a table."""
        raise NotImplementedError

    def seen(self, topic: str | None = None) -> list[Seen]:
        """Read the tables of topics."""
        raise NotImplementedError

    def ledger(self) -> tuple[str, Ledger]:
        """Return registration id and ledger."""
        raise NotImplementedError

    @at_one_version
    def trace(self, topic: str, partition: int, offset: int) -> Facts:
        """Return what is recorded about an offset; see `Traceable`."""
        found = self.seen(topic)
        if not found:
            return Facts(self.ledger()[1])
        facts = found[0].place.trace(topic, partition, offset)
        wanted = {reading.commit.batch for reading in facts.readings} | {item.batch for item in facts.decisions}
        numbers = {
            item["commit"]["batch_id"]: item["commit"]["seq"]
            for item in (found[0].items() if wanted else ())
            if item["commit"]["batch_id"] in wanted
        }
        return replace(
            facts,
            readings=[_renumbered(reading, numbers) for reading in facts.readings],
            decisions=[replace(item, seq=numbers.get(item.batch, item.seq)) for item in facts.decisions],
        )

    def rows_at(self, table: str, where: Mapping[str, str], limit: int) -> Sequence[Found]:
        """Return the coordinates of rows; see `Traceable`."""
        known = self.seen()
        for seen in known:
            if seen.place.table.lower() == table.lower():
                return seen.place.rows_at(table, where, limit)
        names = [seen.place.table for seen in known]
        raise InvalidPipeline(f"no table {table!r}", f"tables: {', '.join(names[:20]) or 'none'}")

    def versions(self, table: str) -> TableVersions:
        """Return the states of a table; see `VersionedTables`."""
        place = self.place(table)
        return TableVersions(place, next((seen for seen in self.seen() if seen.place is place), None))


def _renumbered(reading: Reading, numbers: Mapping[str, int]) -> Reading:
    seq = numbers.get(reading.commit.batch, reading.commit.seq)
    snapshot = replace(reading.snapshot, seq=seq) if reading.snapshot is not None else None
    return replace(reading, entry=replace(reading.entry, seq=seq), commit=replace(reading.commit, seq=seq), snapshot=snapshot)
