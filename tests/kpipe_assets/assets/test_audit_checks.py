"""Audits of an Iceberg table (`into.audit`) as Dagster shows them. Kafka and the table are real, Spark is a stand-in."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from kpipe.definition.pipeline import Pipeline
from kpipe_assets.assets.table_asset import table_asset
from kpipe_assets.assets.table_checks import table_checks
from kpipe_assets.assets.topic_asset import topic_spec
from kpipe_assets.component import catalog
from kpipe_assets.dagster_resources import KafkaResource
from kpipe_assets.sensors.ingest_sensor import ingest_sensor
from resources.home import Home
from tests.commandline import Kpipe
from tests.kpipe_assets.dying import Destinations, Spark
from tests.survival.small import in_worker, run

pytestmark = pytest.mark.broker
AUDIT = {"amounts": "amount >= 0", "countries": "country IS NULL OR length(country) = 2"}
BRANCH = "kpipe_audit_orders"


@dataclass
class Shop:
    """A topic of orders, its pipeline, and Dagster."""

    kpipe: Kpipe
    topic: str
    write: Any
    instance: dg.DagsterInstance

    def define(self, audit: Mapping[str, str] = AUDIT, **fields: Any) -> None:
        into = {"type": "iceberg", "table": "orders", "audit": dict(audit)}
        batch = {"max_retries": 0, "interval_ms": 20}
        config = {"operation.timeout.ms": 60_000}
        columns = {"id": "BIGINT", "amount": "BIGINT", "country": "VARCHAR"}
        self.kpipe.define("orders", self.topic, into=into, batch=batch, source={"config": config}, columns=columns, **fields)

    @property
    def home(self) -> Home:
        return Home.at(self.kpipe.home)

    @property
    def pipeline(self) -> Pipeline:
        return self.home.pipeline("orders")

    @property
    def resources(self) -> dict[str, Any]:
        return {"kafka": KafkaResource(), "spark": Spark(self.home), "destinations": Destinations(self.home)}

    def orders(self, *orders: tuple[int, int, str]) -> None:
        self.write(self.topic, [json.dumps({"id": n, "amount": amount, "country": land}) for n, amount, land in orders])

    def run(self, *further: Any, checks: bool = False) -> dg.ExecuteInProcessResult:
        """The table, what is computed from it, and its checks if they are asked for."""
        assets = [topic_spec(self.pipeline), table_asset(self.pipeline, self.home, "v1"), *further]
        chosen = dg.AssetSelection.assets("orders", *(one.key for one in further))
        with in_worker():
            return dg.materialize(
                [*assets, table_checks(self.pipeline, self.home)],
                selection=chosen if checks else chosen.without_checks(),
                resources=self.resources,
                instance=self.instance,
                raise_on_error=False,
                partition_key="0",
            )

    def check(self) -> dict[str, dg.AssetCheckEvaluation]:
        result = dg.materialize(
            [table_checks(self.pipeline, self.home)],
            selection=dg.AssetSelection.all_asset_checks(),
            resources=self.resources,
            instance=self.instance,
            raise_on_error=False,
        )
        return {item.check_name: item for item in result.get_asset_check_evaluations()}

    def shown(self, name: str) -> dg.AssetCheckEvaluation | None:
        """What Dagster's pages say of a check."""
        record = self.instance.get_latest_asset_check_evaluation_record(dg.AssetCheckKey(dg.AssetKey("orders"), name))
        found = record.evaluation if record is not None else None
        return found if isinstance(found, dg.AssetCheckEvaluation) else None

    def tick(self) -> list[dg.AssetCheckEvaluation]:
        """What the sensor tells of checks."""
        table = table_asset(self.pipeline, self.home, "v1")
        sensor = ingest_sensor(self.pipeline, self.home, table)
        defs = dg.Definitions([topic_spec(self.pipeline), table], sensors=[sensor], resources=self.resources)
        asked = {name: self.resources[name] for name in ("kafka", "destinations")}
        context = dg.build_sensor_context(instance=self.instance, definitions=defs, resources=asked)
        result = sensor(context)
        assert isinstance(result, dg.SensorResult), result
        found = [event for event in result.asset_events if isinstance(event, dg.AssetCheckEvaluation)]
        for event in found:
            self.instance.report_runless_asset_event(event)
        return found

    def table(self) -> Any:
        folder = self.kpipe.home / "data" / "iceberg"
        catalog = SqlCatalog("kpipe", uri=f"sqlite:///{folder / 'catalog.db'}", warehouse=f"file://{folder}")
        try:
            return catalog.load_table("default.orders")
        finally:
            catalog.close()

    def ids(self) -> list[int]:
        """What readers of the table see."""
        return sorted(self.table().scan().to_arrow()["id"].to_pylist())


@pytest.fixture
def shop(brokers: str, topic: Any, write: Any, tmp_path: Path) -> Iterator[Shop]:
    with dg.DagsterInstance.ephemeral() as instance:
        name = topic(1)
        instance.add_dynamic_partitions(f"kafka/{name}", ["0"])
        made = Shop(Kpipe(tmp_path / "home", brokers), name, write, instance)
        made.define()
        yield made


def green(since: int) -> tuple[bool, str]:
    """The result if no rows wait, and batches passed since a commit."""
    checked = f"each batch since commit {since} of this pipeline passed"
    return True, f"no rows wait: {checked}; earlier rows and rows of other writers were not checked"


def told(found: dg.AssetCheckEvaluation | None) -> tuple[bool, str]:
    assert found is not None
    return found.passed, found.description or ""


def test_what_an_audit_holds_back_is_red_and_says_where_it_waits(shop: Shop) -> None:
    assert shop.shown("audit_amounts") is None
    shop.orders((1, 5, "de"), (2, 0, "fr"))
    assert shop.run().success
    assert told(shop.shown("audit_amounts")) == told(shop.shown("audit_countries")) == green(2)

    # A batch that is not true: the run tells it, although it comes to no check.
    shop.orders((3, 5, "it"), (4, -7, "es"), (5, -8, "pt"))
    failed = shop.run()
    assert not failed.success and not failed.get_asset_materialization_events()
    red = f"2 of 3 rows fail, the first at partition 0, offset 3; 3 rows wait on branch {BRANCH}"
    shown = shop.shown("audit_amounts")
    assert shown is not None and told(shown) == (False, red) and shown.blocking and shown.severity == dg.AssetCheckSeverity.ERROR
    metadata = {name: value.value for name, value in shown.metadata.items()}
    assert (metadata["kpipe/expression"], metadata["kpipe/branch"], metadata["kpipe/rows"]) == ("amount >= 0", BRANCH, 3)
    assert told(shop.shown("audit_countries")) == green(2)
    assert shop.ids() == [1, 2]
    waiting = shop.table().scan(snapshot_id=int(metadata["kpipe/snapshot"])).to_arrow()
    assert sorted(waiting["id"].to_pylist()) == [1, 2, 3, 4, 5]

    # Asked, the checks look for themselves; the others of the table are as they were.
    found = shop.check()
    assert told(found["audit_amounts"]) == (False, red)
    assert told(found["audit_countries"]) == (True, f"3 rows wait on branch {BRANCH} and pass this check")
    assert all(found[name].passed for name in ("complete", "published", "schema"))
    assert shop.tick() == [], "it was told"

    # By another definition the same rows may be fine.
    shop.define(AUDIT | {"amounts": "amount > -100"})
    (again,) = shop.tick()
    assert told(again) == (True, f"3 rows wait on branch {BRANCH} and pass this check")
    assert shop.run().success and shop.ids() == [1, 2, 3, 4, 5]
    assert told(shop.shown("audit_amounts")) == green(3) and told(shop.check()["audit_countries"]) == green(2)
    assert BRANCH not in shop.table().metadata.refs and told(shop.check()["audit_amounts"]) == green(3)


def test_rows_from_before_an_expression_are_not_said_to_pass(shop: Shop) -> None:
    """Until a batch has passed it, a new or changed expression is true of no row that is known."""
    shop.define({})
    shop.orders((1, -5, "de"))
    assert shop.run().success
    unknown = "no rows wait: the table does not record that a batch passed this check"
    for text in ("amount >= 0", "amount > 0"):
        shop.define({"amounts": text})
        (event,) = (event for event in shop.tick() if event.check_name == "audit_amounts")
        assert event.passed and (event.description or "").startswith(unknown)
    shop.orders((2, 5, "de"))
    list(run(shop.kpipe.home, "orders"))
    (event,) = (event for event in shop.tick() if event.check_name == "audit_amounts")
    assert told(event) == green(3) and shop.ids() == [1, 2]
    assert not [event for event in shop.tick() if event.check_name == "audit_amounts"]


def test_what_another_program_was_stopped_by_a_sensor_tells(shop: Shop) -> None:
    """`kpipe run` tells Dagster nothing. Rows that an operator has gone past do not wait any more."""
    shop.orders((1, 5, "de"))
    list(run(shop.kpipe.home, "orders"))
    first = {"complete", "published", "lag", "schema", "dead_letters"}  # test_first_checks.py
    assert {item.check_name for item in shop.tick()} == {"audit_amounts", "audit_countries", *first}
    assert shop.tick() == []
    shop.orders((2, 5, "Germany"))
    with pytest.raises(Exception, match="check countries: 1 of 1 rows fail"):
        list(run(shop.kpipe.home, "orders"))
    found = {item.check_name: item for item in shop.tick()}
    assert set(found) == {"audit_countries", "lag"} and not found["lag"].passed
    assert told(found["audit_countries"]) == (
        False,
        f"1 of 1 rows fail, the first at partition 0, offset 1; 1 rows wait on branch {BRANCH}",
    )
    shop.kpipe("sql", "-e", "ALTER PIPELINE orders SET OFFSETS LATEST")
    assert BRANCH in shop.table().metadata.refs
    assert [(event.check_name, event.passed) for event in shop.tick()] == [("audit_countries", True)]


@pytest.mark.chaos
def test_nothing_is_computed_from_a_table_while_rows_of_it_wait(shop: Shop) -> None:
    """A check is blocking: what lies downstream is left out by a run that finds it red."""

    @dg.asset(deps=[dg.AssetKey("orders")])
    def report() -> None: ...

    shop.orders((1, 5, "de"))
    done = shop.run(report, checks=True)
    assert done.success and len(done.asset_materializations_for_node("report")) == 1
    shop.orders((2, -5, "de"))
    assert not shop.run().success
    table, checks = table_asset(shop.pipeline, shop.home, "v1"), table_checks(shop.pipeline, shop.home)
    blocked = dg.materialize(
        [topic_spec(shop.pipeline), table, checks, report],
        selection=dg.AssetSelection.assets("report") | dg.AssetSelection.checks_for_assets(table),
        resources=shop.resources,
        instance=shop.instance,
        raise_on_error=False,
    )
    assert not blocked.success and not blocked.asset_materializations_for_node("report")
    shop.define(where="amount >= 0")
    done = shop.run(report, checks=True)
    assert done.success and len(done.asset_materializations_for_node("report")) == 1 and shop.ids() == [1]


def test_each_expression_is_a_blocking_check_of_the_table(shop: Shop) -> None:
    graph = catalog(shop.home).resolve_asset_graph()
    keys = {key.name: key for key in graph.get_check_keys_for_assets({dg.AssetKey("orders")})}
    for name, text in AUDIT.items():
        spec = graph.get_check_spec(keys[f"audit_{name}"])
        assert spec.blocking and text in (spec.description or "")
    assert not graph.get_check_spec(keys["complete"]).blocking


def test_an_expression_that_fits_no_column_is_red(shop: Shop) -> None:
    shop.define({"totals": "total > 0", **AUDIT})
    shop.orders((1, 5, "de"))
    assert not shop.run().success
    found = shop.check()
    assert not found["audit_totals"].passed and "into.audit.totals: " in (found["audit_totals"].description or "")
    assert found["audit_amounts"].passed
