"""Find the newest commit of each partition in the ledger that is published: decisions of an operator have no metadata."""

from __future__ import annotations

from dataclasses import dataclass

from kpipe.definition.pipeline import Pipeline
from kpipe.interfaces import Destination
from kpipe.verification.clearing import CLEARED
from resources.destinations.ledger_rows import UNREAD

__all__ = ["Newest", "newest_commits"]

# `closed_by` of ranges that a decision recorded: offsets to read again, given up, or of a cleared table.
_DECIDED = (*UNREAD, CLEARED)


@dataclass(frozen=True)
class Newest:
    """The newest commit of a partition.

    Attributes:
        seq: its sequence number.
        batch: its batch id.
        end: end offset of its range, exclusive.
        former_key: the partition's key before an edit from `topic` to `topics`, or after it from `topics` to `topic`.
    """

    seq: int
    batch: str
    end: int
    former_key: str


def newest_commits(pipeline: Pipeline, destination: Destination, table: str, first: bool = True) -> dict[str, Newest]:
    """Read the newest commit of each partition that wrote to a table, by partition key, without decisions about offsets.

    Args:
        pipeline: the definition.
        destination: contains the ledger.
        table: name of the table's asset. Commits from before an edit of `into.table` were published for another asset.
        first: whether it is the table of `into`, and not one of `also`.
    """
    newest, several = dict[str, Newest](), pipeline.source.multi_topic
    for row in destination.view("batches" if first else "targets"):
        if not pipeline.into.is_template and str(row.get("target_table") or table).lower() != table.lower():
            continue
        if row.get("closed_by") in _DECIDED:
            continue
        if not several and row["topic"] not in pipeline.source.names:  # before an edit of `topics` to `topic`
            continue
        keys = (str(row["batch_source_partition_id"]), f"{row['topic']}:{row['batch_source_partition_id']}")
        known, seq = newest.get(keys[several]), int(row["seq"])
        if known is None or seq > known.seq:
            end = int(row["batch_latest_offset"])
            newest[keys[several]] = Newest(seq, str(row["batch_id"]), end, keys[not several])
    return newest
