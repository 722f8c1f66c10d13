"""The job of `into.maintenance` in Dagster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dagster as dg

from kpipe.definition.pipeline import Pipeline
from kpipe_assets.assets.maintenance_job import maintenance_defs
from resources.home import Home
from resources.testing.keyed import RULES, Write, begun, commit_of, contents
from resources.testing.state import proof
from tests.resources.destinations.lake_place import IcebergPlace


def pipeline(place: IcebergPlace, **rules: Any) -> Pipeline:
    into = {"type": "iceberg", "database": str(place.folder), "table": "tweets", "maintenance": rules}
    return Pipeline.model_validate({"name": "tweets", "source": {"brokers": "127.0.0.1:1", "topic": "tweets"}, "into": into})


def test_a_run_compacts_the_table_and_reports_it(tmp_path: Path) -> None:
    folder = tmp_path / "home"
    folder.mkdir(mode=0o700)
    place, rule = IcebergPlace(folder), RULES["replace"]
    destination = begun(place, rule, 1)
    for at in range(4):
        writes = [Write(0, 4 * at + n, 3 * at + n, f"t{at}") for n in range(4)]
        destination.commit(commit_of(place, destination.ledger()[1], writes, rule))
    before = contents(place)
    found = maintenance_defs(pipeline(place, min_input_files=3, cron="0 3 * * *"), Home.at(str(folder)))
    schedule = found.resolve_schedule_def("tweets_maintenance_schedule")
    assert schedule.cron_schedule == "0 3 * * *" and schedule.job_name == "tweets_maintenance"
    with dg.DagsterInstance.ephemeral() as instance:
        assert found.resolve_job_def("tweets_maintenance").execute_in_process(instance=instance).success
        event = instance.get_latest_materialization_event(dg.AssetKey("tweets"))
        seen = instance.fetch_observations(dg.AssetKey("tweets"), limit=1).records[0].asset_observation
    assert event is None and seen is not None and seen.metadata["kpipe/rewritten"].value == 4
    assert len(place.iceberg().inspect.files()) == 1 and contents(place) == before and proof(destination).ok


def test_without_a_schedule_there_is_only_the_job(tmp_path: Path) -> None:
    place = IcebergPlace(tmp_path)
    found = maintenance_defs(pipeline(place), Home.at(str(tmp_path)))
    assert not list(found.schedules or ()) and len(list(found.jobs or ())) == 1
    bare = pipeline(place).model_copy(update={"into": pipeline(place).into.model_copy(update={"maintenance": None})})
    assert not list(maintenance_defs(bare, Home.at(str(tmp_path))).jobs or ())
