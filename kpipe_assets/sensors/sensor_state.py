"""The switch of a pipeline: Dagster's sensor NAME_ingest, on or off. START and STOP turn it, the UI shows and turns it, too.

It is kept in Dagster's own database, so that it is the same one, whether a daemon runs or not. The parts of Dagster that
are used here have no public names; tests/kpipe_assets/test_sql.py holds them to what the UI does.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kpipe_assets.dagster_server.instance import environment, is_unedited, open_instance, prepare
from kpipe_assets.dagster_server.supervisor import LOCATION
from kpipe_assets.runs.run_locks import is_locked
from resources.home import Home

if TYPE_CHECKING:
    import dagster as dg

__all__ = ["Switches"]

_REPOSITORY = "__repository__"  # Dagster's name for the definitions of a module
_INTERVAL_S = 5  # as in ingest_sensor.py; Dagster takes its own, from the definitions
_BEAT_S = 90.0  # a daemon tells of itself every 30 s
_START_S = 60.0  # a start of Dagster and Spark on a busy machine


class Switches:
    """The switches of a home's pipelines. A context: Dagster is loaded when one is turned, and let go at the end.

    Args:
        home: whose.
    """

    def __init__(self, home: Home) -> None:
        self._home = home
        self._stack = ExitStack()
        self._opened: dg.DagsterInstance | None = None

    def __enter__(self) -> Switches:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened = None
        self._stack.close()

    def on(self) -> frozenset[str]:
        """Names of the pipelines whose switch is on."""
        quickly = _read(self._home) if self._opened is None else None
        if quickly is not None:
            return quickly
        instance = self._instance()
        if instance is None:
            return frozenset()  # nobody has ever turned one
        from dagster._core.scheduler.instigation import InstigatorStatus

        running = (state for state in _states(instance) if state.status == InstigatorStatus.RUNNING)
        return frozenset(state.instigator_name.removesuffix("_ingest") for state in running)

    def is_served(self) -> bool:
        """Whether something runs what is switched on: `kpipe ui` on this home, or the daemon of a Dagster of the user's own."""
        if is_locked(self._home.state / "ui.lock"):
            return True
        own = environment(self._home)["DAGSTER_HOME"] == str(self._home.dagster)
        instance = None if own else self._instance()  # in the home's own folder, only `kpipe ui` starts a daemon
        beat = instance.get_daemon_heartbeats().get("SENSOR") if instance is not None else None
        return beat is not None and time.time() - beat.timestamp < _BEAT_S

    def turn(self, name: str, on: bool) -> bool:
        """Turn a switch; whether that changed anything.

        Raises:
            KpipeError: Dagster's folder cannot be written.
        """
        if on == (name in self.on()):
            return False
        instance = self._instance(make=True)
        assert instance is not None
        from dagster._core.definitions.run_request import InstigatorType
        from dagster._core.scheduler.instigation import InstigatorState, InstigatorStatus, SensorInstigatorData

        status = InstigatorStatus.RUNNING if on else InstigatorStatus.STOPPED
        known = [state for state in _states(instance) if state.instigator_name == f"{name}_ingest"]
        for state in known:
            data = state.instigator_data.with_sensor_start_timestamp(time.time()) if on else state.instigator_data
            instance.update_instigator_state(state.with_status(status).with_data(data))
        if not known:
            data = SensorInstigatorData(min_interval=_INTERVAL_S, last_sensor_start_timestamp=time.time())
            instance.add_instigator_state(InstigatorState(_origin(name), InstigatorType.SENSOR, status, data))
        return True

    def forget(self, name: str) -> None:
        """A pipeline is no more: nor is its switch."""
        instance = self._instance()
        if instance is None:
            return
        for state in _states(instance):
            if state.instigator_name == f"{name}_ingest":
                instance.delete_instigator_state(state.instigator_origin_id, state.selector_id)

    def cancel(self, name: str, run_id: str | None = None) -> None:
        """Cancel a run of Dagster's; without an id, those of the pipeline that wait in the queue."""
        instance = self._instance()
        if instance is None:
            return
        import dagster as dg

        waiting = [dg.DagsterRunStatus.QUEUED, dg.DagsterRunStatus.NOT_STARTED]
        chosen = [run_id] if run_id is not None else [record.dagster_run.run_id for record in self._runs(name, waiting)]
        for each in chosen:
            instance.run_coordinator.cancel_run(each)

    def starting(self, name: str) -> bool:
        """Whether Dagster has started a run of the pipeline that may not be at work yet."""
        if self._instance() is None:
            return False
        import dagster as dg

        found = self._runs(name, [dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED])
        # One that is started for longer is at work, or dead without Dagster's knowledge.
        return any(time.time() - record.create_timestamp.timestamp() < _START_S for record in found)

    def _runs(self, name: str, statuses: list[Any]) -> Sequence[Any]:
        import dagster as dg

        from kpipe_assets.assets.table_asset import OP_TAG

        instance = self._instance()
        assert instance is not None
        return instance.get_run_records(dg.RunsFilter(tags={OP_TAG: name}, statuses=statuses))

    def _instance(self, make: bool = False) -> dg.DagsterInstance | None:
        """Dagster's instance; None where there is none and none is to be made."""
        if self._opened is None:
            if make:
                prepare(self._home)
            folder = environment(self._home)["DAGSTER_HOME"]
            if not Path(folder).is_dir():
                return None
            self._opened = self._stack.enter_context(open_instance(folder))
        return self._opened


def _read(home: Home) -> frozenset[str] | None:
    """The same from Dagster's SQLite file, where the settings are ours, and so say that it is one; None: it is not to be had.

    To import Dagster takes seconds of CPU, and `kpipe status` needs nothing else of it.
    """
    folder = Path(environment(home)["DAGSTER_HOME"])
    file = folder / "schedules" / "schedules.db"
    if not is_unedited(folder) or not file.is_file():
        return None
    try:
        with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True, timeout=5)) as database:
            found = database.execute(
                "SELECT instigator_body FROM instigators WHERE instigator_type = 'SENSOR' AND status = 'RUNNING'"
            ).fetchall()
        names = [str(json.loads(body)["origin"]["job_name"]) for (body,) in found]
    except (sqlite3.Error, ValueError, KeyError, TypeError):
        return None
    return frozenset(name.removesuffix("_ingest") for name in names if name.endswith("_ingest"))


def _states(instance: dg.DagsterInstance) -> list[Any]:
    """States of all sensors for ingest, whatever code location they are in."""
    from dagster._core.definitions.run_request import InstigatorType

    found = instance.all_instigator_state(instigator_type=InstigatorType.SENSOR)
    return [state for state in found if state.instigator_name.endswith("_ingest")]


def _origin(name: str) -> Any:
    """What Dagster would call the sensor in the code location of `kpipe ui`, and of workspace.yaml."""
    from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteInstigatorOrigin, RemoteRepositoryOrigin

    repository = RemoteRepositoryOrigin(
        code_location_origin=RegisteredCodeLocationOrigin(location_name=LOCATION), repository_name=_REPOSITORY
    )
    return RemoteInstigatorOrigin(repository_origin=repository, instigator_name=f"{name}_ingest")
