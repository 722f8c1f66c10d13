"""Defects that were found by review, by the finding that each gives: with which destination, and in which words.

`python -m tests.combinations` on a tree that has them reports after how many examples each is found.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["DEFECTS", "Defect"]


@dataclass(frozen=True)
class Defect:
    """One defect.

    Attributes:
        name: what is wrong.
        destinations: with which it shows.
        finding: a regular expression that its findings match, and those of no other defect.
        definition: another one that the transcript matches; empty: any.
    """

    name: str
    destinations: tuple[str, ...]
    finding: str
    definition: str = ""

    def shows(self, destination: str, failure: str) -> bool:
        """Whether a failure is this defect."""
        found = re.search(self.finding, failure) and re.search(self.definition, failure)
        return destination in self.destinations and found is not None


_LAKES = ("delta", "iceberg", "parquet")

DEFECTS = (
    Defect("order of files that ranges share", ("kafka",), r"^C4 .* came behind", r"(?s)^(?!.*event \d+: backfill)"),
    Defect("rows of several topics in a block", ("kafka",), r"^C1 mix\w*: m_.*rows, \d+ are due", r"topics:"),
    Defect("a webhook's batch planned anew", ("webhook",), r"^C1 mix\w*: .*\b2 rows", r"answers=.*'(lost|cut)'"),
    Defect("times beyond the year 9999", (*_LAKES, "kafka", "webhook"), r"date value out of range"),
    Defect("a bounded pipeline stops itself", ("duckdb", *_LAKES, "kafka"), r"InvalidPipeline: source\.(start|end):"),
    Defect("a backfill that deletes forbid", ("duckdb",), r"^C3 .* is there, and was deleted", r"event \d+: set_offsets"),
    Defect("a dead letter blocks a retry", ("duckdb",), r"a statement fails with SchemaConflict: .*CHECK"),
    Defect(
        "another table is taken for one that is gone", ("duckdb", *_LAKES), r"LedgerMismatch: .* is missing, the ledger records"
    ),
    Defect("an infinite time in a document", ("kafka", "webhook"), r"^C8 .*:-?infinity"),
    Defect("a number of many digits", ("duckdb",), r"column x \(DOUBLE\) is"),
    Defect("old records behind newer ones of their key", ("kafka", "webhook"), r"^C4 .* of key", r"event \d+: backfill"),
    Defect("a default becomes NULL", ("duckdb",), r"^C3 .*: n is None"),
    Defect("a member's name with NUL", ("duckdb", *_LAKES, "kafka", "webhook"), r'"a\\0b"|a\x00b'),
)
