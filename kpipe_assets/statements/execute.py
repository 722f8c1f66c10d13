"""Dispatch statements to the modules that execute them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kpipe.errors import InvalidStatement, KpipeError, NotAvailable
from kpipe.sql import statements as s
from kpipe.sql.source_positions import pointing
from kpipe_assets.sensors.sensor_state import SensorStates
from kpipe_assets.statements.result import Result
from kpipe_assets.wording import count
from resources.home import Home

__all__ = ["Session"]


class Session:
    """A session that executes statements on a home. A context manager that closes what it has opened.

    Args:
        home: KPIPE_HOME.
        as_json: whether a run in the foreground prints JSON lines.
        database: path of a DuckDB file for queries; None for the home's own.
        report: called with a message while a statement waits.
    """

    def __init__(
        self,
        home: Home,
        as_json: bool = False,
        database: str | None = None,
        report: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._home, self._as_json, self._database, self._report = home, as_json, database, report
        self._sensor_states = SensorStates(home)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self._sensor_states.__exit__()

    def execute(self, statement: s.Statement) -> Iterator[Result]:
        """Execute a statement and yield its results. Read the rows of each result before the next one.

        Raises:
            KpipeError: the statement failed. It changed nothing, unless the message or its result reports a change.
        """
        if isinstance(statement, s.Query):
            from kpipe_assets.statements.queries import query  # loads DuckDB only for queries

            yield from query(self._home, self._sensor_states, statement, self._database)
        else:
            with pointing(statement.places if isinstance(statement, s.Placed | s.Alter) else None):
                result = self._one(statement)
            yield result
            if result.failure is not None:
                raise result.failure

    def _one(self, statement: s.Statement) -> Result:
        home, sensor_states, report = self._home.make(), self._sensor_states, self._report
        # Each module is imported for its statements only: SHOW PIPELINES does without Arrow and the compiler of expressions.
        match statement:
            case s.Create() | s.Drop():
                return self._definition(statement, home)
            case s.ShowPipelines() | s.ShowCreate():
                from kpipe_assets.statements import show

                if isinstance(statement, s.ShowCreate):
                    return show.show_create(home, statement)
                return show.show_pipelines(home, sensor_states)
            case s.Alter() | s.Backfill() | s.Replay():
                return self._seek(statement, home)
            case s.Truncate() | s.Reset():
                from kpipe_assets.statements import clearing

                if isinstance(statement, s.Truncate):
                    return clearing.truncate(home, statement)
                return clearing.reset(home, sensor_states, statement, report)
            case s.Test() | s.Extract() | s.Infer():
                return self._sample(statement, home)
            case s.ClearErrors():
                return self._clear(statement)
        return self._start_or_stop(statement, home)

    def _definition(self, statement: s.Create | s.Drop, home: Home) -> Result:
        from kpipe_assets.statements import definitions, start_stop

        if isinstance(statement, s.Create):
            return definitions.create(home, statement)
        if statement.pipeline in home.names() and not start_stop.is_stopped(home, self._sensor_states, statement.pipeline):
            definitions.check_rebuild(home, statement.pipeline)  # else it would be stopped, and not dropped
            start_stop.stop(home, self._sensor_states, s.Stop(statement.pipeline, if_running=True), self._report)
        return definitions.drop(home, self._sensor_states, statement)

    def _seek(self, statement: s.Alter | s.Backfill | s.Replay, home: Home) -> Result:
        from kpipe_assets.statements import seek

        match statement:
            case s.Alter():
                return seek.alter(home, statement)
            case s.Backfill():
                return seek.backfill(home, statement)
        return seek.replay(home, statement)

    def _sample(self, statement: s.Test | s.Extract | s.Infer, home: Home) -> Result:
        from kpipe_assets.statements import samples

        match statement:
            case s.Test():
                return samples.test(home, statement)
            case s.Extract():
                return samples.extract(home, statement)
        return samples.infer(home, statement)

    def _start_or_stop(self, statement: s.Statement, home: Home) -> Result:
        from kpipe_assets.statements import start_stop

        sensor_states, report = self._sensor_states, self._report
        match statement:
            case s.Start():
                if statement.foreground:
                    return start_stop.foreground(home, statement, self._as_json)
                return start_stop.start(home, sensor_states, statement)
            case s.StartMany():
                return start_stop.start_many(home, sensor_states, statement)
            case s.Stop():
                return start_stop.stop(home, sensor_states, statement, report)
            case s.StopAll():
                return start_stop.stop_all(home, sensor_states, statement, report)
            case s.Detach():
                return start_stop.detach(home, sensor_states, statement, report)
        raise InvalidStatement(f"{type(statement).__name__} cannot be executed")

    def _clear(self, statement: s.ClearErrors) -> Result:
        """Execute CLEAR PIPELINE ERRORS: delete recorded run errors. Dead letters are data and stay."""
        from kpipe.interfaces import ErrorLog
        from resources.destinations import open_destination

        def clear(name: str) -> int:
            destination = open_destination(self._home.pipeline(name), self._home)
            if not isinstance(destination, ErrorLog):
                raise NotAvailable(
                    f"{destination.describe()}: this type of destination cannot clear errors",
                    "leave them: they do not affect later runs",
                )
            cleared = destination.clear_errors()
            last_run = self._home.noted(name)
            if last_run:
                self._home.note(name, last_run["state"])
            return cleared

        cleared, failure = 0, None
        for name in self._home.names() if statement.pipeline is None else (statement.pipeline,):
            try:
                cleared += clear(name)
            except KpipeError as error:
                if statement.pipeline is not None:
                    raise
                failure = failure or error
        return Result(f"{count(cleared, 'error')} cleared; dead letters stay, because kpipe verify counts them", failure=failure)
