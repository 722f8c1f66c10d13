"""Run Hypothesis over examples of a destination: a sample that is always the same, or by seeds for a time."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, reject, seed, settings
from hypothesis.errors import Unsatisfiable as Unsatisfied

from tests.combinations.course import Course, Refused, Wrong
from tests.combinations.example import Example
from tests.combinations.sites import Site
from tests.combinations.strategies import DESTINATIONS, examples

__all__ = ["NEEDED", "Hunt", "check", "hunt", "kind_of", "sample", "search_seconds", "search_seed", "survey"]

_MEMORY = Path("/dev/shm")
_SETTINGS = settings(
    deadline=None, database=None, print_blob=True, report_multiple_bugs=False, suppress_health_check=list(HealthCheck)
)
Sites = Callable[[str, Path], Site]
MINUTES, SEED = "KPIPE_COMBINATIONS_MINUTES", "KPIPE_COMBINATIONS_SEED"
#: Fixture of the server that a destination needs.
NEEDED = {"kafka": "brokers", "postgres": "postgres", "mysql": "mariadb"}


def search_seconds() -> float:
    """Return the time of the long search for each destination: KPIPE_COMBINATIONS_MINUTES (30) are for all of them."""
    return float(os.environ.get(MINUTES, "30")) * 60 / len(DESTINATIONS)


def search_seed() -> int:
    """Return the seed to begin with: KPIPE_COMBINATIONS_SEED, else the day's number."""
    return int(os.environ.get(SEED, time.strftime("%Y%m%d")))


def check(example: Example, sites: Sites) -> None:
    """Let one example happen in a folder of its own, in memory where the machine has such a folder: what disks do is
    tested elsewhere.

    Raises:
        Wrong: the oracle finds something.
        Refused: kpipe does not take the definition.
    """
    folder = Path(tempfile.mkdtemp(prefix="kpipe-mix-", dir=_MEMORY if _MEMORY.is_dir() else None))
    site = sites(example.definition.destination, folder)
    try:
        Course(example, folder, site).go()
    finally:
        site.close()
        shutil.rmtree(folder, ignore_errors=True)


class _Over(BaseException):
    """The time is over."""


@dataclass
class Hunt:
    """What a search has found.

    Attributes:
        examples: that were run, with those of shrinking.
        refused: of these, definitions that kpipe did not take.
        first: number of the first example that was wrong; None: none was.
        seconds: until then, or in all.
        failure: the smallest wrong example, as text.
        last_seed: of the last round.
        reasons: why definitions were not taken.
        kinds: each kind of finding: number of the example that had it first, seconds until then, and its transcript.
    """

    examples: int = 0
    refused: int = 0
    first: int | None = None
    seconds: float = 0.0
    failure: str = ""
    last_seed: int = 0
    reasons: set[str] = field(default_factory=set)
    kinds: dict[str, tuple[int, float, str]] = field(default_factory=dict)


def kind_of(finding: str) -> str:
    """A finding without its numbers, names and values, so that equal ones are one."""
    line = finding.partition("\n")[0]
    return re.sub(r"'[^']*'|[\w./:-]*\d[\w./:-]*", "_", line)[:160]


def sample(destination: str, sites: Sites, count: int) -> Hunt:
    """The same examples each time.

    Raises:
        Wrong: one of them is wrong, as small as it can be made.
    """
    done = Hunt()
    _rounds(destination, sites, done, settings(_SETTINGS, max_examples=count, derandomize=True))
    return done


def survey(
    destination: str,
    sites: Sites,
    first_seed: int,
    seconds: float,
    tell: Callable[[str], None],
    enough: Callable[[str], bool] = lambda _: False,
    changes: bool = False,
) -> Hunt:
    """Every kind of finding that comes up in a time, each with its first example; nothing is made small.

    Args:
        destination: type of the destination.
        sites: makes its places.
        first_seed: of the first round; later rounds count up.
        seconds: how long to search.
        tell: is called with each new kind of finding.
        enough: whether a finding, given as its transcript, ends the search; it becomes `failure`.
        changes: whether all examples are of change events.
    """
    done, began = Hunt(last_seed=first_seed - 1), time.monotonic()
    while time.monotonic() < began + seconds and not done.failure:
        done.last_seed += 1
        chosen = settings(_SETTINGS, max_examples=50, phases=(Phase.generate,))
        with suppress(Unsatisfied, _Over):
            until = began + seconds
            _rounds(destination, sites, done, chosen, done.last_seed, began, until, True, tell, enough, changes)
    done.seconds = time.monotonic() - began
    return done


def hunt(destination: str, sites: Sites, first_seed: int, seconds: float, shrink: bool = True, each: int = 50) -> Hunt:
    """Round after round of `each` examples with seeds that count up, until something is found or the time is over."""
    done, began = Hunt(last_seed=first_seed - 1), time.monotonic()
    phases = (Phase.generate, Phase.shrink) if shrink else (Phase.generate,)
    while time.monotonic() < began + seconds:
        done.last_seed += 1
        try:
            chosen = settings(_SETTINGS, max_examples=each, phases=phases)
            with suppress(Unsatisfied, _Over):
                _rounds(destination, sites, done, chosen, done.last_seed, began, began + seconds)
        except Wrong as wrong:
            done.failure = str(wrong)
            break
    done.seconds = done.seconds or time.monotonic() - began
    return done


def _rounds(
    destination: str,
    sites: Sites,
    done: Hunt,
    chosen: settings,
    number: int | None = None,
    began: float | None = None,
    until: float | None = None,
    collect: bool = False,
    tell: Callable[[str], None] = lambda _: None,
    enough: Callable[[str], bool] = lambda _: False,
    changes: bool = False,
) -> None:
    since = time.monotonic() if began is None else began

    @chosen
    @given(examples(destination, changes))
    def each(example: Example) -> None:
        if done.first is None and until is not None and time.monotonic() > until:
            raise _Over
        done.examples += 1
        try:
            check(example, sites)
        except Refused as refused:
            done.refused += 1
            done.reasons.add(str(refused)[:150])
            reject()
        except Wrong as wrong:
            passed = time.monotonic() - since
            kind = kind_of(str(wrong))
            if kind not in done.kinds:
                done.kinds[kind] = done.examples, passed, str(wrong)
                tell(f"after {done.examples} examples, {passed:.0f} s: {wrong}")
            if enough(str(wrong)):
                done.failure = str(wrong)
                raise _Over from None
            if collect:
                return
            if done.first is None:
                done.first, done.seconds = done.examples, passed
            raise

    (each if number is None else seed(number)(each))()
