"""Detect a program that expects SingleStore's framing, an 8-byte length before each record, but is given lines.

Two kinds of program are tried, in a trial or after a failure: a script whose text reads lengths, and a compiled program
that writes no row for lines. Each runs over a few records in both framings. Source of the framing: SingleStore's page
"Writing a Transform to Use with a Pipeline".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from kpipe.batch.batch import Piece
from kpipe.errors import TransformFailed
from kpipe.offsets import Range
from resources.spark.task.task_spec import JobSpec
from resources.spark.task.transform import payloads, program_for

__all__ = ["check_framing"]

# Reading 8 bytes, or unpacking an unsigned long: every published transform for SingleStore contains one of these.
_LENGTHS = re.compile(rb"\bread\w*\s*\(\s*8\s*\)|\bunpack\w*\s*\(\s*[bru]?['\"][@=<>!]?[LQ]['\"]|readBigU?Int64|\bgetLong\s*\(")
_CONTROL = re.compile(rb"[\0-\x08\x0b-\x1f]")
_LENGTH = 8
_LOOKED_AT = 1 << 16
_RECORDS = 8
_PATIENCE_S = 10.0
# Lines and bytes of output that are compared, and the time of a program that writes without end.
_MOST_LINES, _MOST_BYTES, _MOST_S = 1000, 1 << 20, 60.0


def check_framing(job: JobSpec, piece: Piece, without: Mapping[int, str]) -> None:
    """Reject a program that reads lengths but is given lines.

    Args:
        job: what the batch's tasks share.
        piece: a range whose first records are tried.
        without: reasons by offset of records that are not passed to the program.

    Raises:
        TransformFailed: the program reads lengths; the hint shows how to declare that.
        SourceError: the records could not be read.
    """
    spec = job.program
    if spec is None or spec.stdin != "lines":
        return
    text = _text(job, piece)
    compiled = not text.startswith(b"#!") and b"\0" in text
    if not compiled and _LENGTHS.search(text) is None:
        return
    few = replace(piece, range=Range(piece.range.start, min(piece.range.end, piece.range.start + _RECORDS)))
    plain = _lines(job, few, without)
    if compiled and plain:  # it writes rows for lines, so it probably reads lines
        return
    framed = _lines(replace(job, program=replace(spec, stdin="length-prefixed")), few, without)
    if framed and framed != plain and not _echoed(framed, compiled):
        raise TransformFailed(
            f"{piece.source}: the program reads the length of each record, 8 bytes, as SingleStore gives them: expected"
            " length-prefixed records, found lines",
            "declare it: WITH TRANSFORM (...) STDIN LENGTH_PREFIXED, or transform.stdin: length-prefixed",
        )


def _echoed(framed: list[bytes], compiled: bool) -> bool:
    """Return True if a program seems to take lengths for text and write them: each contains a NUL, where C ends a string."""
    if not compiled:
        return any(b"\0" in line for line in framed)
    return any(_CONTROL.search(line) for line in framed) or all(len(line) < _LENGTH for line in framed)


def _text(job: JobSpec, piece: Piece) -> bytes:
    """Return the beginning of the program's file."""
    assert job.program is not None
    with Path(program_for(job, job.program, piece, 0).argv[0]).open("rb") as file:
        return file.read(_LOOKED_AT)


def _lines(job: JobSpec, piece: Piece, without: Mapping[int, str]) -> list[bytes] | None:
    """Return the first lines that the program writes for the records, or None if it fails."""
    assert job.program is not None
    patient = replace(job.program, idle_timeout_s=min(job.program.idle_timeout_s, _PATIENCE_S))
    try:
        with job.reader(piece) as reader:
            return payloads(replace(job, program=patient), piece, reader, without, _MOST_LINES, _MOST_BYTES, _MOST_S)
    except TransformFailed:
        return None
