"""Several tables of one pipeline in Dagster: one asset each, one run, checks on each; real instances, and a real database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from kpipe.definition.pipeline import Pipeline
from kpipe.interfaces import Destination, Stager, Topics
from kpipe_assets.assets.table_asset import table_asset, table_keys
from kpipe_assets.assets.table_checks import table_checks
from kpipe_assets.assets.topic_asset import topic_key, topic_spec
from kpipe_assets.publishing.publisher import Publisher
from kpipe_assets.sensors.ingest_sensor import ingest_sensor
from resources.home import Home
from tests.resources.destinations.place import DuckDBPlace
from tests.resources.several import Bench, order

ORDERS, LINES = dg.AssetKey(["orders"]), dg.AssetKey(["order_lines"])


class Shop:
    """The pipeline `shop` (tests/resources/several.py) in an instance of its own."""

    def __init__(self, folder: Path, instance: dg.DagsterInstance) -> None:
        self.home, self.instance = Home.at(folder / "home").make(), instance
        self.bench = Bench(DuckDBPlace(folder), self.home)
        self.pipeline = self.bench.pipeline
        self.instance.add_dynamic_partitions("kafka/orders", ["0", "1"])
        shop = self

        class Edges:
            def topics(self, _: Pipeline) -> Topics:
                return shop.bench.topics

            def stager(self, _: Pipeline) -> Stager:
                return shop.bench.ingest().stager

            def warm(self) -> None:
                """Nothing to start."""

            def open(self, _: Pipeline) -> Destination:
                return shop.bench.destination

        self.resources = dict.fromkeys(("kafka", "spark", "destinations"), Edges())
        self.assets = table_asset(self.pipeline, self.home, "v1")

    def run(self, first: str = "0", last: str = "1") -> dg.ExecuteInProcessResult:
        return dg.materialize(
            [topic_spec(self.pipeline), self.assets],
            resources=self.resources,
            instance=self.instance,
            tags={"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last},
        )

    def events(self, asset: dg.AssetKey) -> list[dg.AssetMaterialization]:
        found = self.instance.fetch_materializations(dg.AssetRecordsFilter(asset_key=asset), limit=100).records
        return [record.asset_materialization for record in reversed(found) if record.asset_materialization]

    def told(self, asset: dg.AssetKey, name: str) -> dict[str, Any]:
        """The newest value of each partition."""
        return {str(event.partition): event.metadata[name].value for event in self.events(asset) if name in event.metadata}

    def checks(self) -> dict[tuple[str, str], dg.AssetCheckEvaluation]:
        checks = table_checks(self.pipeline, self.home)
        defs = dg.Definitions(assets=[topic_spec(self.pipeline), self.assets], asset_checks=[checks], resources=self.resources)
        job = dg.define_asset_job("checks", selection=dg.AssetSelection.checks(checks))
        resolved = dg.Definitions.merge(defs, dg.Definitions(jobs=[job])).resolve_job_def("checks")
        result = resolved.execute_in_process(instance=self.instance)
        return {(item.asset_key.path[-1], item.check_name): item for item in result.get_asset_check_evaluations()}


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with dg.DagsterInstance.ephemeral() as instance:
        made = Shop(tmp_path, instance)
        made.bench.topics.produce(0, order(1, 5, 6), order(2, 7))
        made.bench.topics.produce(1, order(3, 1, 2, 3), order(4))
        yield made


def test_one_run_materializes_every_table(shop: Shop) -> None:
    assert table_keys(shop.pipeline) == [ORDERS, LINES]
    assert shop.run().success
    assert shop.told(ORDERS, "kpipe/rows") == {"0": 2, "1": 2}
    assert shop.told(LINES, "kpipe/rows") == {"0": 3, "1": 3}
    assert (shop.told(ORDERS, "dagster/row_count")["1"], shop.told(LINES, "dagster/row_count")["1"]) == (4, 6)
    columns = shop.told(LINES, "dagster/column_schema")["1"]
    assert [column.name for column in columns.columns] == ["id", "number", "sku", "quantity", "discount"]
    assert shop.bench.destination.unpublished() == []
    assert len(shop.events(ORDERS)) == len(shop.events(LINES)) == 2


def test_what_died_unpublished_is_told_of_each_table_once(shop: Shop) -> None:
    shop.bench.run()
    publisher = Publisher(shop.instance, [ORDERS, LINES], shop.bench.destination, shop.home, "shop", [topic_key("orders")])
    assert publisher.publish() == 4
    assert publisher.publish() == 0
    assert shop.told(LINES, "kpipe/rows") == {"0": 3, "1": 3}


def test_each_table_has_its_checks(shop: Shop) -> None:
    shop.run()
    good = shop.checks()
    assert {check: item.passed for check, item in good.items()} == dict.fromkeys(
        [
            *(("orders", name) for name in ("complete", "published", "lag", "schema", "dead_letters")),
            *(("order_lines", name) for name in ("complete", "published", "schema")),
        ],
        True,
    )
    shop.bench.sql("DELETE FROM order_lines WHERE id = 3 AND number = 2")
    bad = shop.checks()
    assert not bad["order_lines", "complete"].passed
    assert "partition 1: expected 3 rows, found 2 in the table" in (bad["order_lines", "complete"].description or "")


def test_the_sensor_asks_for_all_tables(shop: Shop) -> None:
    sensor = ingest_sensor(shop.pipeline, shop.home, shop.assets)
    context = dg.build_sensor_context(instance=shop.instance, resources=shop.resources)
    result = sensor(context)
    assert isinstance(result, dg.SensorResult)
    (request,) = result.run_requests or ()
    assert list(request.run_config["ops"]) == ["orders"]
    assert set(shop.assets.keys) == {ORDERS, LINES}
    assert not shop.assets.can_subset
