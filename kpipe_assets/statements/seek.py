"""Execute ALTER, BACKFILL and REPLAY PIPELINE: change fields, seek to offsets, read skipped offsets, retry dead letters."""

from __future__ import annotations

import getpass
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext

from kpipe.definition.pipeline import Pipeline
from kpipe.errors import Fenced, InvalidStatement
from kpipe.ledger.ledger import Ledger
from kpipe.planning.reconcile import Survey
from kpipe.planning.seek import Decision, backfills, forget, set_offsets
from kpipe.planning.start_offsets import moments
from kpipe.run_events import Decisions
from kpipe.sql.source_positions import pointing
from kpipe.sql.statements import (
    Alter,
    Backfill,
    Change,
    DropOrphans,
    DropPartition,
    ReloadLookups,
    ReloadTransform,
    Replay,
    SetField,
    SetOffsets,
)
from kpipe.topics import Part, PartitionId, TopicSnapshot, unnamed
from kpipe_assets.runs.rebuilt import finish
from kpipe_assets.runs.run_locks import is_running
from kpipe_assets.statements import definitions
from kpipe_assets.statements.excerpt import in_definition
from kpipe_assets.statements.result import Result
from kpipe_assets.validation import validate
from resources.destinations import open_destination
from resources.home import Home

__all__ = ["Wish", "alter", "backfill", "check_named", "decide", "replay", "survey"]

# Attempts: a current run may commit between reading the ledger and this commit. Each conflict may also fence that run.
_TRIES = 5

Wish = Callable[[Ledger, TopicSnapshot], Iterable[Decision]]


def alter(home: Home, statement: Alter) -> Result:
    """Execute ALTER PIPELINE. Check the fields before any change.

    Raises:
        InvalidStatement: a value is invalid, an offset does not exist, or SET OFFSETS is used while the pipeline is running.
        KpipeError: the brokers or the destination do not answer, or an operator must decide first.
    """
    finish(home, statement.pipeline)
    before = home.pipeline(statement.pipeline)
    fields = [change for change in statement.changes if isinstance(change, SetField)]
    moves = [change for change in statement.changes if isinstance(change, SetOffsets | DropPartition | DropOrphans)]
    reload = any(isinstance(change, ReloadTransform) for change in statement.changes)
    again = any(isinstance(change, ReloadLookups) for change in statement.changes)
    after = definitions.changed(before, fields, statement.places)
    notes: list[str] = []
    if fields or reload or again:
        with in_definition(after), pointing(statement.places, after.name):
            notes = validate(after, home)
    if reload and after.transform is None:
        raise InvalidStatement(f"pipeline {after.name} has no program to reload")
    if again and not after.lookups:
        raise InvalidStatement(f"pipeline {after.name} has no lookups to reload")
    done: list[str] = []
    writes = bool(fields or reload or again)
    # Also to reload a program or lookups: current runs keep the ones that they began with.
    with definitions.changing(home, before, after) if writes else nullcontext():
        for move in moves:
            if is_running(home, after.name):
                raise InvalidStatement(
                    f"pipeline {after.name} is running: its offsets cannot be changed", f"STOP PIPELINE {after.name} first"
                )
            done += decide(home, after, _wish(after, move), forgetting=isinstance(move, DropPartition | DropOrphans))
    if writes:
        reloaded = "program" if reload else "lookups"
        done.append(f"pipeline {after.name} changed" if fields else f"pipeline {after.name}: its {reloaded} will be reloaded")
    return Result("; ".join([*(done or [f"pipeline {after.name} is at these offsets already"]), *notes]))


def _wish(pipeline: Pipeline, move: Change) -> Wish:
    def wish(ledger: Ledger, snapshot: TopicSnapshot) -> Iterable[Decision]:
        match move:
            case DropPartition():
                check_named(pipeline, move.partition)
                return forget(ledger, snapshot, [move.partition], move.reread)
            case DropOrphans():
                return forget(ledger, snapshot, None)
            case SetOffsets():
                return set_offsets(ledger, snapshot, _targets(pipeline, move, snapshot), move.reread)
        raise AssertionError(move)

    return wish


def _targets(pipeline: Pipeline, move: SetOffsets, snapshot: TopicSnapshot) -> Mapping[PartitionId, int]:
    from resources.sources.open_source import topics_of

    if isinstance(move.to, dict):
        check_named(pipeline, *move.to)
    if move.to == "earliest":
        return {source: state.log_start for source, state in snapshot.partitions.items()}
    return moments(move.to, topics_of(pipeline), snapshot, sorted(snapshot.partitions), "OFFSETS")


def check_named(pipeline: Pipeline, *partitions: Part | None) -> None:
    """Check that partitions are named with their topic if there are several topics, and only then.

    Raises:
        InvalidStatement: a partition lacks its topic, or names one although the pipeline has only one.
    """
    wrong = unnamed((name for name in partitions if name is not None), pipeline.source.multi_topic)
    if wrong:
        raise InvalidStatement(f"pipeline {pipeline.name}: {wrong}")


def backfill(home: Home, statement: Backfill) -> Result:
    """Execute BACKFILL PIPELINE: read skipped offsets beside new ones. The pipeline may be running.

    Raises:
        NotAvailable: the definition requires records in Kafka's order (kpipe/verification/commit_order.py).
        KpipeError: the brokers or the destination do not answer, or an operator must decide first.
    """
    finish(home, statement.pipeline)
    pipeline = home.pipeline(statement.pipeline)
    check_named(pipeline, statement.partition)
    missing = 0

    def wish(ledger: Ledger, snapshot: TopicSnapshot) -> Iterable[Decision]:
        nonlocal missing
        decisions, missing = backfills(ledger, snapshot, statement.partition, statement.offsets)
        return decisions

    done = decide(home, pipeline, wish)
    words = done or [f"pipeline {pipeline.name}: no skipped offsets to read in this range"]
    if missing:
        words.append(f"{missing:,} skipped offsets do not exist in Kafka any more and stay skipped")
    return Result("; ".join(words))


def replay(home: Home, statement: Replay) -> Result:
    """Execute REPLAY PIPELINE: retry dead letters with the current definition. The pipeline may be running.

    Raises:
        NotAvailable: the destination, a table with a key, or the program's mode does not support it.
        KpipeError: it failed; earlier transactions of the retry stay committed.
    """
    from kpipe_assets.runs.dead_letter_retry import in_words, retry  # slow import: it loads the stager

    pipeline = home.pipeline(statement.pipeline)
    return Result(in_words(pipeline.name, retry(pipeline, home, f"{getpass.getuser()} in kpipe sql")))


def decide(home: Home, pipeline: Pipeline, wish: Wish, forgetting: bool = False) -> list[str]:
    """Commit the decisions of a wish for the current ledger and return their notes."""
    home.make()
    reader = survey(home, pipeline, forgetting)
    for attempt in range(1, _TRIES + 1):
        try:
            snapshot, ledger = reader.look()
            done = []
            for decision in wish(ledger, snapshot):
                reader.decide(decision.kind, decision.changes, f"{decision.note}; {reader.decisions.who}", decision.steps)
                done.append(decision.note)
            return done
        except Fenced:
            if attempt == _TRIES:
                raise
    raise AssertionError


def survey(home: Home, pipeline: Pipeline, forgetting: bool = False) -> Survey:
    """Return a survey of brokers and ledger on behalf of a statement."""
    from resources.sources.open_source import topics_of

    return Survey(
        pipeline=pipeline,
        topics=topics_of(pipeline),
        destination=open_destination(pipeline, home),
        decisions=Decisions(who=f"{getpass.getuser()} in kpipe sql"),
        seen=home.seen(pipeline.name),
        run_id="sql",
        forgetting=forgetting,
    )
