"""ALTER, BACKFILL and REPLAY PIPELINE: other values in the definition, other places in the topic, dead letters once more."""

from __future__ import annotations

import getpass
from collections.abc import Callable, Iterable, Mapping

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
from kpipe_assets.runs.run_locks import is_running
from kpipe_assets.statements import definitions
from kpipe_assets.statements.excerpt import in_definition
from kpipe_assets.statements.result import Result
from kpipe_assets.validation import validate
from resources.destinations import open_destination
from resources.home import Home

__all__ = ["Wish", "alter", "backfill", "check_named", "decide", "replay", "survey"]

# A run at work commits between our look and our commit; each such miss costs it a batch, too, so that few follow.
_TRIES = 5

Wish = Callable[[Ledger, TopicSnapshot], Iterable[Decision]]


def alter(home: Home, statement: Alter) -> Result:
    """ALTER PIPELINE: what is wrong in any part is said before anything is changed.

    Raises:
        InvalidStatement: a value is wrong, an offset does not exist, or the pipeline is running and would be moved.
        KpipeError: the brokers or the destination do not answer, or an operator must decide first.
    """
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
    done = []
    for move in moves:
        if is_running(home, after.name):
            raise InvalidStatement(
                f"pipeline {after.name} is running, and would be moved under its feet", f"STOP PIPELINE {after.name} first"
            )
        done += decide(home, after, _wish(after, move), forgetting=isinstance(move, DropPartition | DropOrphans))
    if fields or reload or again:
        definitions.save(home, after)  # also for a program or a lookup: runs at work hold those that they began with
        what = "program" if reload else "lookups"
        done.append(f"pipeline {after.name} changed" if fields else f"pipeline {after.name}: its {what} will be read again")
    return Result("; ".join([*(done or [f"pipeline {after.name} stands there already"]), *notes]))


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
    from resources.kafka.topic_metadata import KafkaTopics

    if isinstance(move.to, dict):
        check_named(pipeline, *move.to)
    if move.to == "earliest":
        return {source: state.log_start for source, state in snapshot.partitions.items()}
    return moments(move.to, KafkaTopics(pipeline.source), snapshot, sorted(snapshot.partitions), "OFFSETS")


def check_named(pipeline: Pipeline, *partitions: Part | None) -> None:
    """Of several topics, a statement says which one it means.

    Raises:
        InvalidStatement: one of the partitions lacks its topic, or has one although there is only one.
    """
    wrong = unnamed((name for name in partitions if name is not None), pipeline.source.several)
    if wrong:
        raise InvalidStatement(f"pipeline {pipeline.name}: {wrong}")


def backfill(home: Home, statement: Backfill) -> Result:
    """BACKFILL PIPELINE: what was skipped is read once more, beside what is new; it may go on running.

    Raises:
        NotAvailable: the definition needs Kafka's order (kpipe/verification/commit_order.py).
        KpipeError: the brokers or the destination do not answer, or an operator must decide first.
    """
    pipeline = home.pipeline(statement.pipeline)
    check_named(pipeline, statement.partition)
    gone = 0

    def wish(ledger: Ledger, snapshot: TopicSnapshot) -> Iterable[Decision]:
        nonlocal gone
        found, gone = backfills(ledger, snapshot, statement.partition, statement.offsets)
        return found

    done = decide(home, pipeline, wish)
    words = done or [f"pipeline {pipeline.name}: nothing that can be read was skipped there"]
    if gone:
        words.append(f"{gone:,} skipped offsets are gone from Kafka, and stay skipped")
    return Result("; ".join(words))


def replay(home: Home, statement: Replay) -> Result:
    """REPLAY PIPELINE: dead letters are run through the definition as it is now; it may go on running.

    Raises:
        NotAvailable: the destination, rows with a key, or a program's mode.
        KpipeError: it failed; what was tried before stands.
    """
    from kpipe_assets.runs.dead_letter_retry import in_words, retry  # only now: it loads what stages records

    pipeline = home.pipeline(statement.pipeline)
    return Result(in_words(pipeline.name, retry(pipeline, home, f"{getpass.getuser()} in kpipe sql")))


def decide(home: Home, pipeline: Pipeline, wish: Wish, forgetting: bool = False) -> list[str]:
    """Commit what a wish means for the ledger as it is now; what was done, in words."""
    home.make()
    looking = survey(home, pipeline, forgetting)
    for attempt in range(1, _TRIES + 1):
        try:
            snapshot, ledger = looking.look()
            done = []
            for decision in wish(ledger, snapshot):
                looking.decide(decision.kind, decision.changes, f"{decision.note}; {looking.decisions.who}", decision.steps)
                done.append(decision.note)
            return done
        except Fenced:
            if attempt == _TRIES:
                raise
    raise AssertionError


def survey(home: Home, pipeline: Pipeline, forgetting: bool = False) -> Survey:
    """Look at brokers and ledger, as a statement does."""
    from resources.kafka.topic_metadata import KafkaTopics

    return Survey(
        pipeline=pipeline,
        topics=KafkaTopics(pipeline.source),
        destination=open_destination(pipeline, home),
        decisions=Decisions(who=f"{getpass.getuser()} in kpipe sql"),
        seen=home.seen(pipeline.name),
        run_id="sql",
        forgetting=forgetting,
    )
