"""Load an undisturbed copy, then copies under faults until the time is over; finish, prove and remove each."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kpipe.definition.pipeline import Pipeline
from kpipe.errors import KpipeError
from kpipe.terminal import plain
from kpipe_assets.chaos.contents import Contents, Differences
from kpipe_assets.chaos.definition import copy_of, read_tables, table_name
from kpipe_assets.chaos.faults import Choice, Injected, Injector
from kpipe_assets.chaos.lookups import files_of
from kpipe_assets.chaos.processes import Run, environment
from kpipe_assets.chaos.proof import Proof, addresses, prove_copy
from kpipe_assets.chaos.window import Window
from kpipe_assets.chaos.workspace import Workspace, externalized
from kpipe_assets.wording import count
from resources.destinations import open_destination
from resources.home import Home

__all__ = ["Campaign", "Copy", "CopyFailed", "Finding"]

_STALLED_S = 600.0
_TRIES = 3
_OPERATOR = 3  # exit status


class CopyFailed(KpipeError):
    """A run of a copy without faults failed."""


@dataclass(frozen=True)
class Finding:
    """A reason why the pipeline is not proven.

    Attributes:
        kind: `not_proven`, `not_deterministic`, `differs`, `failed`, `unexpected_error` or `left_behind`.
        copy: name of the copy.
        text: one sentence or more.
        samples: records that differ.
    """

    kind: str
    copy: str
    text: str
    samples: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class Copy:
    """A copy of the pipeline.

    Attributes:
        definition: its definition, with all credentials.
        disturbed: whether faults are injected.
        place: description of its place.
        proof: None: not proven yet.
        batches: committed batches, by id.
        startup_s: seconds from the start of its last undisturbed run to the first batch.
        batch_s: mean seconds of a batch of that run.
        dropped: whether it was removed.
    """

    definition: Pipeline
    disturbed: bool
    place: str
    proof: Proof | None = None
    batches: dict[str, int] = field(default_factory=dict)
    startup_s: float = 10.0
    batch_s: float = 1.0
    dropped: bool = False

    @property
    def name(self) -> str:
        """Name of the copy, and of its first table."""
        return self.definition.name


class Campaign:
    """Copies of one pipeline, and what became of them.

    Args:
        workspace: folder of the copies.
        home: home of the pipeline. It is only read.
        window: offsets to load.
        choice: faults of the seed.
        minutes: duration of the faults.
        keep: keep all copies.
        environ: variables for runs.
        report: called with each line of progress.
    """

    def __init__(
        self,
        workspace: Workspace,
        home: Home,
        window: Window,
        choice: Choice,
        minutes: float,
        keep: bool,
        environ: Mapping[str, str],
        report: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.workspace, self.window, self.choice = workspace, window, choice
        self.copies: list[Copy] = []
        self.faults: list[Injected] = []
        self.findings: list[Finding] = []
        self._seconds, self._keep, self._report, self._runs = 60 * minutes, keep, report, 0
        pipeline = workspace.pipeline
        self.batch_offsets = choice.batches(window.longest)
        self._tables = read_tables(pipeline, open_destination(pipeline, home))
        self._lookups = files_of(pipeline, home, workspace.work)
        self._contents = Contents(workspace.work / "contents.duckdb")
        variables = externalized(pipeline)[1]
        more = {**variables, **({"KPIPE_STAGING": workspace.manifest.staging} if workspace.manifest.staging else {})}
        self._environ = environment(environ, workspace.home.path, **more)

    def run(self) -> None:
        """Load and prove copies. Findings end it early.

        Raises:
            KpipeError: the undisturbed copy cannot be loaded, or a copy cannot be created, read or removed.
        """
        reference = self._create(disturbed=False)
        try:
            self._finish(reference)
        except CopyFailed as error:
            raise KpipeError(f"without faults, {error.what}", error.hint) from None
        self._prove(reference)
        began = time.monotonic()
        while not self.findings and not self.is_over(began):
            copy = self._create(disturbed=True)
            try:
                self._disturb(copy, reference, began)
                if not self.findings:
                    self._finish(copy)
                    self._prove(copy)
                    self._compare(reference, copy)
            except CopyFailed as error:
                self._find("failed", copy, f"after the faults, a run without faults fails: {error}")
            if not self.findings:
                self._drop(copy)
        if not self.findings:
            self._drop(reference)

    def is_over(self, began: float) -> bool:
        """Return whether no further copy is to be loaded."""
        return time.monotonic() >= began + self._seconds

    # -- one copy

    def _create(self, disturbed: bool) -> Copy:
        name = f"{self.workspace.copy_prefix}_{len(self.copies)}"
        into = self.workspace.place(name).into()
        pipeline = self.workspace.pipeline
        definition = copy_of(pipeline, name, into, self.window, self.batch_offsets, self._tables, self._lookups)
        place = self.workspace.create_copy(name)
        self.workspace.home.save(externalized(definition)[0])
        copy = Copy(definition, disturbed, place.describe())
        self.copies.append(copy)
        return copy

    def _start(self, copy: Copy, setting: str = "") -> Run:
        self._runs += 1
        return Run.of(copy.name, self._environ, self.workspace.runs / f"{self._runs:04}.out", setting)

    def _finish(self, copy: Copy) -> None:
        """Run the copy without faults until it has caught up.

        Raises:
            CopyFailed: it fails, also when it is tried again.
        """
        for attempt in range(1, _TRIES + 1):
            run = self._start(copy)
            try:
                self._watch(run, copy)
            finally:
                if run.poll() is None:
                    run.kill()
            self._noted(copy, run)
            status = run.poll()
            if status == 0:
                return
            if attempt == _TRIES or status in (2, _OPERATOR):
                what, _, hint = run.message().removeprefix("kpipe: ").partition(" -> ")
                raise CopyFailed(f"copy {copy.name}: {what or f'exit status {status}'}", hint or f"see {run.errors}")

    def _watch(self, run: Run, copy: Copy) -> None:
        """Wait until the run ends; measure its batches. A run without progress is killed."""
        counts, first = [0], 0.0
        while run.wait(_STALLED_S, lambda: len(run.batches()) > counts[-1]) and run.poll() is None:
            counts.append(len(run.batches()))
            first = first or time.monotonic()
        if first and not copy.disturbed:
            copy.startup_s = first - run.began
            copy.batch_s = (time.monotonic() - first) / max(1, len(run.batches()))

    def _disturb(self, copy: Copy, reference: Copy, began: float) -> None:
        """Inject faults until the copy has caught up, or the time is over."""
        deadline = began + self._seconds
        injector = Injector(lambda setting: self._start(copy, setting), reference.startup_s, reference.batch_s, deadline)
        while time.monotonic() < deadline:
            injected = Injected(self.choice.next(), copy.name, time.monotonic() - began)
            self.faults.append(injected)
            injector.inject(injected.fault)
            injected.runs, injected.left = [self._described(copy, run) for run in injector.runs], injector.left
            injected.hit = injector.hit
            self._check(copy, injected, injector.runs)
            self._report(f"{injected.seconds:6.1f} s  fault {injected.fault.number}: {injected.fault}: {_effect(injected)}")
            if self.findings or any(run["status"] == 0 for run in injected.runs):
                return

    def _described(self, copy: Copy, run: Run) -> dict[str, Any]:
        self._noted(copy, run)
        batches = run.batches()
        return {
            "run": run.output.stem,
            "status": run.poll(),
            "went_on": run.went_on,
            "batches": len(batches),
            "rows": sum(line["rows"] for line in batches),
            "message": plain(run.message()),
        }

    @staticmethod
    def _noted(copy: Copy, run: Run) -> None:
        copy.batches.update({line["batch"]: line["rows"] for line in run.batches()})

    def _check(self, copy: Copy, injected: Injected, runs: list[Run]) -> None:
        """Report what no fault may cause: an error without a name, a process that outlives its run, a decision."""
        where = f"fault {injected.fault.number} ({injected.fault})"
        for run in runs:
            if run.is_unexpected():
                self._find("unexpected_error", copy, f"{where}: a run ended with an unexpected error: see {run.errors}")
            elif run.poll() == _OPERATOR:
                self._find("failed", copy, f"{where}: an operator must decide: {plain(run.message())}")
        if injected.left:
            self._find("left_behind", copy, f"{where}: processes outlived the killed run: {', '.join(injected.left)}")

    def _drop(self, copy: Copy) -> None:
        if not self._keep:
            self.workspace.drop_copy(copy.name)
            copy.dropped = True

    # -- proof

    def _prove(self, copy: Copy) -> None:
        proof = prove_copy(copy.definition, self.workspace.home, self.window, self.workspace.path / "audits" / copy.name)
        copy.proof = proof
        for problem in proof.problems:
            self._find("not_proven", copy, problem)
        rows = sum(item["rows"] for item in proof.counts.values())
        result = "proven" if not proof.problems else "NOT proven"
        self._report(f"{'copy' if copy.disturbed else 'undisturbed copy'} {copy.name}: {result}, {count(rows, 'row')}")

    def _compare(self, reference: Copy, copy: Copy) -> None:
        """Compare a disturbed copy with the undisturbed one. If they differ, a second undisturbed copy shows the cause."""
        found = self._differences(reference, copy)
        if not found:
            return
        if copy.proof is not None and copy.proof.problems:
            self._find("differs", copy, "it differs from the undisturbed copy: " + "; ".join(found[0]), found[1])
            return
        self._report("contents differ: loading a second undisturbed copy")
        second = self._create(disturbed=False)
        self._finish(second)
        self._prove(second)
        again = self._differences(reference, second)
        if again:
            text = "two undisturbed copies of the same offsets differ, so the faults are not the cause: " + "; ".join(again[0])
            self._find("not_deterministic", second, text, again[1])
        else:
            text = "it differs from the undisturbed copy, and two undisturbed copies are equal: " + "; ".join(found[0])
            self._find("differs", copy, text, found[1])

    def _differences(self, left: Copy, right: Copy) -> tuple[list[str], list[dict[str, Any]]] | None:
        assert left.proof is not None and right.proof is not None
        texts, samples = right.proof.differences(left.proof), list[dict[str, Any]]()
        for at, table in enumerate(self._tables):
            found = self._table_differences(left, right, at)
            if found:
                texts += [f"table {table.name}: {text}" for text in _sentences(found)]
                samples += [{"table": table.name, **sample} for sample in found.samples]
        return (texts, samples) if texts else None

    def _table_differences(self, left: Copy, right: Copy, at: int) -> Differences | None:
        assert left.proof is not None and right.proof is not None
        names = [table_name(copy.name, at) for copy in (left, right)]
        rows = left.proof.rows_of(names[0]), right.proof.rows_of(names[1])
        if 0 in rows:  # the table may not exist
            return Differences((), rows, max(rows), ()) if any(rows) else None
        for copy, name in zip((left, right), names, strict=True):
            if not self._contents.has(name):
                places = addresses(copy.definition, self.workspace.home)
                if not places:
                    return None
                self._contents.read(name, places[at])
        return self._contents.compare(*names)

    def _find(self, kind: str, copy: Copy, text: str, samples: list[dict[str, Any]] | None = None) -> None:
        self.findings.append(Finding(kind, copy.name, text, samples or []))


def _effect(injected: Injected) -> str:
    parts = []
    for run in injected.runs:
        status = run["status"]
        ended = "caught up" if status == 0 else "went on" if run["went_on"] else "killed" if status < 0 else "failed"
        message = f": {run['message']}" if ended == "failed" else ""
        parts.append(f"{ended} after {count(run['batches'], 'batch', 'batches')}{message}")
    return "; ".join(parts)


def _sentences(found: Differences) -> list[str]:
    if found.columns:
        return [f"only one copy has the columns {', '.join(found.columns)}"]
    rows = f"expected {found.rows[0]:,} rows, found {found.rows[1]:,}; " if found.rows[0] != found.rows[1] else ""
    traced = all(sample["offset"] is not None for sample in found.samples)
    records = count(found.records, "record") if traced else "records without offsets"
    return [f"{rows}the rows of {records} differ"]
