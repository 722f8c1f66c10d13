"""Which records make the program fail? It is run over parts of the range, in halves, until one record fails alone.

    the run failed ─► without any record? ─► again, on what it had not answered ─► three records, each alone?
                   ─► halves of halves ─► one record alone, twice ─► the rest of the range ─► staged without them

Nothing here reads Kafka or starts a program: a trial is a function. Every way ends: with the records, or with an error that
says why no record is to blame.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import ceil, log2

from kpipe.errors import TransformFailed
from kpipe.offsets import Range

__all__ = ["Bounds", "Search", "Trial"]

# A record is only blamed when it makes the program fail alone so many times: once may be chance.
_PROOFS = 2
# Among so many records or fewer, all may be to blame; of more, three that each fail alone say that the program is broken.
_FEW = 16


@dataclass(frozen=True)
class Trial:
    """What one run over a part of the range has shown.

    Attributes:
        failure: why it failed; None: it passed.
        given: offsets of the records that it was given, ascending; after a failure those behind are missing.
    """

    failure: TransformFailed | None = None
    given: Sequence[int] = ()


@dataclass(frozen=True)
class Bounds:
    """When a search gives up.

    Attributes:
        records: most records of one range that may be to blame.
        seconds: most time for one range; looked at after every trial.
    """

    records: int = 100
    seconds: float = 1200


@dataclass
class Search:
    """One search in one range.

    Attributes:
        where: the partition, for messages, such as `tweets/3`.
        span: the range.
        failed: how the program failed on it.
        trial: runs the program over a part of the range, which holds no record that is known to make it fail; an empty
            part means without any record. The second argument says that this is about one record, which must be given all
            the time that the pipeline allows.
        idle_s: longest silence of one trial, for what is told.
        bounds: when to give up.
        first_only: end with the first record.
        say: is told how it goes.
        clock: seconds, monotonic.
        tries: trials so far.
        found: reasons, by offset of the records that are to blame.
    """

    where: str
    span: Range
    failed: TransformFailed
    trial: Callable[[Range, bool], Trial]
    idle_s: float = 60
    bounds: Bounds = Bounds()
    first_only: bool = False
    say: Callable[[str], None] = lambda _: None
    clock: Callable[[], float] = time.monotonic
    tries: int = 0
    found: dict[int, str] = field(default_factory=dict)

    def run(self) -> dict[int, str]:
        """Reasons, by offset, of the records that make the program fail, each of them alone.

        Raises:
            TransformFailed: no record is to blame, too many are, or the time is over; or a trial could not be made.
        """
        self._until = self.clock() + self.bounds.seconds
        self._announce()
        if self._try(Range(self.span.start, self.span.start)).failure is not None:
            raise self._gave_up("it fails without any record, too", "mend it: without records it must end with status 0", "")
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
        """A second failure, with the records among which the reason is."""
        since = self.failed.unanswered
        later = [] if since is None or since == self.span.start else [Range(since, self.span.end)]
        for part in [*later, self.span]:
            trial = self._try(part)
            if trial.failure is not None and trial.given:
                return trial
        raise self._gave_up(
            "a second run over the same records did not fail, so none of them is to blame",
            "run it again; if it comes back, look for what differs between runs: time, network, memory, chance",
        )

    def _refuse_all(self, given: Sequence[int]) -> None:
        if len(given) <= _FEW:
            return
        each = (given[0], given[len(given) // 2], given[-1])
        if all(self._try(Range(offset, offset + 1)).failure is not None for offset in each):
            raise self._gave_up(
                f"it also fails on each of three records alone (offsets {', '.join(map(str, each))}): it fails on everything",
                "run it by hand on one record; if the records are what is wrong, errors.transform cannot help",
            )

    def _among(self, given: Sequence[int]) -> None:
        """Finds them among records on which it has failed; a half that need not be tried is not."""
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
                    "it may fail by what it remembers of earlier records, by their number, or by chance: a record is only set"
                    " aside if it fails alone. Smaller batches (batch.max_offsets_per_partition) may pass",
                )
        assert failure is not None
        self.found[offset] = f"{failure.what} (alone, {_PROOFS} times; found in {self.tries} tries)"
        self.say(f"{self.where} offset {offset} makes the program fail: {self.found[offset]}")
        if len(self.found) > self.bounds.records:
            raise self._gave_up(
                f"more than {self.bounds.records} records make it fail, each alone, the first at offset {min(self.found)}",
                "mend the program, or what writes the records",
            )

    def _try(self, part: Range, alone: bool = False) -> Trial:
        trial = self.trial(part, alone)
        self.tries += 1
        if self.clock() > self._until:
            raise self._gave_up(
                f"the search for the record ended after {self.bounds.seconds:g} s",
                "use smaller batches (batch.max_offsets_per_partition), or a shorter transform.trial_timeout_s",
            )
        return trial

    def _announce(self) -> None:
        most = 2 * ceil(log2(max(2, len(self.span)))) + _PROOFS + 5
        self.say(
            f"{self.failed.what}; looking for the record in {self.where} {self.span}: at most {most} tries for the first one,"
            f" each ended after {self.idle_s:g} s without progress, {self.bounds.seconds:g} s in all"
        )

    def _gave_up(self, why: str, hint: str, phase: str = "work") -> TransformFailed:
        more = f"; blamed so far: {', '.join(map(str, list(self.found)[:5]))}" if self.found else ""
        tries = f"{self.tries} {'try' if self.tries == 1 else 'tries'}"
        self.say(f"{self.where} {self.span}: {why} ({tries})")
        return TransformFailed(f"{self.failed.what}; {why} ({tries}{more})", hint, phase)
