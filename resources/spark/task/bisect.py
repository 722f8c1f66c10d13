"""Find the records that make the program fail: run it on halves of the range until single records fail alone.

    the run failed ─► without any record? ─► again, on the unanswered records ─► three records, each alone?
                   ─► halves of halves ─► one record alone, twice ─► the rest of the range ─► staged without them

Nothing here reads Kafka or starts a program: a trial is a function. A search ends with the records, or with an error
that explains why it found none.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import ceil, log2

from kpipe.errors import TransformFailed
from kpipe.offsets import Range

__all__ = ["Bounds", "Search", "Trial"]

# A record is a poison record only if the program fails on it alone this many times: once may be chance.
_PROOFS = 2
# Of this many records or fewer, all may be poison records. Of more, three that each fail alone mean a broken program.
_FEW = 16


@dataclass(frozen=True)
class Trial:
    """Result of one run over a part of the range.

    Attributes:
        failure: the program's failure; None: it passed.
        given: offsets of the records passed to it, ascending; after a failure, those that it had not reached are missing.
    """

    failure: TransformFailed | None = None
    given: Sequence[int] = ()


@dataclass(frozen=True)
class Bounds:
    """Limits at which a search stops.

    Attributes:
        records: maximum of poison records in one range.
        seconds: maximum time for one range, checked after every trial.
    """

    records: int = 100
    seconds: float = 1200


@dataclass
class Search:
    """Search for poison records in one range.

    Attributes:
        where: the partition, for messages, such as `tweets/3`.
        span: the range.
        failed: the program's failure on it.
        trial: runs the program over a part of the range without the poison records found before; an empty part means
            without any record. If the second argument is true, the trial tests one record, with the pipeline's full timeout.
        idle_s: idle timeout of one trial, for messages.
        bounds: limits of the search.
        first_only: stop at the first poison record.
        on_progress: receives progress messages.
        clock: seconds, monotonic.
        tries: trials so far.
        found: reasons by offset of the poison records.
    """

    where: str
    span: Range
    failed: TransformFailed
    trial: Callable[[Range, bool], Trial]
    idle_s: float = 60
    bounds: Bounds = Bounds()
    first_only: bool = False
    on_progress: Callable[[str], None] = lambda _: None
    clock: Callable[[], float] = time.monotonic
    tries: int = 0
    found: dict[int, str] = field(default_factory=dict)

    def run(self) -> dict[int, str]:
        """Return reasons by offset of the records on which the program fails alone.

        Raises:
            TransformFailed: no record or too many records cause the failure, or the time is over; or a trial could not start.
        """
        self._until = self.clock() + self.bounds.seconds
        self._announce()
        if self._try(Range(self.span.start, self.span.start)).failure is not None:
            raise self._gave_up("it fails without any record, too", "fix it: without records it must end with status 0", "")
        trial = self._again()
        self._refuse_all(trial.given)
        while True:
            self._among(trial.given)
            rest = Range(trial.given[-1] + 1, self.span.end)
            if (self.first_only and self.found) or not len(rest):
                return self.found
            trial = self._try(rest)
            if trial.failure is None:
                return self.found

    def _again(self) -> Trial:
        """Reproduce the failure, and return the trial whose records contain the cause."""
        since = self.failed.unanswered
        later = [] if since is None or since == self.span.start else [Range(since, self.span.end)]
        for part in [*later, self.span]:
            trial = self._try(part)
            if trial.failure is not None and trial.given:
                return trial
        raise self._gave_up(
            "a second run over the same records did not fail, so none of them is the cause",
            "run it again; if it fails again, check what differs between runs: time, network, memory, chance",
            "chance",
        )

    def _refuse_all(self, given: Sequence[int]) -> None:
        if len(given) <= _FEW:
            return
        each = (given[0], given[len(given) // 2], given[-1])
        if all(self._try(Range(offset, offset + 1)).failure is not None for offset in each):
            raise self._gave_up(
                f"it also fails on each of three records alone (offsets {', '.join(map(str, each))}): it fails on everything",
                "run it by hand on one record; if the records are invalid, errors.transform cannot help",
            )

    def _among(self, given: Sequence[int]) -> None:
        """Search among records on which it has failed; a half that must contain a poison record is not tried first."""
        if len(given) == 1:
            self._prove(given[0])
            return
        left, right = given[: len(given) // 2], given[len(given) // 2 :]
        blamed = self._fails(left)
        if blamed:
            self._among(left)
            if self.first_only:
                return
        if not blamed or self._fails(right):
            self._among(right)

    def _fails(self, given: Sequence[int]) -> bool:
        return self._try(Range(given[0], given[-1] + 1)).failure is not None

    def _prove(self, offset: int) -> None:
        for _ in range(_PROOFS):
            failure = self._try(Range(offset, offset + 1), alone=True).failure
            if failure is None:
                raise self._gave_up(
                    f"it fails on records around offset {offset}, but on none of them alone",
                    "it may depend on earlier records, on their number, or on chance: a record becomes a dead letter only if"
                    " the program fails on it alone. Smaller batches (batch.max_offsets_per_partition) may pass",
                )
        assert failure is not None
        self.found[offset] = f"{failure.what} (alone, {_PROOFS} times; found in {self.tries} tries)"
        self.on_progress(f"{self.where} offset {offset} makes the program fail: {self.found[offset]}")
        if len(self.found) > self.bounds.records:
            raise self._gave_up(
                f"more than {self.bounds.records} records make it fail, each alone, the first at offset {min(self.found)}",
                "fix the program, or the producer of the records",
            )

    def _try(self, part: Range, alone: bool = False) -> Trial:
        trial = self.trial(part, alone)
        self.tries += 1
        if self.clock() > self._until:
            raise self._gave_up(
                f"the search for the poison record ended after {self.bounds.seconds:g} s",
                "use smaller batches (batch.max_offsets_per_partition), or a shorter transform.trial_timeout_s",
            )
        return trial

    def _announce(self) -> None:
        most = 2 * ceil(log2(max(2, len(self.span)))) + _PROOFS + 5
        self.on_progress(
            f"{self.failed.what}; searching for the record in {self.where} {self.span}: at most {most} tries for the first one,"
            f" each stopped after {self.idle_s:g} s without progress, {self.bounds.seconds:g} s in all"
        )

    def _gave_up(self, why: str, hint: str, phase: str = "work") -> TransformFailed:
        more = f"; poison records so far: {', '.join(map(str, list(self.found)[:5]))}" if self.found else ""
        tries = f"{self.tries} {'try' if self.tries == 1 else 'tries'}"
        self.on_progress(f"{self.where} {self.span}: {why} ({tries})")
        return TransformFailed(f"{self.failed.what}; {why} ({tries}{more})", hint, phase)
