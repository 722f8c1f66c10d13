"""Prove a copy: its own ledger, an audit that shares no code with the loader, and the rows of an undisturbed copy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kpipe.definition.pipeline import Pipeline
from kpipe.offsets import Overlap, Range, RangeSet
from kpipe.tables.multi_table import multiplies, table_pipelines
from kpipe.tables.upsert import KeyRule
from kpipe.verification.verify import Audit
from kpipe_assets.chaos.window import Window
from kpipe_assets.runs.proof import prove
from resources.audit.run import Request, run
from resources.audit.table_address import TableAddress
from resources.home import Home
from resources.object_store.uri import is_remote

__all__ = ["Proof", "addresses", "not_auditable", "prove_copy"]

_COUNTS = ("span", "rows", "deletes", "dead_letters", "filtered", "gaps")


@dataclass
class Proof:
    """Result for one copy.

    Attributes:
        verify: the object of `kpipe verify --json`.
        audits: by topic: verdict, records without a row, and the folder of the report.
        not_audited: why there is no audit; empty if there is one.
        problems: everything that prevents a proof, one sentence each.
    """

    verify: dict[str, Any] = field(default_factory=dict)
    audits: dict[str, dict[str, Any]] = field(default_factory=dict)
    not_audited: str = ""
    problems: list[str] = field(default_factory=list)

    @property
    def counts(self) -> dict[str, dict[str, int]]:
        """Offsets, rows, dead letters and so on, by partition."""
        found: Mapping[str, Mapping[str, Any]] = self.verify.get("partitions", {})
        return {name: {key: int(item[key]) for key in _COUNTS} for name, item in found.items()}

    def rows_of(self, table: str) -> int:
        """Return the number of rows that `kpipe verify` found in a table; the first one is not named in its result."""
        if table in self.verify.get("targets", {}):
            return int(self.verify["targets"][table]["rows_found"])
        return sum(int(item["rows_found"]) for item in self.verify.get("partitions", {}).values())

    def differences(self, other: Proof) -> list[str]:
        """Return the counts that differ from those of an undisturbed copy, one sentence each."""
        found = []
        for name in sorted({*self.counts, *other.counts}):
            mine, theirs = self.counts.get(name, {}), other.counts.get(name, {})
            for key in _COUNTS:
                if mine.get(key, 0) != theirs.get(key, 0):
                    words = key.replace("_", " ")
                    found.append(f"partition {name}: {words}: expected {theirs.get(key, 0):,}, found {mine.get(key, 0):,}")
        return found


def prove_copy(copy: Pipeline, home: Home, window: Window, folder: Path) -> Proof:
    """Verify a copy that has caught up, and audit its table where rows have coordinates.

    Args:
        copy: definition of the copy.
        home: of the copy.
        window: offsets that the copy should have loaded.
        folder: for reports of audits.

    Raises:
        KpipeError: the copy or the topic cannot be read.
    """
    verified = prove(copy, home)
    proof = Proof(verified.to_dict(), problems=[*verified.problems, *_incomplete(verified, window)])
    proof.not_audited = not_auditable(copy) or ("" if proof.rows_of(copy.into.table) else "no record gave a row")
    if not proof.not_audited:
        for topic in window.topics:
            if window.of_topic(topic):
                _audit(copy, home, window, topic, folder / topic, proof)
    return proof


def _incomplete(verified: Audit, window: Window) -> list[str]:
    """Return offsets of the window that were not read exactly once, one sentence for each partition."""
    problems = [f"read more than once: {text}" for text in verified.repeated]
    for name, span in window.named().items():
        try:
            found = RangeSet.of(Range(start, end) for start, end in verified.partitions.get(str(name), {}).get("ranges", ()))
            wanted = RangeSet.of([span])
        except Overlap as error:
            problems.append(f"partition {name}: {error}")
            continue
        if found != wanted:
            ranges = ["; ".join(map(str, one.ranges)) or "nothing" for one in (wanted, found)]
            problems.append(f"partition {name}: expected offsets {ranges[0]} to be read, found {ranges[1]}")
    return problems


def not_auditable(pipeline: Pipeline) -> str:
    """Return why offsets cannot be compared with rows one to one; empty if they can."""
    program = pipeline.transform
    if any(KeyRule.of(part) is not None for part in table_pipelines(pipeline)):
        return "rows with a key replace and delete each other"
    if program is not None and not program.traced:
        return f"rows of a program with mode: {program.mode} do not name their record"
    if multiplies(pipeline) or pipeline.format.several:
        return "a record may give several rows"
    if pipeline.into.type == "parquet" and is_remote(pipeline.into.database or ""):
        return "kpipe audit reads Parquet from local disks only"
    return ""


def _audit(copy: Pipeline, home: Home, window: Window, topic: str, folder: Path, proof: Proof) -> None:
    """Audit the rows of a topic. As many records must have no row as the ledger counts filtered and dead letters."""
    ranges = window.of_topic(topic)
    without = sum(
        item["filtered"] + item["dead_letters"]
        for name, item in proof.counts.items()
        if not window.multi_topic or name.rpartition(":")[0] == topic
    )
    source = copy.source.model_copy(
        update={"topic": topic, "topics": None, "topic_pattern": None, "start": "earliest", "end": None}
    )
    request = Request(
        source=source,
        table=addresses(copy, home)[0],
        partitions=frozenset(ranges),
        begin={number: span.start for number, span in ranges.items()},
        end={number: span.end for number, span in ranges.items()},
        filtered=without,
    )
    summary, _, _ = run(request, folder)
    outside = summary.notes.before + summary.notes.after + summary.notes.not_audited
    problems = [f"{outside:,} rows outside of the window"] if outside else []
    if summary.verdict == "unexplained unless filtered":
        problems += summary.problems(filtered=True)
    else:
        problems += summary.problems()
    if summary.missing != without:
        problems.append(f"expected {without:,} records without a row, by the ledger, found {summary.missing:,}")
    proof.problems += [f"audit of {topic}: {text}" for text in problems]
    verdict = "unexplained" if problems else "explained"
    proof.audits[topic] = {"verdict": verdict, "without_row": summary.missing, "report": str(folder)}


def addresses(copy: Pipeline, home: Home) -> list[TableAddress]:
    """Return the addresses of a copy's tables for readers, in the order of the definition; empty: they have no reader."""
    into = copy.into
    default = home.data / ("kpipe.duckdb" if into.type == "duckdb" else into.type)
    if into.type == "parquet" and is_remote(into.database or ""):
        return []
    return [
        TableAddress(
            into.type,
            into.database or str(default),
            table.table,
            catalog=into.catalog,
            catalog_name=into.catalog_name,
            namespace=into.namespace,
            credentials=into.credentials,
        )
        for table in copy.tables
    ]
