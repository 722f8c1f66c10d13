"""Print to the terminal. Control characters in data are escaped."""

from __future__ import annotations

import sys
import time
import traceback
from types import TracebackType
from typing import Any

import click

from kpipe.terminal import as_json, plain_lines

__all__ = ["echo", "emit", "report", "unexpected"]


def echo(text: str, err: bool = False) -> None:
    """Print text with control characters escaped."""
    click.echo(plain_lines(text), err=err)


def report(text: str) -> None:
    """Print a line with the current time (UTC) to stderr, for processes that run for long."""
    echo(f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {text}", err=True)


def unexpected(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print the traceback of an unexpected error, escaped: its message may contain a record."""
    echo("".join(traceback.format_exception(kind, error, trace)).rstrip(), err=True)
    sys.stderr.flush()


def emit(value: Any) -> None:
    """Write one JSON line to stdout and flush it."""
    sys.stdout.write(as_json(value) + "\n")
    sys.stdout.flush()
