"""Errors that a course of events explains: refusals that the guides describe, and policies that stop a run."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kpipe.errors import KpipeError, OffsetsLost
from tests.combinations.crashes import Fault
from tests.combinations.example import Event
from tests.combinations.truth import DELETE, ROW, TRUNCATE, fates
from tests.combinations.values import DEAD

if TYPE_CHECKING:
    from tests.combinations.course import Course

__all__ = ["explained", "may_stop", "refusal"]


def refusal(course: Course, error: KpipeError) -> bool:
    """Whether a statement may be refused so."""
    if type(error).__name__ in ("InvalidStatement", "NotAvailable", "InvalidPipeline", "OffsetsLost"):
        return True
    # A webhook's batch that may have been taken must be finished, or given up, first (docs/how-to/destinations/webhook.md).
    return course.definition.destination == "webhook" and "is not finished, and the receiver may have taken" in str(error)


def explained(course: Course, error: KpipeError, event: Event, fault: Fault | None, waiting: bool) -> bool:
    """Whether the course of events is a reason for the error of a run."""
    kind = type(error).__name__
    if "transaction_timeout_s" in str(error) and course.definition.timeout:
        return True
    if fault is not None and fault.reached and not fault.outlives:
        return True
    if isinstance(error, OffsetsLost):
        return course.lossy
    if kind == "DeadLettersExceeded":
        return course.definition.most_dead is not None
    if kind == "InvalidPipeline" and (course.bounds or (course.has("lose") and "has no offset" in str(error))):
        return True
    if kind in ("DestinationError", "DestinationBusy", "SchemaConflict", "RecordRejected") and event.answers:
        return True
    if _lacks_row(course, error):
        return True
    named = re.search(r"(?:^|\W)offset \d+|m_[abc]/\d+ \[?\d+", str(error)) is not None
    return waiting and (kind in ("RecordRejected", "SchemaConflict") or (kind == "DestinationError" and named))


def _lacks_row(course: Course, error: KpipeError) -> bool:
    """Whether the error names an update that left out a value, and the table may have no row of its key by then."""
    named = re.search(r"partition (\d+) offset (\d+)", str(error))
    if named is None or not course.definition.envelope:
        return False
    partition, offset = map(int, named.groups())
    return any(
        number == partition and len(log.records) > offset and _may_be_absent(course, topic, partition, offset)
        for topic, number, log in course.cluster.places()
    )


def _may_be_absent(course: Course, topic: str, partition: int, offset: int) -> bool:
    """Whether the record leaves out a value, and a delete may be the last write of its key before it.

    Records of other partitions may come in any order; deletes of one that were read may be there.
    """
    wanted = course.cluster.log(topic, partition).records[offset].meaning
    if wanted is None or not wanted.left_out:
        return False
    states, others, positions = {wanted.key in course.row_keys()}, set[bool](), course.positions()
    for name, number, log in course.cluster.places():
        own = (name, number) == (topic, partition)
        for record in log.records[positions.get((name, number), log.start) : offset if own else None]:
            meaning = record.meaning
            found = fates(meaning, course.definition) if meaning is not None else frozenset()
            if meaning is None or not (meaning.key == wanted.key or TRUNCATE in found):
                continue
            after = {ROW in found} if {DELETE, ROW, TRUNCATE} & found else set[bool]()
            if own:
                states = after if found <= {ROW, DELETE, TRUNCATE} and after else states | after
            else:
                others |= after
    return False in states | others


def may_stop(course: Course) -> bool:
    """Whether a record that has not been read must, or may, stop a run by the policies."""
    definition, positions = course.definition, course.positions()
    for topic, number, log in course.cluster.places():
        for record in log.records[positions.get((topic, number), log.start) :]:
            meaning = record.meaning
            if meaning is None:
                continue
            unsure = (meaning.cell is not None and DEAD in meaning.cell.want) or meaning.far or meaning.kind == "violating"
            strict = "fail" in (definition.parse, definition.constraint)
            if not fates(meaning, definition) or (unsure and strict):
                return True
    return False
