"""Find the commits that Dagster's event log contains."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import dagster as dg

from kpipe.interfaces import Publication
from kpipe_assets.publishing.events import newest_values
from kpipe_assets.publishing.metadata import END, LAST_BATCH, LAST_SEQ

__all__ = ["Shown", "shown_commits", "without_shown"]


@dataclass(frozen=True)
class Shown:
    """The newest commit in the event log of one partition.

    Attributes:
        seq: its sequence number; 0: none.
        batch: its batch id; "" in events that earlier versions of kpipe stored for partitions without new records.
        end: the next offset to read, as the event states it; -1: it states none.
    """

    seq: int = 0
    batch: str = ""
    end: int = -1

    def is_commit(self, seq: int, batch: str) -> bool:
        """Return whether it is this commit. Its number is not enough: numbers begin again in another ledger."""
        return self.seq == seq and self.batch in ("", batch)


def shown_commits(instance: dg.DagsterInstance, asset: dg.AssetKey, keys: Collection[str]) -> dict[str, Shown]:
    """Return the newest commit in the event log for each partition of an asset.

    It may be a commit of another ledger: of a pipeline before this one, of a rebuilt table, or of a destination before it was
    restored from a backup.

    Args:
        instance: Dagster instance.
        asset: the table.
        keys: of the partitions.
    """
    shown = dict.fromkeys(keys, Shown())
    for key, values in newest_values(instance, asset, keys, (LAST_SEQ, LAST_BATCH, END)).items():
        seq, end = values.get(LAST_SEQ), values.get(END)
        if isinstance(seq, int):
            shown[key] = Shown(seq, str(values.get(LAST_BATCH) or ""), end if isinstance(end, int) else -1)
    return shown


def without_shown(publications: Sequence[Publication], shown: Mapping[str, Shown]) -> list[Publication]:
    """Return the commits without the partitions whose events the log contains already.

    The log contains the commits of a partition up to its newest one, if that is one of these. Else none of these is in the log:
    a publisher that crashed had read them from the oldest on, and all that was marked as published is older. Two commits can have
    one number: of runs that commit to different tables by topic of a lake at the same time.
    """
    numbered = defaultdict[int, list[str]](list)
    for item in publications:
        numbered[item.seq].append(item.batch)
    covered = {
        key: last.seq
        for key, last in shown.items()
        if any(last.is_commit(last.seq, batch) for batch in numbered.get(last.seq, ()))
    }
    return [
        Publication(item.batch, item.seq, {key: value for key, value in item.metadata.items() if item.seq > covered.get(key, 0)})
        for item in publications
    ]
