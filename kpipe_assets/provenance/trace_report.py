"""Report a traced offset: as a JSON object, and as lines of text."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any

from kpipe.batch.counts import SETTLED
from kpipe.provenance.explain import DEAD_LETTER, DELETE, FILTERED, GAP, PROCESSED, ROW, Answer, Evidence, Fate
from kpipe.provenance.facts import CommitInfo, Letter
from kpipe.terminal import plain
from kpipe_assets.provenance.tracing import Traced
from kpipe_assets.wording import count

__all__ = ["iso", "lines", "to_dict"]

_COUNTS = ("rows", "deletes", "dead_letters", "filtered", "gaps", "given")
_WORDS = {
    ROW: "row",
    DELETE: "tombstone, or change event, that deletes the row of its key",
    DEAD_LETTER: "dead letter",
    FILTERED: "filtered (no row on purpose)",
    GAP: "gap (no record: control record, aborted transaction or compacted)",
    PROCESSED: "passed to a program or an expression that may give any number of rows",
}
_OUTCOMES = {
    "ignored": "ignored: the table had a row of its key",
    "superseded": "merged by key, and not in the table now: a later record of its key, or another client, replaced or deleted it",
    "missing": "missing: the row was written, and is not in the table any more; kpipe did not delete it",
    "unknown": "the row cannot be searched in the table",
}
_STATES = {
    "not_read": "not read yet",
    "skipped": "skipped: not read, by a decision",
    "tried": "skipped: every batch with it failed, or its rows were cleared",
    "lost": "lost: deleted from Kafka before it was read, or claimed by a batch that has not landed (at_most_once)",
    "adopted": "adopted: another loader has read it; the decision below names the source of the position",
    "before_start": "before the start: the log began later when kpipe began to read the partition",
    "after_end": "after the end: the pipeline reads no further in this partition",
    "no_lane": "not read: the ledger has no lane that contains it",
}


def to_dict(traced: Traced) -> dict[str, Any]:
    """Return the object that `kpipe trace --json` prints."""
    answer, topic = traced.answer, traced.answer.source.topic
    lane, evidence = answer.lane, answer.evidence
    return {
        "pipeline": traced.pipeline,
        "topic": topic.name,
        "partition": answer.source.partition,
        "offset": answer.offset,
        "cluster_id": topic.cluster,
        "topic_id": topic.topic_id,
        "state": answer.state,
        "determined": answer.determined,
        "readings": [_reading(fate) for fate in answer.fates],
        "pending": answer.pending,
        "behind": answer.behind,
        "lane": None if lane is None else {"kind": lane.kind, "start": lane.start, "next": lane.next, "end": lane.end},
        "rereads": [_commit(commit) for commit in answer.rereads],
        "given_up": [_commit(commit) for commit in answer.given_up],
        "decisions": [_commit(commit) for commit in answer.decisions],
        "kafka": None if evidence is None else _kafka(evidence),
        "recreated": traced.recreated,
        "kafka_error": traced.trouble or None,
    }


def _kafka(evidence: Evidence) -> dict[str, Any]:
    return {name: getattr(evidence, name) for name in ("log_start", "end", "high", "present")}


def _reading(fate: Fate) -> dict[str, Any]:
    reading = fate.reading
    entry, snapshot = reading.entry, reading.snapshot
    return {
        **_commit(reading.commit),
        "range": [entry.range.start, entry.range.end],
        **{name: getattr(entry.counts, name) for name in (*_COUNTS, *SETTLED)},
        "decision": fate.decision or None,
        "possible": list(fate.possible),
        "tables": [item.table for item in reading.tables] or ([entry.table] if entry.table else []),
        "rows_found": dict(fate.rows),
        "rows_unattributed": dict(fate.unattributed),
        "outcome": fate.outcome or None,
        "errors": [_letter(letter) for letter in reading.letters],
        "retried": fate.retried,
        "cleared": fate.cleared,
        "snapshot": None if snapshot is None else str(snapshot.id),
    }


def _letter(letter: Letter) -> dict[str, Any]:
    return {"stage": letter.stage, "reason": letter.reason, "version": letter.version}


def _commit(commit: CommitInfo) -> dict[str, Any]:
    found = {name: getattr(commit, name) for name in ("batch", "seq", "kind", "run_id", "version")}
    return {**found, "committed": iso(commit.committed), "note": commit.note or None}


def iso(moment: datetime | None) -> str | None:
    """Format a time as ISO 8601 in UTC, in microseconds; None: unknown."""
    return None if moment is None else moment.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def lines(traced: Traced) -> Iterator[str]:
    """Return the lines that `kpipe trace` prints for an offset."""
    answer = traced.answer
    topic_id = answer.source.topic.topic_id
    yield f"{traced.pipeline}: {answer.source.topic.name}:{answer.source.partition}:{answer.offset}: {_headline(traced)}"
    if topic_id:
        yield f"  topic id {topic_id}" + (": the topic was recreated or deleted since" if traced.recreated else "")
    for fate in answer.fates:
        yield from (f"  {line}" for line in _fate(fate, answer))
    for commit in answer.rereads:
        done = any(fate.reading.commit.seq > commit.seq for fate in answer.fates)
        words = "read again" if done else "to be read again" if answer.pending else "was to be read again"
        yield f"  {words}, by commit {_at(commit)}"
    for commit in answer.given_up:
        yield f"  given up by commit {_at(commit)}: the receiver may have taken it"
    yield from (f"  {line}" for line in _waiting(answer))
    if traced.trouble:
        yield f"  Kafka does not answer: {traced.trouble}"
    if answer.state != "read" or answer.rereads:
        for commit in answer.decisions:
            yield f"  decision about the partition: commit {_at(commit)}: {plain(commit.note)}"


def _headline(traced: Traced) -> str:
    answer = traced.answer
    if answer.state == "not_read" and traced.recreated:
        return "not read: the topic with this id does not exist any more"
    if answer.state in ("skipped", "tried"):
        return _STATES[answer.state] + ("" if traced.recreated else "; BACKFILL PIPELINE reads it")
    if answer.state != "read":
        return _STATES[answer.state]
    standing = [fate for fate in answer.fates if not fate.cleared]
    if not standing:
        return "read, but the history has no range that contains it: run kpipe verify"
    times = f"read {len(standing)} times: " if len(standing) > 1 else ""
    return times + "; ".join(dict.fromkeys(_decision(fate) for fate in standing))


def _decision(fate: Fate) -> str:
    if not fate.possible:
        return "not determined: ledger, table and brokers contradict each other; run kpipe verify"
    if not fate.decision:
        return "not determined: " + " or ".join(_WORDS[item] for item in fate.possible)
    if fate.decision != ROW or not fate.rows:
        return _WORDS[fate.decision]
    return _rows(fate)


def _rows(fate: Fate) -> str:
    return " and ".join(f"{count(rows, 'row')} of table {table}" for table, rows in fate.rows.items())


def _fate(fate: Fate, answer: Answer) -> Iterator[str]:
    reading = fate.reading
    entry, counts = reading.entry, reading.entry.counts
    yield f"batch {entry.batch}, commit {_at(reading.commit)}" + (": its rows were cleared since" if fate.cleared else "")
    yield f"  run {reading.commit.run_id or '-'}, version {reading.commit.version or '-'}"
    if reading.snapshot is not None:
        yield f"  snapshot {reading.snapshot.id} of the table"
    parts = [_counted(getattr(counts, name), name) for name in (*_COUNTS, *SETTLED) if getattr(counts, name)]
    yield f"  range {entry.range}: {', '.join(parts) or 'empty'}"
    if len(answer.fates) > 1:
        yield f"  {_decision(fate)}"
    for letter in reading.letters:
        yield f"  dead letter, stage {plain(letter.stage)}: {plain(letter.reason)}"
    if reading.letters and fate.rows:
        yield f"  {_rows(fate)} as well"
    if fate.outcome:
        yield f"  {_OUTCOMES[fate.outcome]}"
    for table, rows in fate.unattributed.items():
        yield f"  table {table} has {count(rows, 'row')} of this partition and offset; another reading may have written them"
    if reading.letters and fate.retried != "no":
        failed = fate.retried == "failed_again"
        yield f"  retried: {'failed again' if failed else 'a retry has run since; the ledger does not list its records'}"
    elif fate.retried == "unknown":
        yield "  a retry of dead letters has run since: it may have written the row in place of the batch"
    if not answer.searched:
        yield "  rows and dead letters of this destination cannot be searched by offset"


def _counted(number: int, name: str) -> str:
    """Format a count of a range: nouns in the plural, other words as they are."""
    words = name.replace("_", " ")
    return count(number, words.removesuffix("s")) if words.endswith("s") else f"{number:,} {words}"


def _waiting(answer: Answer) -> Iterator[str]:
    evidence, lane = answer.evidence, answer.lane
    if answer.pending and lane is not None:
        kind = "live reading" if lane.open else "a backfill"
        yield f"waiting in {kind} at {lane.next:,}: {count(answer.behind or 0, 'offset')} before it"
    if evidence is None:
        return
    yield f"Kafka has offsets {evidence.log_start:,} to {evidence.end:,}" + (
        f", and an open transaction to {evidence.high:,}" if evidence.high > evidence.end else ""
    )
    if answer.offset >= evidence.high:
        yield "the offset does not exist yet"
    elif answer.offset >= evidence.end:
        yield "the offset is behind an open transaction"
    elif answer.offset < evidence.log_start and answer.pending:
        yield "Kafka has deleted the offset: the next run needs a decision, or records the loss"


def _at(commit: CommitInfo) -> str:
    moment = iso(commit.committed)
    return f"{commit.seq} ({commit.kind})" + (f" at {moment[:19].replace('T', ' ')} UTC" if moment else "")
