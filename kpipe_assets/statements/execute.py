"""Statements to results: which module does what."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kpipe.errors import InvalidStatement, NotAvailable
from kpipe.sql import statements as s
from kpipe.sql.source_positions import pointing
from kpipe_assets.sensors.sensor_state import Switches
from kpipe_assets.statements.result import Result
from kpipe_assets.wording import count
from resources.home import Home

__all__ = ["Session"]


class Session:
    """Executes statements on a home. A context: what it has opened is closed at its end.

    Args:
        home: the folder.
        as_json: whether a run in the foreground prints JSON lines.
        database: path of another DuckDB file for queries; None: the home's own.
        tell: called with what is being waited for.
    """

    def __init__(
        self, home: Home, as_json: bool = False, database: str | None = None, tell: Callable[[str], None] = lambda _: None
    ) -> None:
        self._home, self._as_json, self._database, self._tell = home, as_json, database, tell
        self._switches = Switches(home)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self._switches.__exit__()

    def execute(self, statement: s.Statement) -> Iterator[Result]:
        """What it gives back, one result after the other; take the rows of each before the next.

        Raises:
            KpipeError: it failed. Nothing was changed, unless the message says so.
        """
        if isinstance(statement, s.Query):
            from kpipe_assets.statements.queries import query  # an engine is loaded when it is used

            yield from query(self._home, self._switches, statement, self._database)
        else:
            with pointing(statement.places if isinstance(statement, s.Placed | s.Alter) else None):
                result = self._one(statement)
            yield result

    def _one(self, statement: s.Statement) -> Result:
        from kpipe_assets.statements import clearing, definitions, samples, seek, start_stop

        home, switches, tell = self._home.make(), self._switches, self._tell
        match statement:
            case s.Create():
                return definitions.create(home, statement)
            case s.Alter():
                return seek.alter(home, statement)
            case s.Backfill():
                return seek.backfill(home, statement)
            case s.Replay():
                return seek.replay(home, statement)
            case s.Truncate():
                return clearing.truncate(home, statement)
            case s.Reset():
                return clearing.reset(home, switches, statement, tell)
            case s.Drop():
                if statement.pipeline in home.names() and not start_stop.is_stopped(home, switches, statement.pipeline):
                    start_stop.stop(home, switches, s.Stop(statement.pipeline, if_running=True), tell)
                return definitions.drop(home, switches, statement)
            case s.Start():
                if statement.foreground:
                    return start_stop.foreground(home, statement, self._as_json)
                return start_stop.start(home, switches, statement)
            case s.StartMany():
                return start_stop.start_many(home, switches, statement)
            case s.Stop():
                return start_stop.stop(home, switches, statement, tell)
            case s.StopAll():
                return start_stop.stop_all(home, switches, statement, tell)
            case s.Detach():
                return start_stop.detach(home, switches, statement, tell)
            case s.Test():
                return samples.test(home, statement)
            case s.Extract():
                return samples.extract(home, statement)
            case s.Infer():
                return samples.infer(home, statement)
            case s.ShowPipelines():
                return definitions.show_pipelines(home, switches)
            case s.ShowCreate():
                return definitions.show_create(home, statement)
            case s.ClearErrors():
                return self._clear(statement)
        raise InvalidStatement(f"{type(statement).__name__} cannot be executed")

    def _clear(self, statement: s.ClearErrors) -> Result:
        """CLEAR PIPELINE ERRORS: what failed is forgotten; dead letters are data, and stay."""
        from kpipe.interfaces import ErrorLog
        from resources.destinations import open_destination

        names = self._home.names() if statement.pipeline is None else (statement.pipeline,)
        cleared = 0
        for name in names:
            destination = open_destination(self._home.pipeline(name), self._home)
            if not isinstance(destination, ErrorLog):
                raise NotAvailable(f"{destination.describe()}: errors cannot be cleared there", "they are few, and do no harm")
            cleared += destination.clear_errors()
            noted = self._home.noted(name)
            if noted:
                self._home.note(name, noted["state"])
        return Result(f"{count(cleared, 'error')} cleared; dead letters stay, they are counted by the proof")
