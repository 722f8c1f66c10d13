"""Rows with a key: what happens to a row whose key exists in the table, and the order of writes.

Writes of one key apply in Kafka's order: by partition, then by offset, then by their order within the record. So the last
write of a key wins within a partition, in one batch or over many. Kafka defines no order between partitions. Within a batch,
the higher partition number counts as later; otherwise, the batch that commits later (docs/design.md, section 11).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from kpipe.batch.table_write import of_also, of_into
from kpipe.definition.pipeline import Pipeline, Policy
from kpipe.errors import NotAvailable
from kpipe.interfaces import Destination, Keyed
from kpipe.schema.column_names import rules
from kpipe.tables.multi_table import table_destinations, table_pipelines
from kpipe.verification.commit_order import why_in_order

__all__ = ["ORIGINAL", "KeyRule", "keeps_originals", "rows_first", "with_key"]

#: Column of a staged file with the whole record of each row, if the row may become a dead letter in the commit.
ORIGINAL = "_kafka_original"


@dataclass(frozen=True)
class KeyRule:
    """Rule for rows by their key.

    For each write, its key exists in the table or not; earlier writes of the batch count. A row with a new key is
    *inserted*. Otherwise, the row is *updated* (replace, update) or *ignored* (ignore). A delete is counted as
    *deleted* if the key exists; else it does nothing.

    Attributes:
        columns: key columns; None: the table's primary key.
        on_conflict: `error`, `replace`, `ignore` or `update`.
        update: for `update`, column to expression (DuckDB's SQL, see kpipe/expressions/duckdb_dialect.py):
            `excluded.x` is the new row's value, a bare name the existing value; empty: all columns of the new row.
        duplicates: for `error`, the policy for a row whose key exists.
        deletes: whether tombstones delete.
        most: maximum of the pipeline's dead letters; None: no limit. Only the commit detects duplicates.
        log: topic of the source's transactions, whose records give no rows; None without one.
    """

    columns: tuple[str, ...] | None = None
    on_conflict: Literal["error", "replace", "ignore", "update"] = "error"
    update: Mapping[str, str] = field(default_factory=dict)
    duplicates: Policy = "fail"
    deletes: bool = False
    most: int | None = None
    log: str | None = None

    @classmethod
    def of(cls, pipeline: Pipeline) -> KeyRule | None:
        """Return the rule of a pipeline; None if its rows have no key and are only inserted."""
        into, duplicates = pipeline.into, pipeline.errors.duplicate_key
        if into.key is None and into.on_conflict == "error" and into.on_null == "skip" and duplicates == "fail":
            return None
        columns = tuple(into.key) if into.key is not None else None
        deletes, most = into.on_null == "delete", pipeline.errors.max_dead_letters
        return cls(columns, into.on_conflict, dict(into.update), duplicates, deletes, most, pipeline.transaction_topic)

    @property
    def keeps_originals(self) -> bool:
        """True if tasks stage the whole record with each row (`ORIGINAL`)."""
        return self.on_conflict == "error" and self.duplicates == "dead_letter"


def naming_of(pipeline: Pipeline) -> str:
    """Return the rules for the names of the columns of a pipeline's table (kpipe/schema/column_names.py)."""
    return rules(pipeline.into.type, KeyRule.of(pipeline) is not None)


def keeps_originals(pipeline: Pipeline) -> bool:
    """Return whether tasks stage the whole record with each row (`ORIGINAL`), as the row may become a dead letter in the commit.

    A webhook also needs it to keep the records of one Kafka key in order.
    """
    rule = KeyRule.of(pipeline)
    return pipeline.into.type == "webhook" or (rule is not None and rule.keeps_originals)


def rows_first(pipeline: Pipeline) -> bool:
    """Return whether rows are committed before the ledger, in a commit of their own (`delivery: at_least_once`).

    Only if the order of commits does not affect the content of the destination. A commit without lane changes fences no other
    run: a run that was overtaken would replace newer rows by older ones of their key (docs/adr/0019-at-least-once.md).
    """
    if pipeline.delivery != "at_least_once" or why_in_order(pipeline):
        return False
    return all(KeyRule.of(part) is None for part in table_pipelines(pipeline))


def with_key(pipeline: Pipeline, destination: Destination) -> Pipeline:
    """Return the pipeline with all key columns named: by the definition, or else by the table's primary key.

    Raises:
        InvalidPipeline: the table has no primary key, or does not exist.
        NotAvailable: the destination does not support keys.
    """
    keys = [{"key": _named(part, place).into.key} for part, place in table_destinations(pipeline, destination)]
    also = [item.model_copy(update=key) for item, key in zip(pipeline.also, of_also(keys), strict=True)]
    return pipeline.model_copy(update={"into": pipeline.into.model_copy(update=of_into(keys)), "also": also})


def _named(pipeline: Pipeline, destination: Destination) -> Pipeline:
    if KeyRule.of(pipeline) is None:
        return pipeline
    if not isinstance(destination, Keyed):
        raise NotAvailable(
            f"pipeline {pipeline.name}: into.key: {destination.describe()} does not support keys",
            "remove into.key and into.on_conflict, and select the latest row of each key in a view on the table",
        )
    return pipeline.model_copy(update={"into": pipeline.into.model_copy(update={"key": list(destination.key())})})
