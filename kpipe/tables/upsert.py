"""Rows with a key: what a destination does where a row of the same key is there, and in which order.

Writes of one key apply in Kafka's order: by partition, then by offset, then by their order within the record. So the last write
of a key wins within a partition, in one batch or over many. Between partitions there is no order in Kafka: in one batch the
higher partition number counts as later, else the batch that commits later (docs/design.md, section 11).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from kpipe.definition.pipeline import Pipeline, Policy
from kpipe.errors import NotAvailable
from kpipe.interfaces import Destination, Keyed
from kpipe.tables.multi_table import paired, targets
from kpipe.verification.commit_order import why_in_order

__all__ = ["ORIGINAL", "KeyRule", "keeps_originals", "rows_first", "with_key"]

#: Column of a staged file of rows that holds the whole record, where a row may yet become a dead letter.
ORIGINAL = "_kafka_original"


@dataclass(frozen=True)
class KeyRule:
    """What happens to rows by their key.

    Each write meets a table in which its key is there or is not, the earlier writes of the batch included. A row is *inserted*
    where it is not; where it is, the row is *updated* (replace, update) or *ignored* (ignore). A delete is counted as *deleted*
    where the key is there, else it does nothing.

    Attributes:
        columns: of the key; None: the table's primary key.
        on_conflict: `error`, `replace`, `ignore` or `update`.
        update: for `update`, column to expression (DuckDB's SQL, see kpipe/expressions/duckdb_dialect.py): `excluded.x` is
            the new row's value, a bare name the value that is there; empty: every column that the new row has.
        duplicates: for `error`, what happens to a row whose key is there.
        deletes: whether tombstones delete.
        most: dead letters that the pipeline may hold; None: any number. Duplicates are known in the commit only.
    """

    columns: tuple[str, ...] | None = None
    on_conflict: Literal["error", "replace", "ignore", "update"] = "error"
    update: Mapping[str, str] = field(default_factory=dict)
    duplicates: Policy = "fail"
    deletes: bool = False
    most: int | None = None

    @classmethod
    def of(cls, pipeline: Pipeline) -> KeyRule | None:
        """The rule of a pipeline; None where rows have no key and are only ever inserted."""
        into, duplicates = pipeline.into, pipeline.errors.duplicate_key
        if into.key is None and into.on_conflict == "error" and into.on_null == "skip" and duplicates == "fail":
            return None
        columns = tuple(into.key) if into.key is not None else None
        return cls(
            columns, into.on_conflict, dict(into.update), duplicates, into.on_null == "delete", pipeline.errors.max_dead_letters
        )

    @property
    def keeps_originals(self) -> bool:
        """Whether tasks stage the whole record beside each row (`ORIGINAL`)."""
        return self.on_conflict == "error" and self.duplicates == "dead_letter"


def keeps_originals(pipeline: Pipeline) -> bool:
    """Whether tasks stage the whole record beside each row (`ORIGINAL`): where it may become a dead letter in the commit.

    To a webhook it is also what keeps records of one Kafka key in order.
    """
    rule = KeyRule.of(pipeline)
    return pipeline.into.type == "webhook" or (rule is not None and rule.keeps_originals)


def rows_first(pipeline: Pipeline) -> bool:
    """Return whether rows are committed before the ledger, in a commit of their own (`delivery: at_least_once`).

    Only where the order of commits does not decide what the destination holds. A commit that moves no lane fences nobody: a run
    that was overtaken would write older rows over newer ones of their key (docs/adr/0019-at-least-once.md).
    """
    if pipeline.delivery != "at_least_once" or why_in_order(pipeline):
        return False
    return all(KeyRule.of(part) is None for part in targets(pipeline))


def with_key(pipeline: Pipeline, destination: Destination) -> Pipeline:
    """The pipeline with the columns of its keys named: where it names none, they are the table's primary key.

    Raises:
        InvalidPipeline: the table has none, or is not there.
        NotAvailable: the destination knows no keys.
    """
    first, *more = [_named(part, place) for part, place in paired(pipeline, destination)]
    also = [
        item.model_copy(update={"key": part.into.key}) for item, part in zip(pipeline.also, more, strict=True)
    ]  # fmt: skip
    return pipeline.model_copy(update={"into": first.into, "also": also})


def _named(pipeline: Pipeline, destination: Destination) -> Pipeline:
    if KeyRule.of(pipeline) is None:
        return pipeline
    if not isinstance(destination, Keyed):
        raise NotAvailable(
            f"pipeline {pipeline.name}: {destination.describe()} knows no keys",
            "leave out into.key and into.on_conflict, and pick the latest row of each key in a view over the table",
        )
    return pipeline.model_copy(update={"into": pipeline.into.model_copy(update={"key": list(destination.key())})})
