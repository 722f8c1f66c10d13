"""Progress for a person: a bar on a terminal, a line per batch elsewhere, always on stderr."""

from __future__ import annotations

import sys
import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from kpipe.batch import Committed
from kpipe.ingest import Event
from kpipe.plan import lag

__all__ = ["Progress"]


class Progress:
    """Shows events of the loop.

    Args:
        name: the pipeline's name.
        quiet: show nothing; positions are still kept.
    """

    def __init__(self, name: str, quiet: bool = False) -> None:
        self._name, self._quiet = name, quiet
        self._console = Console(stderr=True, highlight=False, width=None if sys.stderr.isatty() else 140)
        self._bars: Bars | None = None
        self._task: TaskID | None = None
        self._done = self._total = 0
        self._since = time.monotonic()
        self.positions: dict[str, int] = {}

    def __enter__(self) -> Progress:
        if not self._quiet and sys.stderr.isatty():
            self._bars = Bars(
                TextColumn("[bold]{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("offsets  {task.fields[rate]}"),
                TimeElapsedColumn(),
                console=self._console,
                transient=True,
            )
            self._bars.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Remove the bar."""
        if self._bars is not None:
            self._bars.stop()
            self._bars = None

    def say(self, text: str) -> None:
        """A line."""
        if not self._quiet:
            self._console.print(f"[dim]{self._name}:[/dim] {text}", markup=True)

    def tell(self, event: Event) -> None:
        """An event of the loop."""
        if event.ledger is not None and event.snapshot is not None:
            present = event.snapshot.partitions
            self.positions = {str(s.partition): n for s, n in event.ledger.positions().items() if s in present}
        if event.kind == "planned" and event.ledger is not None and event.snapshot is not None:
            self._total = self._done + sum(lag(event.ledger, event.snapshot).values())
            self._show()
        elif event.kind in ("retry", "restaged", "decided"):
            self.say(event.text)

    def committed(self, committed: Committed) -> None:
        """A batch."""
        for step in committed.commit.steps:
            self.positions[str(step.source.partition)] = step.end
        counts, span = committed.commit.totals, sum(len(step.range) for step in committed.commit.steps)
        if not self._done:
            self._since = time.monotonic() - committed.commit.seconds
        self._done += span
        seconds = committed.commit.seconds
        self.say(
            f"batch {committed.seq}: {span:,} offsets, {counts.rows:,} rows, {counts.dead_letters} dead letters"
            f" in {seconds:.2f} s ({counts.messages / max(seconds, 1e-9):,.0f} rows/s)"
            + (f"  [{self._done:,} / {max(self._total, self._done):,} offsets]".replace("[", "\\[") if self._bars is None else "")
        )
        self._show()

    def _show(self) -> None:
        if self._bars is None:
            return
        rate = f"{self._done / max(time.monotonic() - self._since, 1e-9):,.0f}/s" if self._done else "..."
        total = max(self._total, self._done)
        if self._task is None:
            self._task = self._bars.add_task(self._name, total=total, completed=self._done, rate=rate)
        else:
            self._bars.update(self._task, total=total, completed=self._done, rate=rate)
