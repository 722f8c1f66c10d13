"""Check the number of records out of a program against the number of records in."""

from __future__ import annotations

from kpipe.errors import TransformFailed

MODES = ("map", "filter", "flatmap")


def check_counts(mode: str, records_in: int, lines_out: int, where: str = "", unit: str = "line") -> None:
    """Check a program's counts by its mode: `map` one out for each record, `filter` at most one, `flatmap` any number.

    Only `map` proves that a program has processed every record. A program that reads its input into a buffer and ignores it
    is indistinguishable from a filter.

    Args:
        mode: one of MODES.
        records_in: records that were given to the program.
        lines_out: records that it wrote.
        where: coordinates for the message, such as `tweets/3 [120,240)`.
        unit: name of what it writes for a record, for the message.

    Raises:
        TransformFailed: the counts do not fit the mode.
        ValueError: the mode does not exist.
    """
    if mode not in MODES:
        raise ValueError(f"no such mode: {mode!r}; there are {', '.join(MODES)}")
    at = f" ({where})" if where else ""
    if mode == "map" and lines_out != records_in:
        raise TransformFailed(
            f"transform in mode map{at}: {records_in:,} records in, {lines_out:,} out",
            f"write exactly one {unit} for each record, or declare mode: filter or mode: flatmap",
            "count",
        )
    if mode == "filter" and lines_out > records_in:
        raise TransformFailed(
            f"transform in mode filter{at}: {records_in:,} records in, {lines_out:,} out",
            f"write at most one {unit} for each record, or declare mode: flatmap",
            "count",
        )
