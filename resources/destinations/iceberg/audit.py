"""Write, audit, publish: commit a batch to a branch, check its rows there as readers find them, then publish it to main."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from hashlib import sha256
from typing import Any

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.manifest import ManifestEntryStatus
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from kpipe.errors import InvalidPipeline
from kpipe.schema.columns import Columns
from resources.destinations.iceberg.types import columns_of
from resources.duckdb_engine.arrow_types import staged_type
from resources.duckdb_engine.expression_checks import check
from resources.duckdb_engine.expressions import Evaluator

__all__ = ["Audit", "added", "branch_of"]

_PASSED = ":passed:"  # with the pipeline's name, beside the pointers: expressions by their hash, and a commit's number
_COORDINATES = ("_kafka_topic", "_kafka_partition", "_kafka_offset")


def branch_of(pipeline: str) -> str:
    """Return the name of the branch to which a pipeline's batches are committed first."""
    return f"kpipe_audit_{pipeline}"


class Audit:
    """Checks that every row must pass.

    Args:
        checks: expressions by name.

    Raises:
        InvalidPipeline: an expression is invalid, or is not about a single row.
    """

    def __init__(self, checks: Mapping[str, str]) -> None:
        for name, text in checks.items():
            check(text, f"into.audit.{name}")
        self._checks = dict(checks)

    def noted(self, pointers: Mapping[str, str], pipeline: str, seq: int) -> dict[str, str]:
        """Return the pointers with the expressions that each batch of the pipeline passed, and since which commit.

        Args:
            pointers: of the snapshot before.
            pipeline: the pipeline that commits rows.
            seq: number of its commit, whose rows pass all checks before they are published.
        """
        before, others = _passed(pointers, pipeline), {key: said for key, said in pointers.items() if key != _PASSED + pipeline}
        now = {_hash(text): before.get(_hash(text), seq) for text in self._checks.values()}
        return {**others, _PASSED + pipeline: json.dumps(now)} if now else others

    def since(self, pointers: Mapping[str, str], pipeline: str) -> dict[str, int]:
        """Return by name the commit since which each batch of the pipeline passed a check; see `Auditing.passed_since`."""
        found = _passed(pointers, pipeline)
        return {name: found[_hash(text)] for name, text in self._checks.items() if _hash(text) in found}

    def failures(self, table: Table, snapshot: int, paths: Collection[str]) -> Mapping[str, str]:
        """Check the rows of these files as the snapshot's readers find them; return failed checks by name, with the reason.

        Raises:
            InvalidPipeline: a check does not fit the columns.
        """
        _, found, unfit = self.look(table, snapshot, paths)
        for error in unfit.values():
            raise error
        return found

    def look(self, table: Table, snapshot: int, paths: Collection[str]) -> tuple[int, dict[str, str], dict[str, InvalidPipeline]]:
        """Return the number of rows of these files, failed checks with reasons, and checks that do not fit the columns."""
        scan = table.scan(snapshot_id=snapshot)
        columns = columns_of(scan.projection(), {}, str(table.name()))
        asked: dict[str, Evaluator] = {}
        unfit: dict[str, InvalidPipeline] = {}
        for name, text in self._checks.items():
            try:
                asked[name] = Evaluator(columns, text, ())
            except InvalidPipeline as error:
                unfit[name] = InvalidPipeline(f"into.audit.{name}: {error.what.removeprefix('where: ')}", error.hint)
        rows, failed, first = 0, dict.fromkeys(asked, 0), dict.fromkeys(asked, "")
        for block in _blocks(table, scan, columns, paths):
            for name, evaluator in asked.items():
                wanted, reasons = evaluator.holds(block)
                if not wanted.all():
                    at = int((~wanted).argmax())
                    failed[name] += int((~wanted).sum())
                    first[name] = first[name] or _where(block.slice(at, 1), reasons.get(at))
            rows += block.num_rows
        return rows, {name: f"{count} of {rows} rows fail{first[name]}" for name, count in failed.items() if count}, unfit


def _passed(pointers: Mapping[str, str], pipeline: str) -> dict[str, int]:
    return dict(json.loads(pointers.get(_PASSED + pipeline) or "{}"))


def _hash(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:16]


def added(table: Table, snapshot: Snapshot) -> set[str]:
    """Return the locations of files that this snapshot added."""
    return {
        entry.data_file.file_path
        for manifest in snapshot.manifests(table.io)
        if manifest.added_snapshot_id == snapshot.snapshot_id  # older manifests may have been merged into it
        for entry in manifest.fetch_manifest_entry(table.io)
        if entry.status == ManifestEntryStatus.ADDED and entry.snapshot_id == snapshot.snapshot_id
    }


def _blocks(table: Table, scan: Any, columns: Columns, paths: Collection[str]) -> Iterator[pa.Table]:
    """Read the rows of these files block by block, in kpipe's types."""
    schema = pa.schema([(name, staged_type(kind)) for name, kind in columns])
    reader = ArrowScan(table.metadata, table.io, scan.projection(), AlwaysTrue())
    for task in scan.plan_files():
        if task.file.file_path in paths:
            for batch in reader.to_record_batches([task]):
                yield pa.Table.from_batches([batch]).cast(schema)


def _where(row: pa.Table, reason: str | None) -> str:
    """Describe the first failed row by its Kafka coordinates; never by its values, which may be confidential."""
    known = [f"{name.removeprefix('_kafka_')} {row[name][0]}" for name in _COORDINATES if name in row.column_names]
    return f", the first at {', '.join(known)}" + (" (the expression itself fails)" if reason is not None else "")
