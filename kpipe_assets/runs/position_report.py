"""Report positions, lag and state of a pipeline, for `kpipe status` and the REST API."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from kpipe.errors import KpipeError
from kpipe.ledger.ledger import LOST, SKIPPED
from kpipe.planning.planner import lag
from kpipe.topics import part
from kpipe_assets.runs.dead_letter_topic import last_written
from kpipe_assets.runs.status import run_by, state_of
from resources.destinations import open_destination
from resources.home import Home

__all__ = ["describe", "unknown"]


def describe(home: Home, name: str, on: bool, served: bool) -> tuple[dict[str, Any], str | None]:
    """Return the object that `kpipe status --json` prints for a pipeline, and the current error of the brokers.

    Lag is null if the brokers do not answer. `last_error` is the error that the last run recorded, else that of the brokers.

    Args:
        home: KPIPE_HOME.
        name: the pipeline's name.
        on: whether its sensor is running.
        served: whether something runs the pipeline when its sensor is running.
    """
    from resources.sources.open_source import topics_of

    pipeline = home.pipeline(name)
    destination, multi_topic = open_destination(pipeline, home), pipeline.source.multi_topic
    _, ledger = destination.ledger()
    recorded: Mapping[str, Any] = next(iter(destination.view("pipelines")), {})
    if not recorded:  # before the first commit, only the home records how the last run ended
        recorded = {"last_error": home.noted(name).get("error")}
    batches = destination.view("batches_summary", limit=1)
    positions, high, behind, trouble = ledger.positions(), {}, None, None
    try:
        snapshot = topics_of(pipeline).snapshot()
        positions = {source: offset for source, offset in positions.items() if source in snapshot.partitions}
        high = {str(part(source, multi_topic)): state.high for source, state in sorted(snapshot.partitions.items())}
        behind = sum(lag(ledger, snapshot).values())
    except KpipeError as error:
        trouble = str(error)
    return {
        "pipeline": name,
        "state": state_of(home, name, on, served),
        "run_by": run_by(home, name),
        "positions": {str(part(source, multi_topic)): offset for source, offset in sorted(positions.items())},
        "high": high,
        "lag": behind,
        **{
            state: [f"{source} {item}" for source in ledger.sources() for item in ledger.unread(source, state).ranges]
            for state in (SKIPPED, LOST)
        },
        "last_batch": {
            "batch": batches[0]["batch_id"], "seq": batches[0]["seq"], "committed": _iso(batches[0].get("committed"))
        } if batches else None,
        "last_error": recorded.get("last_error") or trouble,
        "dead_letter_topic": last_written(home, pipeline),
    }, trouble  # fmt: skip


def unknown(home: Home, name: str, on: bool, served: bool, error: KpipeError) -> dict[str, Any]:
    """Return the object of a pipeline whose definition is invalid, or whose destination does not answer.

    Args:
        home: KPIPE_HOME.
        name: the pipeline's name.
        on: whether its sensor is running.
        served: whether something runs the pipeline when its sensor is running.
        error: the reason; it is `last_error`.
    """
    nothing: dict[str, Any] = {
        "positions": {},
        "high": {},
        "lag": None,
        SKIPPED: [],
        LOST: [],
        "last_batch": None,
        "dead_letter_topic": None,
    }
    state = {"pipeline": name, "state": state_of(home, name, on, served), "run_by": run_by(home, name)}
    return {**state, **nothing, "last_error": str(error)}


def _iso(moment: datetime | None) -> str | None:
    return moment.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ") if moment is not None else None
