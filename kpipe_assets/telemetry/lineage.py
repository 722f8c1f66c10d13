"""Send lineage of runs to OpenLineage, if it is configured.

A run only queues what it has done. The sender's thread builds events, because that imports the client library.
"""

from __future__ import annotations

import copy
import os
import time
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from kpipe.definition.pipeline import Pipeline
from kpipe.run_events import Event
from kpipe_assets.telemetry.lineage_progress import Progress
from kpipe_assets.telemetry.sender import Once, Sender
from resources.extras import missing
from resources.home import Home
from resources.permissions import Trust, check

__all__ = ["LineageObserver", "config_file", "is_configured", "sender"]

_RUNNING_EVERY_S = 30.0


@cache
def sender() -> Sender:
    """Return the sender of this process's events."""
    return Sender("lineage")


def is_configured() -> bool:
    """Return whether OpenLineage is configured: by its variables, or by `openlineage.yml`."""
    if os.environ.get("OPENLINEAGE_DISABLED", "").strip().lower() == "true":
        return False
    names = ("OPENLINEAGE_URL", "OPENLINEAGE_CONFIG")
    if any(os.environ.get(name) for name in names) or any(name.startswith("OPENLINEAGE__TRANSPORT") for name in os.environ):
        return True
    return config_file() is not None


def config_file() -> Path | None:
    """Return OpenLineage's configuration: that of OPENLINEAGE_CONFIG, of the current folder, or of the user."""
    if given := os.environ.get("OPENLINEAGE_CONFIG"):
        return Path(given)
    places = (Path.cwd() / "openlineage.yml", Path.home() / ".openlineage" / "openlineage.yml")
    return next((file for file in places if file.is_file()), None)


class LineageObserver:
    """Lineage of one run: an event at its start and end, after the first batch, and every 30 s while it works.

    Args:
        pipeline: the definition.
        home: KPIPE_HOME.
        run: id of the run.
        continuous: whether the run waits for more records.
        warn: logs why events are not delivered; called once at most.
    """

    def __init__(self, pipeline: Pipeline, home: Home, run: str, continuous: bool, warn: Callable[[str], None]) -> None:
        self._pipeline, self._home, self._run, self._continuous, self._failed = pipeline, home, run, continuous, Once(warn)
        self._progress, self._shown_at, self._uuid = Progress(), 0.0, ""

    def begin(self) -> None:
        """Queue the event START."""
        self._send("START")

    def event(self, event: Event) -> None:
        """Add a committed batch, and from time to time queue the event RUNNING."""
        if event.kind != "committed" or event.committed is None:
            return
        self._progress.add(event.committed)
        if self._progress.batches == 1 or time.monotonic() - self._shown_at > _RUNNING_EVERY_S:
            self._shown_at = time.monotonic()
            self._send("RUNNING")

    def end(self, error: BaseException | None) -> None:
        """Queue COMPLETE, FAIL after an error, or ABORT after an interruption."""
        state = "COMPLETE" if error is None else "FAIL" if isinstance(error, Exception) else "ABORT"
        self._send(state, type(error).__name__ if error is not None else "")

    def _send(self, state: str, error: str = "") -> None:
        moment, progress = time.time(), copy.deepcopy(self._progress)
        namespace = os.environ.get("OPENLINEAGE_NAMESPACE") or "kpipe"

        def deliver() -> None:
            client = _client()
            from kpipe_assets.telemetry.lineage_events import Moment, run_event, run_uuid

            self._uuid = self._uuid or run_uuid(self._run)
            found = Moment(state, moment, self._run, self._uuid, self._continuous, progress, error)
            client.emit(run_event(self._pipeline, self._home, found, namespace))

        sender().put(deliver, self._failed)


@cache
def _client() -> Any:
    """Create OpenLineage's client.

    The configuration may name classes that the client imports, so a file that others can write is refused.

    Raises:
        NotAvailable: the client library is not installed.
        KpipeError: other users may write to the configuration.
    """
    if find_spec("openlineage") is None:
        raise missing("OpenLineage's configuration", "openlineage-python", "openlineage")
    from openlineage.client import OpenLineageClient

    file = config_file()
    if file is not None and not os.environ.get("OPENLINEAGE_CONFIG"):
        check(file.parent, [file], Trust.from_env())

    class Client(OpenLineageClient):
        """The client, without changes of this process's environment, which other threads read."""

        def _alias_env_vars(self) -> None:
            """Leave out variables that are only defined for composite transports."""

        @staticmethod
        def _find_yaml_config_path() -> str | None:
            return str(file) if file is not None else None

    return Client()
