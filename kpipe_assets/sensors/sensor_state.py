"""State of the sensors NAME_ingest: START PIPELINE and STOP PIPELINE change it, and so does the UI.

It is stored in Dagster's database, so commands can read and change it without a daemon. Dagster has no public API for
this; tests/kpipe_assets/commands/test_sql.py verifies that the result equals that of the UI.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kpipe.errors import KpipeError
from kpipe_assets.dagster_server import LOCATION
from kpipe_assets.dagster_server.instance import environment, is_unedited, open_instance, prepare
from kpipe_assets.runs.load_problems import load_problem
from kpipe_assets.runs.run_locks import is_locked
from kpipe_assets.runs.service_lock import Service, running_service
from resources.home import Home

if TYPE_CHECKING:
    import dagster as dg

__all__ = ["SensorStates", "serving"]

_REPOSITORY = "__repository__"  # Dagster's name for the definitions of a module
_INTERVAL_S = 5  # as in ingest_sensor.py; Dagster uses the interval of the definition
_BEAT_S = 90.0  # a daemon sends a heartbeat every 30 s
_START_S = 60.0  # time to start Dagster and Spark on a busy machine
_UNENDED = (
    "history/runs.db",
    "SELECT 1 FROM runs WHERE status IN ('QUEUED', 'STARTING', 'STARTED')"
    " UNION ALL SELECT 1 FROM bulk_actions WHERE status = 'REQUESTED' LIMIT 1",  # backfills
)


def serving(home: Home) -> Service | None:
    """Return the `kpipe serve` that obeys the switches of this process's DAGSTER_HOME, or None."""
    service = running_service(home)
    return service if service is not None and service.dagster_home == environment(home)["DAGSTER_HOME"] else None


class SensorStates:
    """The states of the ingest sensors of a home's pipelines.

    A context manager. Dagster is imported only when it is needed, and its instance is closed at the end.

    Args:
        home: KPIPE_HOME.
    """

    def __init__(self, home: Home) -> None:
        self._home = home
        self._stack = ExitStack()
        self._opened: dg.DagsterInstance | None = None

    def __enter__(self) -> SensorStates:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened = None
        self._stack.close()

    def on(self) -> frozenset[str]:
        """Return the names of pipelines whose sensor is running."""
        names = _read(self._home) if self._opened is None else None
        if names is not None:
            return names
        instance = self._instance()
        if instance is None:
            return frozenset()  # no Dagster instance: no sensor was ever started
        from dagster._core.scheduler.instigation import InstigatorStatus

        running = (state for state in _states(instance) if state.status == InstigatorStatus.RUNNING)
        return frozenset(state.instigator_name.removesuffix("_ingest") for state in running)

    def unserved(self, *names: str) -> Mapping[str, str]:
        """Return the pipelines that nothing runs when they are started, each with the reason and what to do.

        `kpipe serve` runs every pipeline; `kpipe ui`, or a daemon of the user's own Dagster, those that it has loaded.

        Args:
            names: of pipelines; none: all of the home.
        """
        wanted = names or self._home.names()
        if serving(self._home) is not None:
            return {}
        if not self._is_evaluated():
            return dict.fromkeys(wanted, "no service runs it: start `kpipe serve` or `kpipe ui`")
        found = ((name, load_problem(self._home, name)) for name in wanted)
        return {name: f"Dagster has not loaded it: {why}" for name, why in found if why}

    def _is_evaluated(self) -> bool:
        """Return whether `kpipe ui`, or a daemon of the user's own Dagster, evaluates sensors."""
        if is_locked(self._home.state / "ui.lock"):
            return True
        own = environment(self._home)["DAGSTER_HOME"] == str(self._home.dagster)
        instance = None if own else self._instance()  # for the home's own instance, only `kpipe ui` starts a daemon
        beat = instance.get_daemon_heartbeats().get("SENSOR") if instance is not None else None
        return beat is not None and time.time() - beat.timestamp < _BEAT_S

    def turn(self, name: str, on: bool) -> bool:
        """Start or stop a pipeline's sensor. Return whether its state changed.

        Raises:
            KpipeError: Dagster's folder is not writable.
        """
        if on == (name in self.on()):
            return False
        instance = self._instance(make=True)
        assert instance is not None
        from dagster._core.definitions.run_request import InstigatorType
        from dagster._core.scheduler.instigation import InstigatorState, InstigatorStatus, SensorInstigatorData

        status = InstigatorStatus.RUNNING if on else InstigatorStatus.STOPPED
        states = [state for state in _states(instance) if state.instigator_name == f"{name}_ingest"]
        for state in states:
            data = state.instigator_data.with_sensor_start_timestamp(time.time()) if on else state.instigator_data
            instance.update_instigator_state(state.with_status(status).with_data(data))
        if not states:
            data = SensorInstigatorData(min_interval=_INTERVAL_S, last_sensor_start_timestamp=time.time())
            instance.add_instigator_state(InstigatorState(_origin(name), InstigatorType.SENSOR, status, data))
        return True

    def forget(self, name: str) -> None:
        """Delete the sensor state of a dropped pipeline."""
        instance = self._instance()
        if instance is None:
            return
        for state in _states(instance):
            if state.instigator_name == f"{name}_ingest":
                instance.delete_instigator_state(state.instigator_origin_id, state.selector_id)

    def cancel(self, name: str, run_id: str | None = None) -> None:
        """Cancel a Dagster run; without an id, all queued runs of the pipeline, and backfills without a run of it.

        A backfill with a run is not canceled: its run ends as others do.
        """
        instance = self._instance()
        if instance is None:
            return
        import dagster as dg

        waiting = [dg.DagsterRunStatus.QUEUED, dg.DagsterRunStatus.NOT_STARTED]
        chosen = [run_id] if run_id is not None else [record.dagster_run.run_id for record in self._runs(name, waiting)]
        for each in chosen:
            instance.run_coordinator.cancel_run(each)
        for backfill in self._backfills(name) if run_id is None else ():
            from dagster._core.execution.backfill import BulkActionStatus

            canceled = backfill.with_status(BulkActionStatus.CANCELED)  # no run is to be terminated: the daemon has nothing to do
            instance.update_backfill(canceled.with_end_timestamp(time.time()))

    def has_runs(self, name: str) -> bool:
        """Return whether Dagster has queued a run of the pipeline, or is starting one, or will create one for a backfill."""
        if self._opened is None and _query(self._home, *_UNENDED) == []:
            return False
        if self._instance() is None:
            return False
        import dagster as dg

        return bool(self._runs(name, [dg.DagsterRunStatus.QUEUED]) or self._backfills(name)) or self.starting(name)

    def starting(self, name: str) -> bool:
        """Return whether Dagster is starting a run of the pipeline."""
        if self._instance() is None:
            return False
        import dagster as dg

        records = self._runs(name, [dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED])
        # A run that began earlier has its lock, or its process died and Dagster has not noticed. It may have waited for long.
        began = (record.start_time or record.update_timestamp.timestamp() for record in records)
        return any(time.time() - when < _START_S for when in began)

    def _runs(self, name: str, statuses: list[Any]) -> Sequence[Any]:
        from kpipe_assets.sensors.pipeline_runs import pipeline_runs

        instance = self._instance()
        assert instance is not None
        return pipeline_runs(instance, name, self._table(name), statuses)

    def _backfills(self, name: str) -> Sequence[Any]:
        from kpipe_assets.sensors.pipeline_runs import requested_backfills

        instance = self._instance()
        assert instance is not None
        return requested_backfills(instance, self._table(name))

    def _table(self, name: str) -> dg.AssetKey | None:
        """Return the pipeline's asset; None: Dagster has not loaded it."""
        from kpipe_assets.assets.table_asset import table_key

        with suppress(KpipeError):  # the definition is invalid or was dropped
            pipeline = self._home.pipeline(name)
            return None if load_problem(self._home, name) else table_key(pipeline)  # else the asset is another pipeline's
        return None

    def _instance(self, make: bool = False) -> dg.DagsterInstance | None:
        """Return the Dagster instance, or None if it does not exist and `make` is false."""
        if self._opened is None:
            if make:
                prepare(self._home)
            folder = environment(self._home)["DAGSTER_HOME"]
            if not Path(folder).is_dir():
                return None
            # Not entered: that would set Dagster's storage of component states, and two instances may end in any order.
            self._opened = open_instance(folder)
            self._stack.callback(self._opened.dispose)
        return self._opened


def _read(home: Home) -> frozenset[str] | None:
    """Read the names of running sensors from Dagster's SQLite file; None: see `_query`."""
    rows = _query(
        home,
        "schedules/schedules.db",
        "SELECT instigator_body FROM instigators WHERE instigator_type = 'SENSOR' AND status = 'RUNNING'",
    )
    if rows is None:
        return None
    try:
        names = [str(json.loads(body)["origin"]["job_name"]) for (body,) in rows]
    except (ValueError, KeyError, TypeError):
        return None
    return frozenset(name.removesuffix("_ingest") for name in names if name.endswith("_ingest"))


def _query(home: Home, file: str, statement: str) -> list[tuple[Any, ...]] | None:
    """Query one of Dagster's SQLite files; no rows if it does not exist yet.

    None if the file is unreadable, or if `dagster.yaml` was edited and may select another storage. Importing Dagster would
    take seconds of CPU, and `kpipe status` needs nothing else of it.
    """
    folder = Path(environment(home)["DAGSTER_HOME"])
    own = folder == home.dagster and not (folder / "dagster.yaml").exists()  # at most, another process is creating it
    if not own and not is_unedited(folder):
        return None
    path = folder / file
    if not path.is_file():
        return []
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=5)) as database:
            return database.execute(statement).fetchall()
    except sqlite3.Error as error:
        return [] if "no such table" in str(error) else None  # before the first sensor was started


def _states(instance: dg.DagsterInstance) -> list[Any]:
    """Return the states of all ingest sensors in all code locations."""
    from dagster._core.definitions.run_request import InstigatorType

    states = instance.all_instigator_state(instigator_type=InstigatorType.SENSOR)
    return [state for state in states if state.instigator_name.endswith("_ingest")]


def _origin(name: str) -> Any:
    """Return Dagster's identifier of the sensor in the code location of `kpipe ui` and workspace.yaml."""
    from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteInstigatorOrigin, RemoteRepositoryOrigin

    repository = RemoteRepositoryOrigin(
        code_location_origin=RegisteredCodeLocationOrigin(location_name=LOCATION), repository_name=_REPOSITORY
    )
    return RemoteInstigatorOrigin(repository_origin=repository, instigator_name=f"{name}_ingest")
