"""`type: kpipe_assets.KafkaSource`: files as a source asset, and an event for each file of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster.components.testing import create_defs_folder_sandbox
from pydantic import ValidationError

from kpipe.definition.pipeline import Pipeline
from kpipe.interfaces import Destination, Stager, Topics
from kpipe_assets import KafkaSource
from kpipe_assets.assets.table_asset import table_asset
from kpipe_assets.assets.topic_asset import missing_partitions, source_specs
from resources.sources.open_source import topics_of
from resources.spark.driver.sample_stager import LocalStager
from tests.resources.sources.runs import Bench

pytestmark = pytest.mark.filterwarnings("ignore::dagster.PreviewWarning")

DEFS = """\
type: kpipe_assets.KafkaSource
attributes:
  name: orders_in
  source: {files: "/data/in/*.jsonl"}
  into: {type: kafka, brokers: "b:9092", topic: orders}
"""


class _Resources:
    """What assets request, for one bench."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    def topics(self, pipeline: Pipeline) -> Topics:
        return topics_of(pipeline)

    def stager(self, pipeline: Pipeline) -> Stager:
        return LocalStager(pipeline, self._bench.home)

    def warm(self) -> None: ...

    def open(self, _: Pipeline) -> Destination:
        return self._bench.destination()


def test_a_project_has_the_files_and_the_topic_as_assets() -> None:
    with create_defs_folder_sandbox() as sandbox:
        folder = sandbox.defs_folder_path / "ingest"
        folder.mkdir(parents=True)
        (folder / "defs.yaml").write_text(DEFS)
        (sandbox.defs_folder_path / "kpipe_resources.py").write_text(
            "import dagster as dg\nfrom kpipe_assets.dagster_resources import real\nfrom resources.home import Home\n\n"
            "@dg.definitions\ndef resources() -> dg.Definitions:\n    return dg.Definitions(resources=real(Home.from_env()))\n"
        )
        with sandbox.build_all_defs() as defs:
            graph = defs.resolve_asset_graph()
            assert {key.to_user_string() for key in graph.get_all_asset_keys()} == {"files/orders_in", "orders"}
            assert graph.get(dg.AssetKey(["orders"])).parent_keys == {dg.AssetKey(["files", "orders_in"])}


def test_a_source_needs_files_or_a_table() -> None:
    with pytest.raises(ValidationError, match=r"source\.files, source\.table, source\.lake or source\.http is missing"):
        KafkaSource.model_validate({"name": "p", "source": {"brokers": "b", "topic": "t"}, "into": {"table": "t"}})


def test_a_run_publishes_an_event_for_each_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kpipe_assets.validation.definition._check_files", lambda _: None)  # a table needs no broker
    bench = Bench(tmp_path)
    bench.write("a", {"id": 1})
    bench.write("b", {"id": 2}, {"id": 3})
    table, key = table_asset(bench.pipeline, bench.home, "v1"), dg.AssetKey(["t"])
    with dg.instance_for_test() as instance:
        new = missing_partitions(bench.pipeline, topics_of(bench.pipeline).snapshot(), instance)
        files = [f"{bench.files}/a:0", f"{bench.files}/b:0"]
        assert new == {"kpipe/p": files}
        instance.add_dynamic_partitions("kpipe/p", files)
        resources: Any = dict.fromkeys(("kafka", "spark", "destinations"), _Resources(bench))
        result = dg.materialize(
            [*source_specs(bench.pipeline, bench.home), table],
            resources=resources,
            instance=instance,
            tags={"dagster/asset_partition_range_start": files[0], "dagster/asset_partition_range_end": files[-1]},
        )
        assert result.success
        found = instance.fetch_materializations(dg.AssetRecordsFilter(key), limit=10).records
        events = [record.asset_materialization for record in found]
        rows = {event.partition: event.metadata["kpipe/rows"].value for event in events if event is not None}
    assert rows == dict(zip(files, (1, 2), strict=True))
