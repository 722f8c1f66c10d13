"""`batch.cut: transaction` is refused where it cannot hold; names of topics lead to the transaction topic."""

from __future__ import annotations

from typing import Any

import pytest

from kpipe.batch.batch import Batch
from kpipe.definition.pipeline import Pipeline
from kpipe.definition.transaction_topic import prefix_of, topic_of, transaction_topic
from kpipe.errors import InvalidPipeline, KpipeError, NotAvailable
from kpipe.ledger.ledger import Lane, Step
from kpipe.planning.transaction_rules import check_cut
from kpipe.tables.topic_tables import batch_tables
from kpipe.topics import PartitionId, TopicId

TOPICS = ["shop.public.a", "shop.public.b", "shop.transaction"]


def pipeline(**changes: dict[str, Any]) -> Pipeline:
    fields: dict[str, Any] = {
        "name": "p", "source": {"brokers": "k:9092", "topics": TOPICS}, "batch": {"cut": "transaction"},
        "format": {"type": "debezium"}, "into": {"table": "{topic}", "key": ["id"]}, "errors": {},
    }  # fmt: skip
    more = {name: fields[name] | value if isinstance(value, dict) else value for name, value in changes.items()}
    return Pipeline.model_validate(fields | more)


def test_a_definition_that_allows_it_is_accepted() -> None:
    check_cut(pipeline())
    check_cut(pipeline(into={"type": "iceberg", "table": "shop"}))
    check_cut(pipeline(format={"registry": "http://r:8081"}))
    check_cut(pipeline(batch={"cut": "offset"}, source={"start": "latest"}))
    assert pipeline().transaction_topic == "shop.transaction"
    assert pipeline(batch={"cut": "offset"}).transaction_topic is None


REFUSED: dict[str, tuple[dict[str, Any], type[KpipeError], tuple[str, ...]]] = {
    "another format": ({"format": {"type": "json"}}, NotAvailable, ("format", "type")),
    "another envelope": ({"format": {"envelope": "flat"}}, NotAvailable, ("format", "type")),
    "no transaction topic": ({"source": {"topics": TOPICS[:2]}}, InvalidPipeline, ("source", "topics")),
    "a pattern": ({"source": {"topics": None, "topic_pattern": "shop.*"}}, InvalidPipeline, ("source", "topics")),
    "a start": ({"source": {"start": "latest"}}, NotAvailable, ("source", "start")),
    "an end": ({"source": {"end": "latest"}}, NotAvailable, ("source", "end")),
    "lost offsets": ({"source": {"on_data_loss": "record"}}, NotAvailable, ("source", "on_data_loss")),
    "a limit on partitions": ({"batch": {"max_partitions": 2}}, NotAvailable, ("batch", "max_partitions")),
    "a delivery": ({"delivery": "at_least_once"}, NotAvailable, ("delivery",)),
    "a commit for each table": ({"into": {"type": "iceberg"}}, NotAvailable, ("into", "table")),
    "skipped batches": ({"errors": {"batch": "skip"}}, NotAvailable, ("errors", "batch")),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_splits_transactions_is_refused_by_its_name(name: str) -> None:
    changes, kind, field = REFUSED[name]
    with pytest.raises(kind, match=r"batch\.cut: transaction") as error:
        check_cut(pipeline(**changes))
    assert error.value.field[: len(field)] == field


def test_the_transaction_topic_is_that_whose_prefix_all_topics_have() -> None:
    assert prefix_of(TOPICS) == "shop"
    assert transaction_topic(["shop.public.transaction", "shop.transaction"]) == "shop.transaction"
    assert transaction_topic(["shop.public.transaction", "shop.private.a"]) is None
    assert transaction_topic(["a.b.c", "x.transaction"]) is None
    assert transaction_topic(["shop.transaction"]) is None
    assert topic_of("shop", "public.Größe $") == "shop.public.Gr__e__"


def test_records_of_the_transaction_topic_count_with_the_first_table_of_the_batch() -> None:
    def tables(*topics: str) -> tuple[list[str], Any]:
        steps = [Step(Lane(PartitionId(TopicId("c", name, name), 0), 0, 0), 1) for name in topics]
        found = batch_tables(pipeline(), Batch("b", "p", tuple(steps)))
        return [part.into.table for part in found.parts], found.topics

    a, b, log = TOPICS
    assert tables(a, b, log) == (["shop_public_a", "shop_public_b"], {a: 0, b: 1, log: 0})
    assert tables(b, log) == (["shop_public_b"], {b: 0, log: 0})
    assert tables(log) == (["shop_public_a"], {a: 0, log: 0})
