"""Refuse definitions with which no batch could end where the source committed (`batch.cut: transaction`)."""

from __future__ import annotations

from kpipe.definition.pipeline import Pipeline
from kpipe.errors import InvalidPipeline, NotAvailable

__all__ = ["check_cut"]


def check_cut(pipeline: Pipeline) -> None:
    """Check that a definition allows `batch.cut: transaction`.

    Raises:
        NotAvailable: another field splits the source's transactions, or leaves out part of one; the message names it.
        InvalidPipeline: the transaction topic is missing.
    """
    if pipeline.batch.cut != "transaction":
        return
    where, source, kind = f"pipeline {pipeline.name}: batch.cut: transaction", pipeline.source, pipeline.format
    into = pipeline.into
    if kind.type != "debezium" or kind.envelope != "debezium":
        found = f"{kind.type}, envelope {kind.envelope}" if kind.type == "debezium" else kind.type
        raise NotAvailable(
            f"{where}: expected format debezium, envelope debezium, found {found}",
            "let Debezium write its own envelope, or remove batch.cut",
        ).about("format", "type")
    if pipeline.transaction_topic is None:
        raise InvalidPipeline(
            f"{where}: no transaction topic: expected source.topics with those of the tables and PREFIX.transaction,"
            f" found {source}",
            "set provide.transaction.metadata=true in Debezium, and list its transaction topic, too",
        ).about("source", "topics")
    refused = {
        ("source", "start"): source.start != "earliest" and "a later start",
        ("source", "end"): source.end is not None and "an end",
        ("source", "on_data_loss"): source.on_data_loss != "fail" and source.on_data_loss,
        ("batch", "max_partitions"): pipeline.batch.max_partitions,
        ("delivery",): pipeline.delivery != "exactly_once" and pipeline.delivery,
        ("into", "table"): into.one_by_one and f"{into.table} in {into.type}",
        ("errors", "batch"): pipeline.errors.batch != "fail" and pipeline.errors.batch,
    }
    for field, value in refused.items():
        if value:
            raise NotAvailable(
                f"{where}: not available with {'.'.join(field)}, found {value}: it splits transactions of the source",
                f"remove {'.'.join(field)}, or batch.cut",
            ).about(*field)
