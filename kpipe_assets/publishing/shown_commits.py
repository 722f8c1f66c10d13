"""Find the commits that Dagster's event log contains."""

from __future__ import annotations

from collections.abc import Callable, Collection

import dagster as dg

from kpipe.ledger.ledger import Ledger
from kpipe_assets.publishing.events import newest_values
from kpipe_assets.publishing.metadata import LAST_SEQ, LEDGER

__all__ = ["shown_commits"]


def shown_commits(
    instance: dg.DagsterInstance, asset: dg.AssetKey, keys: Collection[str], ledger: Callable[[], tuple[str, Ledger]]
) -> dict[str, int]:
    """Return the newest commit of a ledger in the event log, for each partition of an asset; 0: none.

    An asset's events may be those of another ledger: of a pipeline before this one, of a rebuilt table, or of a destination
    before it was restored. Numbers of commits begin again in each ledger.

    Args:
        instance: Dagster instance.
        asset: the table.
        keys: of the partitions.
        ledger: returns registration id and ledger. It is called after the events are read: an event is stored after its commit.
    """
    found = newest_values(instance, asset, keys, (LAST_SEQ, LEDGER))
    if not found:
        return dict.fromkeys(keys, 0)
    uid, current = ledger()
    shown = dict.fromkeys(keys, 0)
    for key, values in found.items():
        seq = values.get(LAST_SEQ)
        if isinstance(seq, int) and values.get(LEDGER, uid) == uid and seq <= current.seq:
            shown[key] = seq
    return shown
