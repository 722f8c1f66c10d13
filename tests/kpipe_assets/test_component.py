"""`type: kpipe_assets.KafkaPipeline` in somebody's Dagster project: what it makes, what it refuses, what it never tells."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import entry_points
from pathlib import Path

import dagster as dg
import pytest
from dagster.components.core.package_entry import get_package_objects_in_module
from dagster.components.testing import create_defs_folder_sandbox

import kpipe_assets
from kpipe.definition.pipeline import Pipeline
from kpipe.definition.yaml_codec import from_yaml, to_yaml
from kpipe.errors import KpipeError
from kpipe_assets import KafkaPipeline
from kpipe_assets.assets.table_asset import table_key
from kpipe_assets.commands.demo import _pipeline
from kpipe_assets.commands.json_schema import json_schema
from kpipe_assets.component import catalog
from kpipe_assets.dagster_resources import real
from kpipe_assets.example.downstream import demos, downstream
from kpipe_assets.runs.load_problems import load_problem
from resources.home import Home

# Loading components imports what every installed library registers; dagster-spark's own class warns of itself.
pytestmark = pytest.mark.filterwarnings("ignore::dagster.PreviewWarning")
ROOT = Path(__file__).parent.parent.parent
SECRET = "hunter2-of-the-test"

ORDERS = """\
type: kpipe_assets.KafkaPipeline
attributes:
  name: orders
  source:
    brokers: "{{ env('TEST_BROKERS') }}"
    topic: orders
    config: {security.protocol: SASL_SSL, sasl.mechanism: PLAIN}
    credentials: {sasl.username: me, sasl.password: "{{ env('TEST_PASSWORD') }}"}
  batch: {max_offsets_per_partition: "{{ env('TEST_OFFSETS', '500') }}"}
  columns: {id: BIGINT}
  into: {table: orders}
  asset: {group: shop, owners: ["team:shop"]}
"""
CLICKS = """\
type: kpipe_assets.KafkaPipeline
attributes:
  name: clicks
  source: {brokers: "b:9092", topic: clicks}
  into: {table: clicks}
"""
RESOURCES = """\
import dagster as dg
from kpipe_assets.dagster_resources import real
from resources.home import Home

@dg.definitions
def resources() -> dg.Definitions:
    return dg.Definitions(resources=real(Home.from_env()))
"""


@contextmanager
def project(text: str, resources: str = RESOURCES) -> Iterator[dg.Definitions]:
    """The definitions of a dg project with one defs.yaml."""
    with create_defs_folder_sandbox() as sandbox:
        folder = sandbox.defs_folder_path / "ingest"
        folder.mkdir(parents=True)
        (folder / "defs.yaml").write_text(text)
        (sandbox.defs_folder_path / "kpipe_resources.py").write_text(resources)
        with sandbox.build_all_defs() as defs:
            yield defs


@pytest.fixture(autouse=True)
def _variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_BROKERS", "broker.example:9093")
    monkeypatch.setenv("TEST_PASSWORD", SECRET)


def test_yaml_makes_a_topic_a_table_sensors_and_checks() -> None:
    with project(ORDERS) as defs:
        specs = {spec.key.to_user_string(): spec for spec in defs.resolve_all_asset_specs()}
        assert set(specs) == {"kafka/orders", "orders"}
        assert specs["orders"].group_name == "shop"
        assert specs["orders"].owners == ["team:shop"]
        assert specs["kafka/orders"].metadata["kpipe/brokers"] == "broker.example:9093"
        assert {sensor.name for sensor in defs.sensors or ()} == {"orders_ingest", "orders_metadata"}
        checks = {key.name for key in defs.resolve_asset_graph().asset_check_keys}
        assert checks == {"complete", "published", "lag", "schema", "dead_letters"}
        dg.Definitions.validate_loadable(defs)


def test_two_braces_are_a_text_as_in_the_file_of_a_home() -> None:
    text = ORDERS.replace("group: shop", """group: shop, description: "{{ '{{' }} {{ env('TEST_OFFSETS', '500') }} }}" """)
    with project(text) as defs:
        (spec,) = [spec for spec in defs.resolve_all_asset_specs() if spec.key == dg.AssetKey("orders")]
        assert "{{ 500 }}" in (spec.description or "")


def test_several_documents_in_one_file() -> None:
    with project(f"{ORDERS}---\n{CLICKS}") as defs:
        keys = {spec.key.to_user_string() for spec in defs.resolve_all_asset_specs()}
        assert keys == {"kafka/orders", "orders", "kafka/clicks", "clicks"}


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("columns: {id: BIGINT}", "colums: {id: BIGINT}", "colums"),
        ("columns: {id: BIGINT}", "columns: {id: BIGNIT}", "BIGNIT"),
        ("into: {table: orders}", "into: {tabel: orders}", "tabel"),
        ("env('TEST_BROKERS')", "env('TEST_NO_SUCH')", "TEST_NO_SUCH"),
    ],
)
def test_what_does_not_fit_is_told_with_file_and_field(before: str, after: str, told: str) -> None:
    text = ORDERS.replace(before, after)
    with pytest.raises(Exception) as refused, project(text):
        pass
    words = _chain(refused.value)
    assert told in words
    assert "defs.yaml" in words
    assert SECRET not in words


@pytest.mark.parametrize("field", ['headers: {X-Pass: "SECRET"}', 'url: "https://h/x?token=SECRET"', 'headers: ["SECRET"]'])
def test_a_secret_of_a_variable_is_not_in_the_error_of_its_field(field: str) -> None:
    into = "into: {type: webhook, table: orders, " + field.replace("SECRET", "{{ env('TEST_PASSWORD') }}") + "}"
    with pytest.raises(Exception) as refused, project(ORDERS.replace("into: {table: orders}", into)):
        pass
    words = _chain(refused.value)
    assert f"attributes.into.{field.partition(':')[0]}" in words and "input_value='***'" in words
    assert SECRET not in words


def test_a_secret_is_in_nothing_that_dagster_holds() -> None:
    with project(ORDERS) as defs:
        held = repr(
            [(spec.key, spec.metadata, spec.description, spec.code_version, spec.tags) for spec in defs.resolve_all_asset_specs()]
        )
        assert "broker.example" in held
        assert SECRET not in held


def test_the_python_object_is_a_pipeline_and_a_component(tmp_path: Path) -> None:
    orders = KafkaPipeline(
        name="orders",
        source={"brokers": "b:9092", "topic": "orders", "credentials": {"sasl.password": "{{ env('TEST_PASSWORD') }}"}},
        into={"table": "orders"},
    )
    assert isinstance(orders, Pipeline)
    assert isinstance(orders, dg.Component)
    assert SECRET not in repr(orders)
    home = Home(tmp_path)
    home.save(orders)
    assert home.pipeline("orders") == from_yaml(to_yaml(orders))
    assert home.pipeline("orders").to_dict() == orders.to_dict()
    with pytest.raises(ValueError, match="into"):
        KafkaPipeline(name="orders", source={"brokers": "b", "topic": "t"})
    alone = dg.component_defs(component=orders, resources=real(home))
    assert {spec.key.to_user_string() for spec in alone.resolve_all_asset_specs()} == {"orders", "kafka/orders"}


def test_the_catalog_has_all_pipelines_of_a_home_and_shares_topics(tmp_path: Path) -> None:
    home = Home(tmp_path)
    for name in ("a", "b"):
        home.save(from_yaml(CLICKS.replace("name: clicks", f"name: {name}").replace("table: clicks", f"table: {name}")))
    defs = catalog(home)
    dg.Definitions.validate_loadable(defs)
    assert {spec.key for spec in defs.resolve_all_asset_specs()} == {
        dg.AssetKey(["kafka", "clicks"]),
        *(table_key(home.pipeline(name)) for name in ("a", "b")),
    }


def test_dagster_does_not_load_a_home_that_others_can_write_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = Home.at(tmp_path / "home").make()
    home.path.chmod(0o777)
    monkeypatch.setenv("KPIPE_HOME", str(home.path))
    with pytest.raises(KpipeError, match="every user may write to it"):
        catalog(home)
    with pytest.raises(Exception) as refused, project(CLICKS):
        pass
    assert f"{home.path}: every user may write to it" in _chain(refused.value)


def test_of_pipelines_on_one_topic_in_a_project_the_first_brings_it() -> None:
    again = CLICKS.replace("name: clicks", "name: again").replace("table: clicks", "table: again")
    with project(f"{CLICKS}---\n{ORDERS}---\n{again}") as defs:
        keys = [spec.key.to_user_string() for spec in defs.resolve_all_asset_specs()]
        assert sorted(keys) == ["again", "clicks", "kafka/clicks", "kafka/orders", "orders"]
        graph = defs.resolve_asset_graph()
        assert {key.to_user_string() for key in graph.get(dg.AssetKey(["kafka", "clicks"])).child_keys} == {"again", "clicks"}


def test_a_home_and_pipelines_of_the_project_may_share_a_topic(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.save(from_yaml(CLICKS.replace("name: clicks", "name: again").replace("table: clicks", "table: again")))
    everything = f"type: kpipe_assets.PipelineCatalog\nattributes: {{home: {tmp_path}}}\n"
    with project(f"{everything}---\n{CLICKS}", resources="") as defs:
        keys = [spec.key.to_user_string() for spec in defs.resolve_all_asset_specs()]
        assert sorted(keys) == ["again", "clicks", "kafka/clicks"]


def definition(home: Home, name: str, table: str = "", more: str = "") -> None:
    text = CLICKS.replace("name: clicks", f"name: {name}").replace("table: clicks", f"table: {table or name}")
    (home.make().pipelines / f"{name}.yaml").write_text(text + more)


def test_what_cannot_be_loaded_is_shown_with_the_reason_and_takes_nothing_else_away(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    home = Home(tmp_path)
    definition(home, "good")
    definition(home, "typo", "sales", "  colums: {}\n")
    definition(home, "later", more="  format: {type: raw}\n  columns: {a: BIGINT}\n")
    definition(home, "nobody", more="  asset: {owners: [nobody]}\n")
    definition(home, "other", "good")
    definition(home, "my-clicks", "mine")
    (home.pipelines / "torn.yaml").write_text("a: [")
    defs = catalog(home)
    dg.Definitions.validate_loadable(defs)
    specs = {spec.key.to_user_string(): spec for spec in defs.resolve_all_asset_specs()}
    wrong = {
        "sales": "typo.yaml:6: unknown field colums",  # under the key of its table, which keeps its history
        "later": "later.yaml:7: columns with format: raw",
        "nobody": "nobody.yaml: Invalid owner 'nobody'",
        "definition/other": "other.yaml: pipeline other: its table good is the asset of pipeline good",
        "mine": "my-clicks.yaml: invalid pipeline name 'my-clicks'",
        "torn": "torn.yaml:1: not YAML",
    }
    assert set(specs) == {"good", "kafka/clicks", *wrong}
    for key, words in wrong.items():
        assert words in (specs[key].description or "")
        assert words in specs[key].metadata["kpipe/error"]
        assert words in caplog.text
    assert specs["good"].partitions_def is not None
    with dg.DagsterInstance.ephemeral() as instance:
        sensor = defs.resolve_sensor_def("kpipe_definitions")
        result = sensor(dg.build_sensor_context(instance=instance))
        assert isinstance(result, dg.SensorResult) and not result.run_requests
        found = {event.asset_key.to_user_string(): event for event in result.asset_events}
        assert set(found) == set(wrong)
        for key, event in found.items():
            assert isinstance(event, dg.AssetCheckEvaluation) and not event.passed and wrong[key] in (event.description or "")
            instance.report_runless_asset_event(event)
        assert not sensor(dg.build_sensor_context(instance=instance)).asset_events, "told once"
        checks = [check for check in defs.asset_checks or () if "kpipe_definitions" in check.node_def.name]
        done = dg.materialize(checks, instance=instance, selection=dg.AssetSelection.all_asset_checks(), raise_on_error=False)
        assert {item.passed for item in done.get_asset_check_evaluations()} == {False}


@pytest.mark.parametrize("table", ["good_checks", "good_maintenance", "good_maintenance_step", "pipelines__each", "__ASSET_JOB"])
def test_no_name_of_a_table_keeps_dagster_from_loading_the_others(tmp_path: Path, table: str) -> None:
    """Names of ops and graphs are unique in a code location, and Dagster compares them late."""
    home = Home(tmp_path)
    definition(home, "good")
    good = home.pipelines / "good.yaml"
    good.write_text(good.read_text().replace("table: good", "type: iceberg, table: good, maintenance: {}"))
    definition(home, "each", "'t_{topic}'")
    each = home.pipelines / "each.yaml"
    each.write_text(each.read_text().replace("topic: clicks", "topics: [clicks, views]"))
    definition(home, "health", table)
    defs = catalog(home)
    dg.Definitions.validate_loadable(defs)
    assert {load_problem(home, name) for name in home.names()} == {""}
    keys = {spec.key for spec in defs.resolve_all_asset_specs()}
    assert keys >= {dg.AssetKey(key) for key in (["good"], ["pipelines", "each"], [table])}
    assert defs.resolve_job_def("good_maintenance"), "the name of the job, which users see, stays"


def test_only_the_demo_gets_the_demos_asset_downstream(tmp_path: Path) -> None:
    home = Home(tmp_path)
    definition(home, "tweets")
    assert not list(demos(home))
    home.save(_pipeline("b:9092", home))
    (demo,) = demos(home)
    assert "tweets_by_language" in str(list(downstream(home, demo).resolve_all_asset_specs()))
    (home.pipelines / "tweets.yaml").write_text("a: [")
    assert not list(demos(home))


def test_dg_finds_the_components() -> None:
    (found,) = [entry for entry in entry_points(group="dagster_dg_cli.registry_modules") if entry.name == "kpipe_assets"]
    components = {name for name, _ in get_package_objects_in_module(found.load())}
    assert components == {"KafkaPipeline", "KafkaSource", "PipelineCatalog"}
    assert issubclass(kpipe_assets.PipelineCatalog, dg.Component)


def test_the_schema_for_editors_is_current() -> None:
    written = json.loads((ROOT / "docs" / "pipeline.schema.json").read_text(encoding="utf-8"))
    assert written == json_schema(), "make schema"


def _chain(error: BaseException | None) -> str:
    words = []
    while error is not None:
        words.append(str(error))
        error = error.__cause__ or error.__context__
    return "\n".join(words)
