"""Progress of a run on stderr: a bar on a terminal, otherwise a line for each batch."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Collection
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING

from kpipe.batch.batch import Committed
from kpipe.ledger.ledger import SKIPPED
from kpipe.planning.planner import lag
from kpipe.run_events import Event
from kpipe.topics import Part, chosen, part
from kpipe_assets.wording import count, first_sentence

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

    from kpipe_assets.console import Terminal

__all__ = ["Progress"]


class Progress:
    """A display of the loop's events. Attributes describe the state at the last plan.

    Args:
        name: the pipeline's name.
        quiet: print nothing; the attributes are still updated.
        only: selected partitions; None for all.
        multi_topic: whether partitions are shown with their topic.

    Attributes:
        positions: next offsets, by partition as text.
        idle: why there was nothing to read, or ""; see `kpipe.planning.planner.Idle`.
        waits: what it waits for, then; empty if that is the reason.
        behind: unread offsets of the selected partitions, to the high watermark.
        has_read: whether any offset of the selected partitions is committed.
        skipped: number of skipped offsets in the ledger.
    """

    def __init__(self, name: str, quiet: bool = False, only: Collection[Part] | None = None, multi_topic: bool = False) -> None:
        self._name, self._quiet, self._only, self._multi_topic = name, quiet, only, multi_topic
        self._bars: Bars | None = None
        self._task: TaskID | None = None
        self._done = self._total = 0
        self._since = time.monotonic()
        self._trouble = ""
        self.positions: dict[str, int] = {}
        self.idle = self.waits = ""
        self.behind = self.skipped = 0
        self.has_read = True

    @cached_property
    def _console(self) -> Terminal:
        from kpipe_assets.console import wide

        return wide(stderr=True)

    def __enter__(self) -> Progress:
        if not self._quiet and sys.stderr.isatty():
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
            from rich.progress import Progress as Bars

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
        """Print a line."""
        if not self._quiet:
            from rich.markup import escape

            self._console.print(f"[dim]{self._name}:[/dim] {escape(text)}", markup=True)

    def on_event(self, event: Event) -> None:
        """Show an event of the loop."""
        if event.ledger is not None and event.snapshot is not None:
            present = event.snapshot.partitions
            self.positions = {str(part(s, self._multi_topic)): n for s, n in event.ledger.positions().items() if s in present}
            behind = lag(event.ledger, event.snapshot)
            self.behind = sum(n for s, n in behind.items() if chosen(s, self._only))
            selected = [s for s in present if chosen(s, self._only)]
            self.has_read = any(event.ledger.committed(s) for s in selected)
            self.skipped = sum(len(item) for s in selected for item in event.ledger.unread(s, SKIPPED))
        if event.kind in ("planned", "idle"):
            self.idle = event.text if event.kind == "idle" else ""
            if event.detail not in ("", self.waits):
                self.say(f"waits for {event.detail}")
            self.waits = event.detail
        if event.kind == "planned":
            self._total = self._done + self.behind
            self._show()
        elif event.kind == "idle":
            self._trouble = ""
        elif event.kind == "retry":
            self.say(self._retry(event.text))
        elif event.kind in ("restaged", "resumed", "narrowed", "decided"):
            self.say(event.text)

    def _retry(self, text: str) -> str:
        """Format a retry: the whole error if it is new, else its problem and the time of the next attempt."""
        error, _, again = text.rpartition("; again in ")
        # Up to the first colon after some words, which separates the problem from the client's details.
        match = re.match(r"(\S+ ){3}.*?(?=: |$)", first_sentence(error))
        gist = match[0] if match else error
        before, self._trouble = self._trouble, re.sub(r"\d+", "", gist)
        return f"still: {gist}; again in {again}" if self._trouble == before else text

    def committed(self, committed: Committed) -> None:
        """Show a committed batch."""
        for step in committed.commit.steps:
            self.positions[str(part(step.source, self._multi_topic))] = step.end
        self._trouble = ""
        counts, span = committed.commit.totals, sum(len(step.range) for step in committed.commit.steps)
        if not self._done:
            self._since = time.monotonic() - committed.commit.seconds
        self._done += span
        seconds = committed.commit.seconds
        self.say(
            f"commit {committed.seq}: {count(span, 'offset')}, {count(counts.rows, 'row')},"
            f" {count(counts.dead_letters, 'dead letter')}"
            f" in {seconds:.2f} s ({counts.messages / max(seconds, 1e-9):,.0f} records/s)"
            + (f"  [{self._done:,} / {max(self._total, self._done):,} offsets]" if self._bars is None else "")
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
