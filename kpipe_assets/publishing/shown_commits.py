"""Find the commits that Dagster's event log contains."""

from __future__ import annotations

from collections.abc import Collection

import dagster as dg

from kpipe.interfaces import Destination
from kpipe_assets.publishing.events import newest_values
from kpipe_assets.publishing.metadata import LAST_SEQ, LEDGER

__all__ = ["shown_commits"]


def shown_commits(
    instance: dg.DagsterInstance, asset: dg.AssetKey, keys: Collection[str], destination: Destination
) -> dict[str, int]:
    """Return the newest commit of a destination's ledger in the event log, for each partition of an asset; 0: none.

    An asset's events may be those of another ledger: of a pipeline before this one, of a rebuilt table, or of a destination
    before it was restored. Numbers of commits begin again in each ledger.

    Args:
        instance: Dagster instance.
        asset: the table.
        keys: of the partitions.
        destination: contains the ledger.
    """
    found = newest_values(instance, asset, keys, (LAST_SEQ, LEDGER))
    if not found:
        return dict.fromkeys(keys, 0)
    uid, ledger = destination.ledger()  # read last: an event is stored after its commit
    shown = dict.fromkeys(keys, 0)
    for key, values in found.items():
        seq = values.get(LAST_SEQ)
        if isinstance(seq, int) and values.get(LEDGER, uid) == uid and seq <= ledger.seq:
            shown[key] = seq
    return shown
