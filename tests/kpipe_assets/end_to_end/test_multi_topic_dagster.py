"""Several topics in one pipeline in Dagster, and in a consumer group, with a real Kafka and Spark."""

from __future__ import annotations

import os
import time
from collections import Counter
from typing import Any

import dagster as dg
import pytest

from kpipe_assets.assets.table_asset import table_asset
from kpipe_assets.assets.table_checks import table_checks
from kpipe_assets.assets.topic_asset import topic_spec
from kpipe_assets.component import catalog
from kpipe_assets.dagster_resources import real
from kpipe_assets.sensors.topic_sensor import metadata_sensor
from resources.home import Home
from resources.kafka import consumer_group
from tests.kpipe_assets.end_to_end.topics import both, found_by, records

pytestmark = pytest.mark.spark


def test_in_dagster(kpipe: Any, family: Any, write: Any) -> None:
    stem, make = family
    x, y = make("x", 2), make("y")
    for where, number in ((x, 0), (x, 1), (y, 0)):
        write(where, records(number * 100, number * 100 + 40), number)
    kpipe.define("web", "", source=found_by(f"^{stem}[.]"))
    home = Home.at(kpipe.home)
    pipeline = home.pipeline("web")
    with dg.DagsterInstance.ephemeral() as instance:
        sensor = metadata_sensor(pipeline, home)

        def tick() -> dg.SensorResult:
            with dg.build_sensor_context(instance=instance, resources=real(home)) as context:
                seen = sensor(context)
            assert isinstance(seen, dg.SensorResult)
            for request in seen.dynamic_partitions_requests or ():
                instance.add_dynamic_partitions(request.partitions_def_name, list(request.partition_keys))
            return seen

        first = tick()
        asked = first.dynamic_partitions_requests or ()
        assert {request.partitions_def_name: list(request.partition_keys) for request in asked} == {
            f"kafka/{x}": ["0", "1"], f"kafka/{y}": ["0"], "kpipe/web": [f"{x}:0", f"{x}:1", f"{y}:0"]
        }  # fmt: skip
        told = {(event.asset_key.path[-1], event.partition) for event in tick().asset_events}
        assert {(x, "0"), (x, "1"), (y, "0")} <= told
        specs = {spec.key.to_user_string(): spec for spec in catalog(home).resolve_all_asset_specs()}
        assert {f"kafka/{x}", f"kafka/{y}", "web"} == set(specs)
        assert {dep.asset_key.path[-1] for dep in specs["web"].deps} == {x, y}
        done = dg.materialize(
            [topic_spec(pipeline, x), topic_spec(pipeline, y), table_asset(pipeline, home, "v1")],
            resources=real(home),
            instance=instance,
            tags={"dagster/asset_partition_range_start": f"{x}:0", "dagster/asset_partition_range_end": f"{y}:0"},
        )
        assert done.success
        rows = {event.partition: event.metadata["kpipe/rows"].value for event in done.asset_materializations_for_node("web")}
        assert rows == {f"{x}:0": 40, f"{x}:1": 40, f"{y}:0": 40}
        lineage = [
            event.metadata["dagster/column_lineage"].value.deps_by_column["id"]
            for event in done.asset_materializations_for_node("web")
            if "dagster/column_lineage" in event.metadata
        ]
        assert lineage and {dep.asset_key.path[-1] for dep in lineage[-1]} == {x, y}
        checked = dg.materialize(
            [table_checks(pipeline, home)],
            resources=real(home),
            instance=instance,
            selection=dg.AssetSelection.all_asset_checks(),
        )
        assert {item.check_name for item in checked.get_asset_check_evaluations() if item.passed} >= {
            "complete",
            "published",
            "lag",
        }
        # One partition of one topic.
        write(y, records(500, 503))
        write(x, records(600, 605))
        one = dg.materialize(
            [topic_spec(pipeline, x), topic_spec(pipeline, y), table_asset(pipeline, home, "v1")],
            resources=real(home),
            instance=instance,
            partition_key=f"{y}:0",
        )
        assert one.success
    assert Counter(dict(kpipe.sql("SELECT _kafka_topic, count(*) FROM web GROUP BY 1"))) == Counter({x: 80, y: 43})


def test_a_consumer_group_follows_all_topics(
    kpipe: Any, family: Any, write: Any, brokers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
    from confluent_kafka.admin import AdminClient

    monkeypatch.setattr(consumer_group, "_PATIENCE_S", 120.0)  # a batch does not wait long for the group
    stem, make = family
    a, b = make("a"), make("b")
    write(a, records(0, 5))
    write(b, records(0, 7))
    # A new cluster makes its topic for groups at the first use; the only batch may have ended before.
    consumer = Consumer({"bootstrap.servers": brokers, "group.id": f"g-{stem}"})
    consumer.committed([TopicPartition(a, 0)], timeout=600)
    consumer.close()
    kpipe.define("p", "", source=both(a, b, group=f"g-{stem}"))
    kpipe.json("run", "p")
    admin, deadline, shown = AdminClient({"bootstrap.servers": brokers}), time.monotonic() + 300, {}
    while shown != {(a, 0): 5, (b, 0): 7} and time.monotonic() < deadline:
        asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(f"g-{stem}")])
        shown = {(place.topic, place.partition): place.offset for place in asked[f"g-{stem}"].result(120).topic_partitions}
    assert shown == {(a, 0): 5, (b, 0): 7}, os.environ.get("KPIPE_HOME")


def test_dead_letters_of_the_same_offsets_are_tried_again(kpipe: Any, family: Any, write: Any) -> None:
    _, make = family
    a, b = make("a"), make("b")
    for name in (a, b):
        write(name, ['{"id": 1, "n": "x"}', '{"id": 2, "n": "y"}', '{"id": 3, "n": 3}'])
    kpipe.define("p", "", source=both(a, b), columns={"id": "BIGINT", "n": "BIGINT"})
    assert kpipe.json("run", "p")[-1]["dead_letters"] == 4
    kpipe.define("p", "", source=both(a, b), columns={"id": "BIGINT", "n": "BIGINT"}, set={"n": "0"})
    assert sum(line["rows"] for line in kpipe.json("errors", "p", "--retry")) == 4
    assert kpipe.sql("SELECT _kafka_topic, id FROM p ORDER BY ALL") == [(name, at) for name in sorted((a, b)) for at in (1, 2, 3)]
    assert kpipe.json("verify", "p")[0]["ok"]


def test_a_bounded_pipeline_over_two_topics(kpipe: Any, family: Any, write: Any) -> None:
    _, make = family
    a, b = make("a"), make("b")
    write(a, records(0, 10))
    write(b, records(0, 5))
    future = {"timestamp": "2100-01-01T00:00:00Z"}
    for name, source, rows in (
        ("latest", {"end": "latest"}, 15), ("future", {"end": future}, 15), ("never", {"start": future, "end": future}, 0),
        ("numbers", {"start": {f"{a}:0": 4}, "end": {f"{a}:0": 8, f"{b}:0": 5}}, 9),
    ):  # fmt: skip
        kpipe.define(name, "", source=both(a, b, **source))
        assert kpipe.json("run", name)[-1]["rows"] == rows, name
    write(a, records(10, 20))
    for name in ("latest", "future", "never", "numbers"):
        assert kpipe.json("run", name)[-1]["batches"] == 0, name
        assert "read to its end" in kpipe("run", name).stdout, name
    kpipe.define("numbers", "", source=both(a, b, start={f"{a}:0": 4}, end={f"{a}:0": 6, f"{b}:0": 5}))
    assert f"{a}/0 has been read up to 8, beyond 6" in kpipe("run", "numbers", status=2).stderr
