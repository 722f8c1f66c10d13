"""One `kpipe chaos` from plan to report: create the folder, disturb copies, write the report, remove what was created."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType
from typing import Any

from kpipe.definition.pipeline import Pipeline
from kpipe.errors import KpipeError, SourceError
from kpipe_assets.chaos.campaign import Campaign
from kpipe_assets.chaos.definition import check_copyable
from kpipe_assets.chaos.faults import Choice, points_of
from kpipe_assets.chaos.report import INCONCLUSIVE, INTERRUPTED, NOT_PROVEN, PROVEN, report
from kpipe_assets.chaos.staging import create_staging, staging_of
from kpipe_assets.chaos.window import Window, choose
from kpipe_assets.chaos.workspace import Workspace, unfinished
from kpipe_assets.wording import count
from resources.audit.topic_admin import TopicAdmin
from resources.destinations import open_destination
from resources.home import Home
from resources.kafka.topic_metadata import KafkaTopics

__all__ = ["Request", "clean", "execute", "plan_lines"]


@dataclass(frozen=True)
class Request:
    """Options of the command.

    Attributes:
        seed: of the faults.
        minutes: duration of the faults.
        most: maximum number of offsets.
        newest: whether to load the newest offsets, or the oldest ones.
        keep: whether to keep the copies.
    """

    seed: int
    minutes: float = 5.0
    most: int = 100_000
    newest: bool = True
    keep: bool = False


def plan_lines(pipeline: Pipeline, home: Home, request: Request, window: Window, workspace: Workspace) -> Iterator[str]:
    """Yield the text that is printed before anything is created."""
    ranges = ", ".join(f"{name} {span}" for name, span in list(window.named().items())[:10])
    more = f" and {len(window.ranges) - 10:,} more" if len(window.ranges) > 10 else ""
    tables = ", ".join(table.table for table in pipeline.tables)
    name = f"{workspace.copy_prefix}_N"
    yield f"kpipe chaos {pipeline.name}: {request.minutes:g} minutes of faults, seed {request.seed}"
    yield f"reads:  {count(len(window), 'offset')} of {pipeline.source} at {pipeline.source.bootstrap}: partitions {ranges}{more}"
    yield f"        columns and key of {tables} in {open_destination(pipeline, home).describe()}"
    copied = [name for name, lookup in pipeline.lookups.items() if lookup.kind in ("table", "query")]
    if copied:
        yield f"        lookups that copies read from files: {', '.join(copied)}"
    if pipeline.transform is not None:
        yield f"runs:   {pipeline.transform.program}, many times, on these records: what it writes elsewhere is real"
    yield f"writes: {workspace.path}: definitions, staged files, logs, report"
    yield f"        for copies N = 0, 1, 2, ...: {workspace.place(name).describe()}: tables {name}..., dead letters, ledger"
    if workspace.manifest.staging:
        yield f"        {workspace.manifest.staging}: staged files"
    kept = (
        f"copies are kept; remove them: kpipe chaos --clean {pipeline.name}" if request.keep else "copies are removed at the end"
    )
    yield f"        {kept}"
    yield f"never:  {tables}, ledger and dead letters of {pipeline.name}; topics; consumer groups"


def execute(
    pipeline: Pipeline,
    home: Home,
    request: Request,
    on_plan: Callable[[str], None],
    on_progress: Callable[[str], None],
    dry: bool = False,
) -> dict[str, Any] | None:
    """Disturb copies of the pipeline, prove and remove them; return the report. None: only the plan was requested.

    Ctrl-C and SIGTERM end it early, with a report.

    Args:
        pipeline: the definition.
        home: its home.
        request: options.
        on_plan: called with each line of the plan.
        on_progress: called with each line of progress.
        dry: whether to end after the plan.

    Raises:
        KpipeError: the pipeline cannot be copied, fails without faults, or a copy cannot be removed.
    """
    check_copyable(pipeline)
    topics = KafkaTopics(pipeline.source)
    window = choose(pipeline.source, topics, topics.snapshot(), request.most, request.newest)
    workspace = Workspace.planned(home, pipeline, request.seed)
    workspace.manifest.staging, workspace.manifest.kept = staging_of(os.environ, workspace.copy_prefix), request.keep
    for line in plan_lines(pipeline, home, request, window, workspace):
        on_plan(line)
    if dry:
        return None
    home.make()
    with workspace.make().locked(), _interruptible():
        return _executed(workspace, home, request, topics, window, on_progress)


def _executed(
    workspace: Workspace,
    home: Home,
    request: Request,
    topics: KafkaTopics,
    window: Window,
    on_progress: Callable[[str], None],
) -> dict[str, Any]:
    began, interrupted, campaign = time.monotonic(), False, None
    pipeline = workspace.pipeline
    program, audited = pipeline.transform is not None, bool(pipeline.into.audit)
    try:
        create_staging(workspace.manifest.staging)
        choice = Choice(request.seed, points_of(program, audited), program)
        campaign = Campaign(workspace, home, window, choice, request.minutes, request.keep, os.environ, on_progress)
        with suppress(KeyboardInterrupt):
            interrupted = True
            campaign.run()
            interrupted = False
    except BaseException:
        if not request.keep:
            workspace.clean()
        if not any(workspace.runs.iterdir()):
            workspace.remove()
        raise
    verdict, reason = _verdict(campaign, topics, interrupted)
    try:
        if not request.keep:
            on_progress("removing the copies")
            workspace.clean()
    finally:
        found = report(campaign, verdict, time.monotonic() - began, reason)
        (workspace.path / "report.json").write_text(json.dumps(found, indent=1, default=str), encoding="utf-8")
    return found


def _verdict(campaign: Campaign, topics: KafkaTopics, interrupted: bool) -> tuple[str, str]:
    """Return the verdict, and the reason why it is inconclusive."""
    if interrupted:
        return INTERRUPTED, ""
    if not campaign.findings:
        hit = any(fault.hit for fault in campaign.faults)
        return (PROVEN, "") if hit else (INCONCLUSIVE, "no fault took effect: raise --minutes, or use another --seed")
    reason = ""
    with suppress(SourceError):
        reason = campaign.window.changed(topics.snapshot())
        if not reason and {finding.kind for finding in campaign.findings} <= {"differs", "not_deterministic"}:
            reason = _compacted(campaign)
    return (INCONCLUSIVE, reason) if reason else (NOT_PROVEN, "")


def _compacted(campaign: Campaign) -> str:
    """Return the reason if compaction may have removed records between the loads of two copies."""
    source = campaign.workspace.pipeline.source
    for name in campaign.window.topics:
        one = source.model_copy(update={"topic": name, "topics": None, "topic_pattern": None})
        if "compact" in TopicAdmin(one).cleanup_policy():
            return f"cleanup.policy of {name} is compact: copies differ if records were removed between their loads"
    return ""


def clean(home: Home, name: str, on_progress: Callable[[str], None]) -> int:
    """Remove what earlier calls for a pipeline have left, also kept copies; return how many were removed.

    Raises:
        KpipeError: something cannot be removed; all else was.
    """
    removed, failed = 0, None
    for path in unfinished(home, name):
        workspace = Workspace.open(home, path)
        if workspace.is_running():
            on_progress(f"{path}: in use by a running kpipe chaos; unchanged")
            continue
        try:
            with workspace.locked():
                for what in workspace.clean():
                    on_progress(f"removed {what}")
            removed += 1
        except KpipeError as error:
            failed = failed or error
    if failed is not None:
        raise failed
    return removed


@contextmanager
def _interruptible() -> Iterator[None]:
    """Treat SIGTERM like Ctrl-C while inside: copies are removed before the process ends."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
