"""Read the logs of runs: lines of all pipelines by time, then further lines as they are written."""

from __future__ import annotations

import heapq
import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from kpipe.definition.target import NAME
from resources.home import Home

__all__ = ["Line", "follow", "logged", "read", "since"]

Line = dict[str, Any]
_POLL_S = 0.25
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def since(text: str) -> str:
    """Parse `15m`, `2h`, `3d` or ISO 8601 (UTC without a zone), and return the moment as logs contain it.

    Raises:
        ValueError: the text is neither.
    """
    if found := re.fullmatch(r"([0-9]{1,6})([smhd])", text.strip()):
        moment = datetime.now(timezone.utc) - timedelta(**{_UNITS[found[2]]: int(found[1])})
    else:
        moment = datetime.fromisoformat(text.strip().replace("Z", "+00:00"))
        moment = moment.replace(tzinfo=timezone.utc) if moment.tzinfo is None else moment.astimezone(timezone.utc)
    return f"{moment:%Y-%m-%dT%H:%M:%S.%f}Z"


def logged(home: Home) -> list[str]:
    """Return the names of pipelines with a log."""
    names = {file.name.partition(".jsonl")[0] for file in home.logs.glob("*.jsonl*")}
    return sorted(name for name in names if NAME.fullmatch(name))


def read(home: Home, names: Sequence[str]) -> Iterator[Line]:
    """Yield the lines of these pipelines by time; lines that are damaged are left out."""
    logs = [_File(home.logs / f"{name}.jsonl").lines(older=True) for name in names]
    yield from heapq.merge(*logs, key=lambda line: str(line["time"]))


def follow(home: Home, names: Callable[[], Sequence[str]], pause: Callable[[float], object] = time.sleep) -> Iterator[Line]:
    """Yield all lines, then further ones, until the caller stops.

    Args:
        home: KPIPE_HOME.
        names: returns the pipelines; a new one is read from its start.
        pause: sleeps before the files are read again.
    """
    files: dict[str, _File] = {}
    while True:
        first = not files
        for name in names():
            files.setdefault(name, _File(home.logs / f"{name}.jsonl"))
        yield from heapq.merge(*(file.lines(older=first) for file in files.values()), key=lambda line: str(line["time"]))
        pause(_POLL_S)


@dataclass
class _File:
    """A log that is read from where the last reading ended; the rest of a file that was renamed meanwhile comes first."""

    path: Path
    _inode: int = field(default=0, init=False)
    _position: int = field(default=0, init=False)

    def lines(self, older: bool = False) -> Iterator[Line]:
        before = self.path.with_name(f"{self.path.name}.1")
        if older:
            yield from self._of(before, 0)[0]
        try:
            inode = self.path.stat().st_ino
        except OSError:
            return
        if self._inode and inode != self._inode:
            try:
                if before.stat().st_ino == self._inode:
                    yield from self._of(before, self._position)[0]
            except OSError:  # renamed again
                pass
            self._position = 0
        self._inode = inode
        found, self._position = self._of(self.path, self._position)
        yield from found

    def _of(self, file: Path, position: int) -> tuple[list[Line], int]:
        """Return the whole lines from a position, and the position behind them."""
        try:
            with file.open("rb") as log:
                log.seek(position)
                data = log.read()
        except OSError:
            return [], position
        end = data.rfind(b"\n") + 1
        found = []
        for text in data[:end].splitlines():
            try:
                line = json.loads(text)
            except ValueError:  # cut off when the disk was full
                continue
            if isinstance(line, dict) and isinstance(line.get("time"), str):
                found.append(line)
        return found, position + end
