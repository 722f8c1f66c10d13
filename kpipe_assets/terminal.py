"""Print to the terminal, and log lines to stderr. Control characters in data are escaped."""

from __future__ import annotations

import logging
import os
import sys
import time
import traceback
from types import TracebackType
from typing import Any

import click

from kpipe.errors import InvalidPipeline
from kpipe.terminal import as_json, plain_lines

__all__ = ["check_logs", "echo", "emit", "log", "log_lines", "logs_json", "report", "trace_of", "unexpected"]

_LOG = "KPIPE_LOG"
# Quotes what a user's program has written to stderr.
_PROGRAM = "kpipe.transform"


def check_logs() -> None:
    """Check the setting of the log's format. With `json`, lines and warnings of libraries become JSON objects, too.

    Raises:
        InvalidPipeline: KPIPE_LOG is neither `text` nor `json`.
    """
    value = os.environ.get(_LOG) or "text"
    if value not in ("text", "json"):
        raise InvalidPipeline(f"{_LOG}: expected text or json, found {value!r}", f"unset {_LOG}")
    if value == "json" and not any(isinstance(handler, _JsonLines) for handler in logging.getLogger().handlers):
        logging.getLogger().addHandler(_JsonLines(logging.WARNING))
        logging.captureWarnings(True)


def logs_json() -> bool:
    """Return whether lines on stderr are JSON objects."""
    return os.environ.get(_LOG) == "json"


def echo(text: str, err: bool = False) -> None:
    """Print text with control characters escaped."""
    click.echo(plain_lines(text), err=err)


def log(text: str, level: str = "info", pipeline: str = "", batch: str = "") -> None:
    """Print text to stderr: as it is, or as a JSON object with KPIPE_LOG=json."""
    if not logs_json():
        echo(text, err=True)
        return
    ids = {"pipeline": pipeline, "batch": batch, "run": "", "event": ""}
    log_lines(as_json({"time": _now(), "level": level, **ids, "message": text.strip()}) + "\n")


def log_lines(lines: str) -> None:
    """Write lines of JSON to stderr at once, and flush them."""
    sys.stderr.write(lines)
    sys.stderr.flush()


def report(text: str, pipeline: str = "", level: str = "info") -> None:
    """Print a line with the current time (UTC) to stderr, for processes that run for long."""
    log(text if logs_json() else f"{_now()} {f'{pipeline}: ' if pipeline else ''}{text}", level, pipeline)


class _JsonLines(logging.Handler):
    """Writes lines of Python's logging, such as those of libraries, as JSON objects."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line."""
        try:
            text = record.getMessage()
            if record.name == _PROGRAM:
                text = f"line {record.lineno} of {record.module}: the text may quote a record and is not logged"
            elif record.exc_info and record.exc_info[1] is not None:
                text += "\n" + trace_of(record.exc_info[1])
            log(text, record.levelname.lower(), getattr(record, "pipeline", ""), getattr(record, "batch", ""))
        except Exception:
            self.handleError(record)


def unexpected(_: type[BaseException], error: BaseException, __: TracebackType | None) -> None:
    """Print the traceback of an unexpected error, escaped: its message may contain a record."""
    log(trace_of(error), "error")
    sys.stderr.flush()


def trace_of(error: BaseException) -> str:
    """Return the traceback of an error; with KPIPE_LOG=json without its message, which may contain a record."""
    if not logs_json():
        return "".join(traceback.format_exception(error)).rstrip()
    frames = "".join(traceback.format_tb(error.__traceback__))
    return f"{frames}{type(error).__name__}: the text may quote a record and is not logged"


def emit(value: Any) -> None:
    """Write one JSON line to stdout and flush it."""
    sys.stdout.write(as_json(value) + "\n")
    sys.stdout.flush()


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
