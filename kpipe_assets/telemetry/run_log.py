"""Write what a run does to `logs/NAME.jsonl` of the home, one JSON object a line.

Lines contain ids, numbers and kpipe's own texts. Errors that may quote a record are logged by class and place only; the
ledger and stderr have their text. The size is bounded: a full file replaces `NAME.jsonl.1`.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from kpipe.errors import DestinationError, KpipeError
from kpipe.interfaces import Publication
from kpipe.run_events import Event
from kpipe.terminal import as_json, plain_lines
from kpipe_assets.terminal import log, log_lines, logs_json
from resources.home import Home

__all__ = ["MOST_BYTES", "RunLog", "log_file", "log_line", "log_publications", "message_of", "shown", "utc"]

#: Size of a file after which it is replaced; a pipeline has two.
MOST_BYTES = 4 << 20
_LEVELS = {"retry": "warning", "narrowed": "warning", "resumed": "warning"}


def log_file(home: Home, pipeline: str) -> Path:
    """Return the pipeline's log; the file that it replaced has `.1` behind its name."""
    return home.logs / f"{pipeline}.jsonl"


def utc(seconds: float) -> str:
    """Format a moment as ISO 8601 with microseconds."""
    return f"{datetime.fromtimestamp(seconds, timezone.utc):%Y-%m-%dT%H:%M:%S.%f}Z"


def message_of(error: BaseException) -> str:
    """Return the error for a log: its text, or its class and the record's place if the text may quote a record."""
    name = type(error).__name__
    if not isinstance(error, Exception):  # such as KeyboardInterrupt
        return f"interrupted by {name}"
    hint = f" -> {error.hint}" if isinstance(error, KpipeError) and error.hint else ""
    if isinstance(error, KpipeError) and not error.may_quote:
        # After the first colon comes what a destination has answered, such as a webhook's receiver.
        what = error.what.split(": ")[0] if isinstance(error, DestinationError) else error.what
        return plain_lines(f"{name}: {what}{hint}")
    record = getattr(error, "record", None)
    where = f" at {record[0]} offset {record[1]}" if record is not None else ""
    return plain_lines(f"{name}{where}: the text may quote a record and is not logged{hint}")


def shown(error: BaseException) -> str:
    """Return the error for stderr: its text, or with KPIPE_LOG=json `message_of` it."""
    return message_of(error) if logs_json() else str(error)


class RunLog:
    """The log of one run of a pipeline.

    Args:
        home: KPIPE_HOME.
        pipeline: the pipeline's name.
        run: id of the run, as in the ledger.
    """

    def __init__(self, home: Home, pipeline: str, run: str) -> None:
        self._home, self._pipeline, self._run = home, pipeline, run
        self._batch, self._began = "", 0.0

    def begin(self) -> None:
        """Log the start."""
        self._write("started", "started")

    def event(self, event: Event) -> None:
        """Log an event of the loop. `idle` would be most of the log, and is left out."""
        batch = event.batch.id if event.batch is not None else ""
        if event.kind == "planned" and event.batch is not None:
            self._batch = batch
            parts, span = len(event.batch.steps), event.batch.span
            self._write("planned", f"planned {span:,} offsets of {parts:,} ranges", batch, offsets=span, ranges=parts)
        elif event.kind == "staged":
            seconds = sum(report.seconds for report in event.reports)
            self._write("staged", "staged", batch, task_seconds=round(seconds, 3))
        elif event.kind == "committed" and event.committed is not None:
            self._committed(event)
        elif event.kind in ("retry", "narrowed") and event.error is not None:
            rest = event.text.rpartition("; ")[2]
            self._write(event.kind, f"{message_of(event.error)}; {rest}", batch, error=type(event.error).__name__)
        elif event.kind in ("restaged", "resumed"):
            self._write(event.kind, event.text, batch)
        elif event.kind == "decided":
            self._write("decided", event.text.partition("; ")[0], batch)  # the rest of a skip is the error

    def warn(self, text: str) -> None:
        """Log a problem of lineage or traces, and print it: it does not affect the run."""
        if not logs_json():
            log(f"warning: {self._pipeline}: {text}")
        self._write("warning", text, level="warning")

    def end(self, error: BaseException | None) -> None:
        """Log the end, with the error that caused it."""
        if error is None:
            self._write("ended", "ended")
        else:
            self._write("failed", message_of(error), self._batch, level="error", error=type(error).__name__)

    def _committed(self, event: Event) -> None:
        assert event.committed is not None
        commit, counts = event.committed.commit, event.committed.commit.totals
        text = f"commit {event.committed.seq}: {counts.rows:,} rows, {counts.dead_letters:,} dead letters"
        numbers: dict[str, Any] = {"seconds": round(commit.seconds, 3), "seq": event.committed.seq, "records": counts.messages}
        numbers |= {"rows": counts.rows, "dead_letters": counts.dead_letters, "bytes": counts.bytes}
        self._write("committed", text, commit.id, **numbers)
        self._batch = "" if self._batch == commit.id else self._batch

    def _write(self, event: str, message: str, batch: str = "", level: str = "", **fields: Any) -> None:
        line = log_line(self._pipeline, event, message, batch, level or _LEVELS.get(event, "info"), self._run)
        _append(self._home, self._pipeline, [line | fields])


def log_publications(home: Home, pipeline: str, publications: Iterable[Publication]) -> None:
    """Log the batches whose metadata has been stored in Dagster."""
    lines = [
        log_line(pipeline, "published", f"commit {item.seq} is in Dagster", item.batch) | {"seq": item.seq}
        for item in publications
    ]
    if lines:
        _append(home, pipeline, lines)


def log_line(pipeline: str, event: str, message: str, batch: str = "", level: str = "info", run: str = "") -> dict[str, Any]:
    """Build a line of the log; `kpipe logs --json` prints it."""
    values = {"time": utc(time.time()), "level": level, "pipeline": pipeline, "batch": batch, "run": run}
    return {**values, "event": event, "message": message}


def _append(home: Home, pipeline: str, lines: Sequence[dict[str, Any]]) -> None:
    """Append lines in one write. A full disk must not end a run, so a line that cannot be written is lost."""
    text = "".join(as_json(line) + "\n" for line in lines)
    if logs_json():
        log_lines(text)
    file = log_file(home, pipeline)
    with suppress(OSError):
        _rotate(file)
        handle = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            os.write(handle, text.encode())
        finally:
            os.close(handle)


def _rotate(file: Path) -> None:
    """Rename a full file. Of several processes one does; a writer that has the file open appends to the renamed one."""
    try:
        if file.stat().st_size < MOST_BYTES:
            return
        handle = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(handle), file.stat()):
            file.replace(file.with_name(f"{file.name}.1"))
    except (BlockingIOError, FileNotFoundError):
        return  # another process renames it
    finally:
        os.close(handle)
