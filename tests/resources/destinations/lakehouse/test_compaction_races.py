"""Compactions beside batches, beside each other, killed, and with wrong rows: the same rows, or no commit."""

from __future__ import annotations

import multiprocessing
import random
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kpipe import failpoints
from kpipe.errors import MaintenanceFailed
from kpipe.maintenance.facts import Maintained
from kpipe.maintenance.plan import Limits
from resources.testing.keyed import Oracle, Write, begun, commit_of, contents
from resources.testing.state import proof
from tests.resources.destinations.maintained_tables import PLACES, RULE, at, filled, load, maintained, version

_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(["tests.resources.destinations.lake_place"])
MAINTAINED = [name for name in failpoints.MAINTAINED if name not in ("maintain.expired", "maintain.removing")]


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return PLACES[request.param](tmp_path)


@pytest.mark.parametrize(
    "point", ["maintain.written", pytest.param("maintain.staged", marks=pytest.mark.chaos), "maintain.proven"]
)
def test_a_batch_in_between_is_kept(place: Any, point: str) -> None:
    """The batch is first; the compaction is repeated where it has touched its files."""
    destination = filled(place)
    at(point, lambda: load(place, 40, [2, 3, 50]))
    done = maintained(place)
    failpoints.arm(None)
    assert done.commits >= 1 and done.left == 0
    assert {key: contents(place)[key][0] for key in (2, 3, 50)} == {2: "t40", 3: "t41", 50: "t42"}
    assert len(contents(place)) == 32 and proof(destination).ok


def test_a_compaction_during_a_batch_is_kept(place: Any) -> None:
    """The other way round: the positions that the batch deletes are not in the table any more."""
    destination = filled(place)
    at("commit.before", lambda: _ignored(maintained(place)))
    load(place, 40, [2, 3, 50])
    failpoints.arm(None)
    assert {key: contents(place)[key][0] for key in (2, 3, 50)} == {2: "t40", 3: "t41", 50: "t42"}
    assert len(contents(place)) == 32 and proof(destination).ok


def _ignored(_: object) -> None:
    failpoints.arm(None)


@pytest.mark.parametrize("point", ["maintain.written", "maintain.proven"])
def test_of_two_compactions_one_commits(place: Any, point: str) -> None:
    destination = filled(place)
    before, other = contents(place), list[Maintained]()
    at(point, lambda: other.append(maintained(place)))
    mine = maintained(place)
    failpoints.arm(None)
    assert (other[0].commits, mine.commits) == (1, 0)
    assert contents(place) == before and proof(destination).ok


def _lost(blocks: Any) -> Any:
    yield from (block.slice(1) for block in blocks)


def _doubled(blocks: Any) -> Any:
    for block in blocks:
        yield pa.concat_tables([block, block.slice(0, 1)])


def _exchanged(blocks: Any) -> Any:
    """As many rows, but the last one twice and the first one not at all."""
    for block in blocks:
        yield pa.concat_tables([block.slice(1), block.slice(len(block) - 1)])


def _changed(blocks: Any) -> Any:
    for block in blocks:
        index = block.schema.get_field_index("text")
        yield block.set_column(index, block.schema.field(index), pa.array(["x"] * len(block), block.schema.field(index).type))


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(_lost, marks=pytest.mark.chaos, id="lost"),
        pytest.param(_doubled, marks=pytest.mark.chaos, id="doubled"),
        pytest.param(_exchanged, id="exchanged"),
        pytest.param(_changed, id="changed"),
    ],
)
def test_other_rows_are_never_committed(place: Any, fault: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    destination = filled(place)
    before, known = contents(place), version(place)
    kind = type(place.lake())
    right = kind.bring_live
    monkeypatch.setattr(
        kind, "bring_live", lambda self, state, near, blocks, target: right(self, state, near, fault(blocks), target)
    )
    with pytest.raises(MaintenanceFailed, match="differ"):
        maintained(place)
    monkeypatch.undo()
    assert version(place) == known and contents(place) == before and proof(destination).ok


@pytest.mark.parametrize("fault", ["a source stays", "a file is missing", "one file more"])
def test_a_wrong_list_of_files_is_never_committed(place: Any, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    destination = filled(place)
    before, known = contents(place), version(place)
    kind = type(place.lake())
    right = kind.replacement

    def wrong(self: Any, state: Any, rewritten: Any, merged: Any, deletes: Any, mark: str) -> Any:
        item = rewritten[0]
        more = self.bring_live(state, item.sources[0].live, _row(self, state), 1) if fault == "one file more" else ()
        changed = {
            "a source stays": replace(item, sources=item.sources[1:]),
            "a file is missing": replace(item, brought=()),
            "one file more": replace(item, brought=(*item.brought, *more)),
        }[fault]
        return right(self, state, [changed, *rewritten[1:]], merged, deletes, mark)

    monkeypatch.setattr(kind, "replacement", wrong)
    with pytest.raises(MaintenanceFailed):
        maintained(place)
    monkeypatch.undo()
    assert version(place) == known and contents(place) == before and proof(destination).ok


def _row(lake: Any, state: Any) -> Any:
    schema = lake.stored_schema(state)
    yield pa.table([pa.nulls(1, field.type) for field in schema], schema=schema)


def _maintain(place: Any, fault: str) -> None:
    failpoints.arm(failpoints.Fault(fault))
    maintained(place)


@pytest.mark.parametrize(
    "point",
    [
        name if name in ("maintain.proven", "maintain.committed") else pytest.param(name, marks=pytest.mark.chaos)
        for name in MAINTAINED
    ],
)
def test_killed_anywhere_the_rows_stay(place: Any, point: str) -> None:
    destination = filled(place)
    before = contents(place)
    process = _processes.Process(target=_maintain, args=(place, f"{point}:1:kill"))
    process.start()
    process.join(600)
    assert process.exitcode == -signal.SIGKILL
    assert contents(place) == before and proof(destination).ok
    assert maintained(place).commits == (point != "maintain.committed")
    load(place, 40, [2, 60])
    assert contents(place) == {**before, 2: ("t40", None, 0, 40), 60: ("t41", None, 0, 41)} and proof(destination).ok


def _history(place: Any, seed: int, steps: int) -> None:
    """Batches and compactions in any order, some of them inside each other, against a dict."""
    source, oracle, first = random.Random(seed), Oracle(RULE), 0
    destination = begun(place, RULE, 1)

    def ingest() -> None:
        nonlocal first
        made = [
            Write(0, first + n, source.randrange(30), None if source.random() < 0.2 else f"t{first + n}")
            for n in range(source.randint(1, 12))
        ]
        first += len(made)
        opened = place.open(rule=RULE)
        opened.commit(commit_of(place, opened.ledger()[1], made, RULE))
        for write in made:
            oracle.apply(write)

    def compact() -> None:
        maintained(place, Limits(min_input_files=source.choice([2, 3]), delete_ratio=source.choice([0.1, 0.5, 1.0])))

    for _ in range(steps):
        actions = [ingest, compact] if source.random() < 0.6 else [compact, ingest]
        outer, inner = actions
        if source.random() < 0.4:
            at(source.choice(["commit.before", "commit.data"] if outer is ingest else MAINTAINED), inner)
        outer()
        failpoints.arm(None)
        assert contents(place) == oracle.rows
    assert proof(destination).ok


def test_a_random_history_keeps_every_row(place: Any) -> None:
    _history(place, 7, 6)


@pytest.mark.chaos
@pytest.mark.parametrize("seed", range(20))
def test_random_histories_keep_every_row(place: Any, seed: int) -> None:
    _history(place, seed, 40)
