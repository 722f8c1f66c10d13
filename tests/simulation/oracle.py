"""Judges worlds. Shares no code with kpipe: it looks at plain lanes and rows, and keeps books of its own.

Rules, each of which begins the findings about it:

    tiling     lanes of a partition cover its offsets without gap or overlap; only the last one may be open
    monotone   what the ledger has as read stays read, unless an operator has everything read again (reread)
    together   offsets become read by the commit that has their rows (at_least_once: by one behind it), and by no other
    once       an offset is visible at most once since it was last demanded (exactly_once, at_most_once)
    rows       a commit shows exactly the rows of its ranges
    newest     a table with a key holds of each key the newest row that was read, and none where that is a tombstone
    complete   when everything has ended and one more run was made, each offset is read, or left out for a reason
    sent       a receiver that drops known keys has each record once, and all of a batch that has landed
    cut        no batch begins behind records of a log that was cut since they were read, and no other log is called cut
    verify     `kpipe verify` proves what is right, names what is lost, skipped or repeated, and never proves what is wrong
    ended      a process ends well, or with an error that the course of events explains
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import groupby

from kpipe.errors import KpipeError
from tests.simulation.logs import STEP, Log, generation
from tests.simulation.world import World

__all__ = ["Books", "Oracle"]

Lanes = tuple[tuple[int, int, int, int | None, str], ...]
Place = tuple[int, int]
DECIDED = {"jump", "loss", "backfill", "rewind", "reread", "accept_log", "skip", "give_up"}
NEAR = 4  # offsets before a range whose records are compared, at least
RECORDED = {"loss", "claim", "skip", "jump", "begin", "give_up"}


@dataclass(frozen=True)
class Books:
    """What the oracle remembers of a course of events.

    Attributes:
        demanded: by place, how often an operator had it read again.
        shown: place and the number of demands when its rows landed, as often as they did.
        advanced: places that commits of the ledger alone have made read, as often as they did.
        left_out: places that were skipped or lost, with the kind of the commit that did it.
        read_at: rows that landed, with the numbers of cuts that their records came after: with `at_least_once` a row may land
            from both logs. Without those below a decision.
        landed_at: the same with those below a decision: a run that began before one may still find the log cut below it.
        found_cut: partitions of which a run has found that their log was cut, and no operator has decided about that.
    """

    demanded: Counter[Place]
    shown: Counter[tuple[Place, int]]
    advanced: Counter[Place]
    left_out: dict[Place, str]
    read_at: dict[Place, frozenset[int]] = field(default_factory=dict)
    landed_at: dict[Place, frozenset[int]] = field(default_factory=dict)
    found_cut: frozenset[int] = frozenset()

    @classmethod
    def empty(cls) -> Books:
        return cls(Counter(), Counter(), Counter(), {})

    def often(self, place: Place) -> int:
        """How often its rows have landed."""
        return sum(self.shown[place, since] for since in range(self.demanded[place] + 1))


@dataclass(frozen=True)
class Oracle:
    """The rules for one definition.

    Attributes:
        log: what was produced.
        delivery: of the definition.
        keyed, deleting: whether rows have a key, and tombstones delete.
        sends: whether rows are requests to a receiver.
    """

    log: Log
    delivery: str
    keyed: bool
    deleting: bool
    sends: bool = False

    def landed(self, before: World, after: World, kind: str, ranges: Iterable[tuple[int, int, int]]) -> list[str]:
        """Judge one commit that landed, and write the books of the world behind it."""
        places = [(p, at) for p, start, end in ranges for at in range(start, end)]
        old, new = before.lanes(), after.lanes()
        was, now = _read(old), _read(new)
        books: Books = before.books
        found = [*_tiling(new)]
        fresh = now - was
        if kind == "reread":
            again = (was - now) | set(places)
            books = replace(books, demanded=books.demanded + Counter(again))
        elif was - now:
            found.append(f"monotone: {kind} makes {_words(was - now)} unread")
        if kind in ("batch", "rows"):
            twice = [p for p in places if books.shown[p, books.demanded[p]]]
            if twice and (self.delivery != "at_least_once" or (kind == "batch" and set(twice) & was)):
                found.append(f"once: {kind} shows {_words(twice)} again")
            shown = books.shown + Counter((p, books.demanded[p]) for p in places)
            books = replace(books, shown=shown)
            found += self._rows(before, after, places, books)
            if self.sends:
                have = {place for place, _ in after.taken}
                missing = [p for p in places if self._is_row(p) and p not in have]
                found += [f"sent: {kind} lands, and {_words(missing)} were not taken"] * bool(missing)
        elif before.rows() != after.rows():
            found.append(f"rows: {kind} changes the table")
        expected = set(places) if kind == "batch" else set()
        if kind == "advance":
            books = replace(books, advanced=books.advanced + Counter(fresh))
            bad = {p for p in fresh if books.advanced[p] > books.often(p)}
            if bad:
                found.append(f"together: advance passes {_words(bad)} without rows of its own")
        elif fresh != expected:
            found.append(f"together: {kind} of {_words(expected)} makes {_words(fresh)} read")
        books, more = self._continued(books, after, kind, ranges, old, new)
        found += more
        gone_before, gone = _left_out(old), _left_out(new)
        books = replace(books, left_out={p: books.left_out.get(p, kind) if p in gone_before else kind for p in gone})
        after.books = books
        try:
            audit = after.verify()
        except KpipeError as error:
            return [*found, f"verify: fails: {error.what}"]
        if audit.ok and books.found_cut:
            found.append("verify: proves rows of a log that was cut")
        if not audit.ok and not found and not books.found_cut:
            found.append(f"verify: denies what is right: {audit.problems[0]}")
        found += self._said(audit, new, books)
        return [f"{text} (verify proves it)" if audit.ok and not text.startswith("verify") else text for text in found]

    def _rows(self, before: World, after: World, places: list[Place], books: Books) -> list[str]:
        if not self.keyed:
            more = Counter((p, at, key % STEP) for p, at, key in after.rows())
            more.subtract((p, at, key % STEP) for p, at, key in before.rows())
            want = Counter((p, at, self.log.keys[p][at]) for p, at in places if self._is_row((p, at)))
            wrong = {row: (n, want[row]) for row, n in more.items() if n != want[row]} | {
                row: (more[row], n) for row, n in want.items() if n != more[row]
            }
            return [f"rows: {row[:2]} came {n} times, not {m}" for row, (n, m) in sorted(wrong.items())[:1]]
        return [] if books.demanded else self._newest(after, {place for (place, _), n in books.shown.items() if n})

    def _continued(
        self, books: Books, after: World, kind: str, ranges: Iterable[tuple[int, int, int]], old: Lanes, new: Lanes
    ) -> tuple[Books, list[str]]:
        """Judge whether ranges continue what was read below them, and whether a log that is called cut is one."""
        found, known, ever, cut = [], dict(books.read_at), dict(books.landed_at), set(books.found_cut)
        if kind in ("batch", "rows"):
            fresh = {(p, at): key // STEP for p, at, key in after.rows()}
            for p, start, end in ranges:
                mine = {at: fresh[p, at] for at in range(start, end) if (p, at) in fresh}
                # What an operator has skipped ends what a range continues, also if rows below it land after that decision.
                skipped = max(
                    (lane[3] or 0 for lane in old if lane[0] == p and lane[4] == "skipped" and lane[1] < start), default=0
                )
                below = max((at for q, at in known if q == p and max(start - NEAR, skipped) <= at < start), default=None)
                if mine and below is not None and generation(after.cuts[p], below, min(mine.items())[1]) not in known[p, below]:
                    found.append(f"cut: {kind} begins at {p}:{start}, behind records of another log")
                for seen in (known, ever):
                    seen |= {(p, at): seen.get((p, at), frozenset()) | {number} for at, number in mine.items()}
        elif kind == "cut":
            cut |= {p for p, _, text in after.tails() if " cut " in text}
            same = [p for p in cut if all({generation(after.cuts[p], at)} == n for (q, at), n in ever.items() if p == q)]
            found += [f"cut: the log of {p} is as it was read" for p in same]
        elif kind in DECIDED:
            # A decision that was made before a run found the cut, and changes another lane, leaves the mark: so does `verify`.
            marked = {p for p, _, text in after.tails() if " cut " in text}
            moved = {lane[0] for lane in set(old) ^ set(new)} | (cut - marked)
            known, cut = {place: n for place, n in known.items() if place[0] not in moved}, cut & marked
        return replace(books, read_at=known, landed_at=ever, found_cut=frozenset(cut)), found

    def _newest(self, world: World, shown: set[Place]) -> list[str]:
        want: dict[int, Place] = {}
        for place in sorted(shown):
            if self._is_row(place) or (self.deleting and place in self.log.deletes):
                want[self.log.keys[place[0]][place[1]]] = place
        want = {key: place for key, place in want.items() if place not in self.log.deletes}
        have = {key: (p, at) for p, at, key in world.rows()}
        if len(have) != len(world.rows()):
            return ["newest: a key stands there twice"]
        wrong = sorted(key for key in want.keys() | have.keys() if want.get(key) != have.get(key))
        return [f"newest: key {key} has the row of {have.get(key)}, not of {want.get(key)}" for key in wrong[:1]]

    def _is_row(self, place: Place) -> bool:
        return place not in self.log.deletes and place not in self.log.gaps

    def _said(self, audit: object, lanes: Lanes, books: Books) -> list[str]:
        """What verify names beside its verdict."""
        found = []
        for kind in ("lost", "skipped"):
            want = {(p, at) for p, start, _, end, k in lanes if k == kind for at in range(start, end or start)}
            if _parsed(getattr(audit, kind)) != want:
                found.append(f"verify: names {getattr(audit, kind)} as {kind}, not {_words(want)}")
        if self.delivery == "at_least_once":
            often = Counter(p for (p, _), n in books.shown.items() for _ in range(n))
            more = {p for p, n in often.items() if n > 1 + books.demanded[p]}
            if not more <= _parsed(audit.repeated):  # type: ignore[attr-defined]
                found.append(f"verify: does not name {_words(more)} as repeated")
        return found

    def ended(self, world: World, outcome: str, lossy: bool) -> list[str]:
        """Judge the world when everything has ended and one more run was made.

        Args:
            world: how it is then.
            outcome: of that run.
            lossy: whether a claim may have been left: a run was killed, or failed, or met another one.
        """
        expected = ("done", "LogTruncated") if any(world.cuts) else ("done",)
        found = [] if outcome in expected else [f"ended: one more run ends with {outcome}"]
        lanes, books = world.lanes(), world.books
        read = _read(lanes)
        begun = {p: start for p, start, *_ in reversed(lanes)}
        for p, (_, high) in enumerate(world.ends):
            for at in range(begun.get(p, 0), high):
                place = (p, at)
                loose = self.delivery == "at_least_once"  # an operator may demand again what has landed and is not passed yet
                shown = books.often(place) if loose else books.shown[place, books.demanded[place]]
                why = books.left_out.get(place)
                if place in read:
                    if not shown or (not loose and shown > 1):
                        found.append(f"complete: {place} is read, and visible {shown} times")
                elif why is None and outcome == "done":
                    found.append(f"complete: {place} is neither read nor left out")
                elif why == "skip" and place not in self.log.poison:
                    found.append(f"complete: {place} was skipped, and nothing is wrong with it")
                elif why == "claim" and not (self.delivery == "at_most_once" and lossy):
                    found.append(f"complete: {place} is lost without a reason")
                elif shown and not loose:
                    found.append(f"complete: {place} is left out by {why}, and visible")
                elif why is not None and why not in RECORDED | {"reread"}:
                    found.append(f"complete: {place} was left out by {why}")
        often = Counter(place for place, batch in world.taken if books.left_out.get(place) != "give_up")
        found += [
            f"sent: the receiver has {place} {n} times" for place, n in sorted(often.items()) if n > 1 + books.demanded[place]
        ]
        # An operator may demand again what has landed, and then leave it out.
        unlanded = [place for place, n in sorted(often.items()) if place not in read and books.often(place) < n]
        found += [f"sent: {place} was taken and has not landed" for place in unlanded]
        if self.keyed:
            shown_ever = {place for (place, _), n in books.shown.items() if n}
            found += self._newest(world, shown_ever) if shown_ever <= read else []
        return found[:3]


def _tiling(lanes: Lanes) -> list[str]:
    found = []
    for p, mine in groupby(lanes, key=lambda lane: lane[0]):
        at: int | None = -1
        for _, start, following, end, _ in mine:
            if at is None or (at not in (-1, start)):
                found.append(f"tiling: partition {p}: the lane from {start} follows one that ends at {at}")
            if following < start or (end is not None and following > end):
                found.append(f"tiling: partition {p}: the lane from {start} stands at {following}")
            at = end
        if at is not None:
            found.append(f"tiling: partition {p} has no open lane")
    return found


def _read(lanes: Lanes) -> set[Place]:
    return {(p, at) for p, start, following, _, kind in lanes if kind == "read" for at in range(start, following)}


def _left_out(lanes: Lanes) -> set[Place]:
    return {(p, at) for p, start, _, end, kind in lanes if kind != "read" for at in range(start, end or start)}


def _parsed(ranges: Iterable[str]) -> set[Place]:
    """Places of ranges in words: `tweets/0 [3, 7)`."""
    found = set()
    for text in ranges:
        name, start, end = text.replace("[", "").replace(")", "").replace(",", "").split()
        found |= {(int(name.rpartition("/")[2]), at) for at in range(int(start), int(end))}
    return found


def _words(places: Iterable[Place]) -> str:
    return " ".join(f"{p}:{at}" for p, at in sorted(places)) or "nothing"
