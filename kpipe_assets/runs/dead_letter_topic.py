"""Write the dead letters of a run to `errors.topic`: after each commit, and at the start those of a killed run.

A failure does not stop loading: the destination keeps the dead letters. It is tried again, and a run ends with the error.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from kpipe.batch.batch import Committed
from kpipe.batch.dead_letter_page import LetterPages
from kpipe.definition.pipeline import Pipeline
from kpipe.errors import KpipeError
from kpipe.interfaces import Destination
from kpipe_assets.terminal import log
from resources.home import Home

__all__ = ["DeadLetterTopic", "last_written", "topic_report"]

_AGAIN_S = 30.0  # wait after a failure, unless another commit has dead letters
_PART = "dead_letter_topic"  # of the home's files about a pipeline


class DeadLetterTopic:
    """The step of a run that writes dead letters to a topic; without `errors.topic` it does nothing.

    Args:
        home: KPIPE_HOME; the result is recorded there for display.
        pipeline: the definition.
        destination: of the pipeline.
    """

    def __init__(self, home: Home, pipeline: Pipeline, destination: Destination) -> None:
        self._home, self._pipeline, self._destination = home, pipeline, destination
        self._topic: Any = None
        self._error: KpipeError | None = None
        self._next = 0.0

    def publish(self) -> None:
        """Write the dead letters that the topic lacks. A failure is recorded, and raised by `end` only."""
        if self._pipeline.errors.topic is None:
            return
        try:
            self._publish()
            self._error = None
        except KpipeError as error:
            if str(error) != str(self._error):
                log(f"warning: {self._pipeline.name}: {error}", "warning", self._pipeline.name)
            self._error, self._next = error, time.monotonic() + _AGAIN_S
            self._note({"error": str(error)})

    def passed(self, result: object) -> None:
        """Write the dead letters of a pass of the loop, or try again after a failure."""
        letters = isinstance(result, Committed) and result.commit.totals.dead_letters
        if letters or (self._error is not None and time.monotonic() >= self._next):
            self.publish()

    def end(self) -> None:
        """Try again after a failure.

        Raises:
            KpipeError: the topic lacks dead letters.
        """
        if self._error is not None:
            self.publish()
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """Close the producer."""
        if self._topic is not None:
            self._topic.close()

    def _publish(self) -> None:
        place = self._destination
        assert isinstance(place, LetterPages)
        if self._topic is None:
            if not (registration := place.ledger()[0]) or not place.letter_page(None, 1, 1):
                return  # without dead letters, no request to the brokers
            from resources.destinations.dead_letter_topic import LetterTopic  # imported late: it loads the Kafka client

            self._topic = LetterTopic(self._pipeline, place, registration, os.environ)
        self._note({"records": self._topic.publish(), "error": ""})

    def _note(self, fields: Mapping[str, Any]) -> None:
        known = {"records": 0, **(last_written(self._home, self._pipeline) or {})}
        with suppress(OSError):  # for display only
            self._home.keep(self._pipeline.name, _PART, {**known, "topic": self._pipeline.errors.topic, **fields})


def last_written(home: Home, pipeline: Pipeline) -> dict[str, Any] | None:
    """Return `topic`, `records` (written to it so far) and `error` as the last run recorded them; None: it recorded nothing."""
    try:
        found = home.kept(pipeline.name, _PART) if pipeline.errors.topic is not None else None
    except (OSError, ValueError):
        return None
    return found if found is not None and found.get("topic") == pipeline.errors.topic else None


def topic_report(pipeline: Pipeline, destination: Destination) -> dict[str, Any] | None:
    """Compare `errors.topic` with the destination: `topic`, `records`, `waiting` and `error`; None without `errors.topic`.

    Counts are null if brokers or destination cannot be read; then `error` is the reason.
    """
    topic = pipeline.errors.topic
    if topic is None or not isinstance(destination, LetterPages) or not (registration := destination.ledger()[0]):
        return None
    from resources.destinations.dead_letter_topic import LetterTopic

    try:
        found = LetterTopic(pipeline, destination, registration, os.environ).written()
    except KpipeError as error:
        return {"topic": topic, "records": None, "waiting": None, "error": str(error)}
    return {"topic": topic, "records": found.records, "waiting": found.waiting, "error": ""}
