"""The definition of a copy: what differs from the original, what never may, and which pipelines are refused."""

from __future__ import annotations

from typing import Any

import pytest

from kpipe.definition.pipeline import Pipeline
from kpipe.definition.yaml_codec import from_yaml, to_yaml
from kpipe.errors import InvalidPipeline, NotAvailable
from kpipe.offsets import Range
from kpipe.schema.columns import Columns
from kpipe.topics import PartitionId, TopicId
from kpipe_assets.chaos.definition import RealTable, check_copyable, copy_of
from kpipe_assets.chaos.window import Window
from kpipe_assets.chaos.workspace import externalized

WINDOW = Window({PartitionId(TopicId("c", "1", "orders"), at): Range(5 * at, 10 * at + 1) for at in range(2)})
NAME = "__kpipe_chaos_0a1b2c3d_1"


def pipeline(**fields: Any) -> Pipeline:
    given = {"source": {"brokers": "b:1", "topic": "orders"}, "into": {"table": "orders"}, **fields}
    return Pipeline.model_validate({"name": "orders", **given})


def copy(original: Pipeline, *tables: RealTable, window: Window = WINDOW, **into: Any) -> Pipeline:
    real = tables or (RealTable("orders"), *(RealTable(item.table) for item in original.also))
    made = copy_of(original, NAME, into, window, 50, real, {})
    assert from_yaml(to_yaml(made)).to_dict() == made.to_dict(), "a copy is a definition that a file can contain"
    return made


def test_names_offsets_batches_and_the_group_differ_and_nothing_else() -> None:
    original = pipeline(
        source={"brokers": "b:1", "topic": "orders", "group": "loaders", "start": "latest", "config": {"fetch.min.bytes": 1}},
        batch={"max_retries": 7, "interval_ms": 9},
        columns={"id": "BIGINT"},
        where="id > 0",
        transform={"program": "p.py", "env": ["A"]},
        errors={"batch": "skip", "topic": "orders.dead-letters"},
    )
    expected = original.to_dict()
    del expected["errors"]["topic"]
    expected["name"] = expected["into"]["table"] = NAME
    del expected["source"]["group"]
    expected["source"].update(start={"0": 0, "1": 5}, end={"0": 1, "1": 11})
    expected["batch"]["max_offsets_per_partition"] = 50
    found = copy(original).to_dict()
    for bound in ("start", "end"):
        found["source"][bound] = {str(name): at for name, at in found["source"][bound].items()}
    assert found == expected


def test_a_smaller_batch_of_the_definition_is_kept() -> None:
    assert copy(pipeline(batch={"max_offsets_per_partition": 3})).batch.max_offsets_per_partition == 3


def test_a_pattern_becomes_the_topics_that_it_matched() -> None:
    two = Window({PartitionId(TopicId("c", "1", name), 0): Range(0, 2) for name in ("a.b", "a-c")}, multi_topic=True)
    made = copy(pipeline(source={"brokers": "b:1", "topic_pattern": "a.*"}), window=two)
    assert made.source.topic_pattern == r"^(?:a\-c|a\.b)$"
    assert made.source.end == {"a-c:0": 2, "a.b:0": 2}


def test_columns_and_keys_are_those_of_the_real_tables() -> None:
    also = {"table": "lines", "columns": {"n": "INTEGER"}, "key": ["n"], "on_conflict": "replace"}
    original = pipeline(
        into={"table": "orders", "on_conflict": "replace"}, columns={"ID": "INTEGER", "@v": "VARCHAR"}, also=[also]
    )
    real = (
        RealTable("orders", Columns.of({"id": "INTEGER", "amount": "DECIMAL(9,2)"}), ("id",)),
        RealTable("lines", Columns.of({"n": "INTEGER", "text": "VARCHAR"}), ("n",)),
    )
    made = copy(original, *real)
    assert made.columns == {"ID": "INTEGER", "@v": "VARCHAR", "amount": "DECIMAL(9,2)"}
    assert made.into.key == ["id"]
    assert [(part.table, part.columns, part.key) for part in made.also] == [
        (f"{NAME}_t1", {"n": "INTEGER", "text": "VARCHAR"}, ["n"])
    ]


def test_columns_that_no_definition_can_declare_are_inferred_again() -> None:
    deep = "INTEGER" + "[]" * 20
    made = copy(pipeline(), RealTable("orders", Columns.of({"id": "BIGINT", "deep": deep})))
    assert made.columns == {"id": "BIGINT"}
    raw = copy(pipeline(format={"type": "raw"}), RealTable("orders", Columns.of({"key": "BLOB", "value": "BLOB"})))
    assert raw.columns == {}
    arrow = copy(pipeline(transform={"program": "p", "stdin": "arrow"}), RealTable("orders", Columns.of({"id": "BIGINT"})))
    assert arrow.format.type == "arrow"


def test_a_copy_never_has_the_name_of_a_real_table() -> None:
    with pytest.raises(NotAvailable, match="a table is named __kpipe"):
        copy(pipeline(into={"table": NAME.upper()}), RealTable(NAME))


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"into": {"type": "webhook", "table": "t", "url": "https://h/p"}}, "into.type webhook: a copy would send requests"),
        (
            {"into": {"type": "kafka", "topic": "out", "brokers": "b:1", "table": "t"}},
            "into.type kafka: a copy would write records",
        ),
        ({"into": {"type": "shelf", "table": "t"}}, "into.type shelf: it cannot create"),
        ({"into": {"type": "singlestore", "database": "singlestore://u@h/d", "table": "t"}}, "into.type singlestore"),
        ({"source": {"files": "/data/*.csv"}, "into": {"type": "kafka", "topic": "o", "brokers": "b:1", "table": "t"}}, "files"),
        ({"delivery": "at_most_once"}, "delivery: at_most_once"),
        ({"delivery": "at_least_once"}, "delivery: at_least_once"),
        ({"batch": {"cut": "transaction"}}, "batch.cut: transaction: a copy has fixed first and last offsets"),
    ],
)
def test_pipelines_that_cannot_be_copied_are_refused_by_name(fields: dict[str, Any], why: str) -> None:
    with pytest.raises(NotAvailable, match=f"pipeline orders: kpipe chaos: not available for {why}"):
        check_copyable(pipeline(**fields))


def test_literal_secrets_elsewhere_are_refused_without_being_shown() -> None:
    lookups = {"who": {"url": "https://h/f.csv?token=hunter2", "key": "id"}}
    with pytest.raises(InvalidPipeline, match=r"lookups.who.url may contain a secret, which a copy would store") as raised:
        check_copyable(pipeline(lookups=lookups))
    assert "hunter2" not in str(raised.value)
    check_copyable(pipeline(lookups={"who": {"url": "https://h/f.csv", "key": "id", "credentials": {"token": "literal"}}}))


def test_no_literal_credential_is_written_to_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SET", "of-the-environment")
    secrets = {
        "sasl.password": "literal-one",
        "sasl.username": "{{ env('SET') }}",
        "ssl.key.password": "{{ env('UNSET', 'literal-two') }}",
    }
    original = pipeline(
        source={"brokers": "b:1", "topic": "orders", "credentials": secrets},
        into={
            "type": "postgres",
            "database": "postgresql://u@h/d",
            "table": "orders",
            "credentials": {"password": "literal-three"},
        },
        lookups={"who": {"url": "https://h/f.csv", "key": "id", "credentials": {"token": "literal-four"}}},
    )
    saved, variables = externalized(original)
    assert "literal" not in to_yaml(saved)
    assert sorted(variables.values()) == ["literal-four", "literal-one", "literal-three", "literal-two"]
    assert saved.source.credentials["sasl.username"] == "{{ env('SET') }}"
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    again = externalized(saved)
    assert again == (saved, {}), "references stay references"
