"""Read the ledgers of tables by topic as that of their pipeline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kpipe.ledger.ledger import checksum
from resources.destinations.lakehouse import commit_log
from resources.destinations.lakehouse.destination import LakeDestination
from resources.destinations.lakehouse.ledger_file import Record
from resources.destinations.lakehouse.table_format import State
from resources.destinations.lakehouse.topics.first_lanes import FirstLanes
from resources.destinations.lakehouse.topics.split_commit import numbered

__all__ = ["Seen", "merged"]


@dataclass(frozen=True)
class Seen:
    """A topic's table with the pipeline's ledger in it, at one version.

    Attributes:
        topic: its name.
        place: the table.
        state: the version.
        record: the ledger of the topic.
    """

    topic: str
    place: LakeDestination
    state: State
    record: Record

    def items(self, **how: Any) -> Iterator[dict[str, Any]]:
        """Read the commits, with the numbers of the pipeline's commits; see `commit_log.items`."""
        return (numbered(item, self.place.table) for item in commit_log.items(self.place.lake.ledger, self.record, **how))


def merged(pipeline: str, uid: str, template: str, found: Sequence[Seen], decided: Mapping[str, FirstLanes]) -> Record:
    """Return the ledgers of tables as that of the pipeline. Its number is the highest of a table's last commit or a decision.

    Args:
        pipeline: its name.
        uid: its registration id.
        template: `into.table`.
        found: the tables.
        decided: the first lanes of topics whose tables have no commit yet, by topic.
    """
    records = [seen.record for seen in found]
    lanes = {key: lane for record in records for key, lane in record.lanes.items()}
    lanes |= {lane.key: lane for topic, first in decided.items() for lane in first.lanes(topic)}
    last = max(records, key=lambda record: (record.number, record.updated), default=Record(pipeline, uid))
    return Record(
        pipeline,
        uid,
        seq=max([last.number, *(first.number for first in decided.values())]),
        seal=checksum(lanes.values()),
        lanes=lanes,
        table=template,
        rows=sum(record.rows for record in records),
        dead_letters=sum(record.dead_letters for record in records),
        skipped=sum(record.skipped for record in records),
        last=last.last,
        created=min((record.created for record in records), default=0.0),
        updated=max((record.updated for record in records), default=0.0),
        config=last.config,
        ends={key: row for record in records for key, row in record.ends.items()},
    )
