"""Stores of every format are read, continued and upgraded where they are older; those of later versions are refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from kpipe.errors import DestinationError, FormatTooNew, KpipeError
from kpipe.interfaces import Publication, Resuming
from kpipe.ledger import format_version
from resources import home
from resources.destinations.lakehouse import ledger_file
from resources.destinations.parquet import table as parquet_table
from resources.destinations.sql.ledger import format_table
from resources.destinations.webhook import commit_codec
from resources.testing.lake import LakePlace
from resources.testing.place import batch
from resources.testing.state import proof
from tests.upgrade.contents import Contents
from tests.upgrade.stores import FORMATS, STORES, WRITTEN, Store

_REGISTRIES: tuple[dict[int, Any], ...] = (
    format_table.STEPS, ledger_file.STEPS, parquet_table.STEPS, commit_codec.STEPS,
)  # fmt: skip
_NEWER = format_version.FORMAT_VERSION + 1
# DuckDB 1.5 refuses files of 2.0: test_duckdb_files.py.
_NAMES = [
    pytest.param(name, marks=pytest.mark.broker if name == "kafka" else ())
    for name in STORES
    if name != "duckdb-2.0" or int(duckdb.__version__.split(".")[0]) >= 2
]
_LEDGERS = [name for name in _NAMES if name.values[0] != "duckdb-2.0"]  # one file of DuckDB


def _parameter(number: int) -> Any:
    return pytest.param(number, id=f"format-{number}")


_OLDER = [_parameter(number) for number in FORMATS if number < format_version.FORMAT_VERSION]


@pytest.fixture(params=_NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=[_parameter(number) for number in FORMATS])
def written(request: pytest.FixtureRequest) -> int:
    """The format that the store is in."""
    return int(request.param)


@pytest.fixture
def store(request: pytest.FixtureRequest, tmp_path: Path, name: str, written: int) -> Iterator[Store[Any]]:
    """A store as the version that wrote the format has left it."""
    kind: Any = STORES[name]
    made = kind(tmp_path / "place", request.getfixturevalue(kind.server) if kind.server else None)
    try:
        made.restore(WRITTEN / f"format-{written}" / name)
        yield made
    finally:
        made.close()


@pytest.fixture
def contents(store: Store[Any]) -> Contents:
    return Contents(store.place, store.folder)


def next_format(patch: pytest.MonkeyPatch, step: Callable[..., None]) -> None:
    """Let this kpipe write a format that it does not have yet, which that step upgrades to."""
    patch.setattr(format_version, "FORMAT_VERSION", _NEWER)
    for registry in _REGISTRIES:
        patch.setitem(registry, _NEWER - 1, step)


def recorded(number: int) -> int | None:
    """Return what a store of that format records."""
    return None if number == format_version.UNVERSIONED else number


def steps_taken(patch: pytest.MonkeyPatch) -> set[int]:
    """Return a set that is filled with the format that each step upgrades from, when it is taken."""
    taken: set[int] = set()
    for registry in _REGISTRIES:
        for number, step in registry.items():

            def noted(*target: Any, number: int = number, step: Callable[..., None] = step) -> None:
                taken.add(number)
                step(*target)

            patch.setitem(registry, number, noted)
    return taken


def test_the_stores_of_every_format_are_checked_in() -> None:
    assert list(FORMATS) == list(range(format_version.FORMAT_VERSION + 1))
    for number in FORMATS:
        folder = WRITTEN / f"format-{number}"
        assert {path.name for path in folder.iterdir()} == {*STORES, "home"}
        assert sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) < 1_000_000


@pytest.mark.parametrize("written", _OLDER, indirect=True)
def test_an_older_store_is_read_without_a_write(store: Store[Any], contents: Contents) -> None:
    before = store.fingerprint()
    contents.check()
    assert store.fingerprint() == before


def test_a_store_is_continued_and_upgraded_if_it_is_older(
    store: Store[Any], contents: Contents, written: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = steps_taken(monkeypatch)
    assert store.formats() == {recorded(written)}
    assert proof(contents.open()).ok
    if contents.sends:
        contents.finish_sending()
    contents.proceed()
    contents.check(proceeded=True)
    assert store.formats() == {format_version.FORMAT_VERSION}
    assert taken == set(range(written, format_version.FORMAT_VERSION))


@pytest.mark.crossed
@pytest.mark.parametrize("name", _LEDGERS, indirect=True)
def test_a_commit_that_fails_leaves_the_old_format(store: Store[Any], contents: Contents, written: int) -> None:
    """A step that changes the store is undone with the commit, and taken again by the next one."""
    taken: list[Any] = []

    def step(target: Any, *_: Any) -> None:
        taken.append(target)
        if not isinstance(target, dict):  # tables: what the step changes must be rolled back
            target.execute("UPDATE kpipe_pipelines SET state = 'upgraded'")

    with pytest.MonkeyPatch.context() as patch:
        next_format(patch, step)
        destination = contents.open()
        before = destination.ledger()
        commit = batch(store.place, before[1], {0: 11})
        store.place.fail_next("before")
        with pytest.raises(DestinationError):
            destination.commit(commit)
        assert destination.ledger() == before and taken
        if isinstance(store.place, LakePlace):  # the new record is there, and the table does not name it
            assert store.place.record().get("format") == recorded(written)
        else:  # a webhook's outbox has the batch that is being sent
            assert store.formats() == {recorded(written), *((_NEWER,) if contents.sends else ())}
        assert not [row for row in destination.view("pipelines") if row["state"] == "upgraded"]
        destination.commit(commit)
        assert _NEWER in store.formats()
        assert contents.open().ledger()[1].seq == before[1].seq + 1


@pytest.mark.parametrize("name", _LEDGERS, indirect=True)
@pytest.mark.parametrize("written", [_parameter(FORMATS[-1])], indirect=True)
def test_a_newer_store_is_refused_as_it_is(store: Store[Any], contents: Contents) -> None:
    with pytest.MonkeyPatch.context() as patch:
        next_format(patch, format_version.unchanged)
        if contents.sends:
            contents.finish_sending()
        for pipeline in ("tweets", "other"):  # each has a ledger of its own in a lake
            destination = contents.open(pipeline)
            destination.commit(batch(store.place, destination.ledger()[1], {0: 11}))
        commit = batch(store.place, contents.open().ledger()[1], {0: 20})
        assert store.formats() == {_NEWER}
    before = store.fingerprint()
    for pipeline in contents.pipelines:
        destination = contents.open(pipeline)
        calls: list[Callable[[], Any]] = [
            destination.ledger, destination.history, destination.recount, destination.unpublished,
            lambda it=destination: it.view("batches"), lambda it=destination: it.published([Publication("x", 1, {})]),
            lambda it=destination: it.record_state("running"),
        ]  # fmt: skip
        if pipeline == "tweets":
            calls.append(lambda it=destination: it.commit(commit))
        if isinstance(destination, Resuming):
            calls.append(destination.clear_errors)
        for call in calls:
            with pytest.raises(FormatTooNew) as caught:
                call()
            told = f": written by a newer kpipe: expected format {_NEWER - 1} or older, found {_NEWER} -> upgrade kpipe"
            assert str(caught.value).endswith(told) and "\n" not in str(caught.value)
            assert str(caught.value).startswith(("DuckDB /", "PostgreSQL ", "MySQL ", "Delta ", "Parquet ", "Iceberg ", "Kafka "))
    assert store.fingerprint() == before


def test_a_number_that_is_none_is_damage() -> None:
    for found in ("1", -1, None, 1.5):
        with pytest.raises(KpipeError, match="the store: invalid format: expected a number, found"):
            format_version.upgraded({"format": found}, "the store", {0: format_version.unchanged})


@pytest.mark.parametrize("registry", [*_REGISTRIES, home.STEPS])
def test_every_older_format_has_a_step(registry: dict[int, Any]) -> None:
    assert sorted(registry) == list(range(format_version.FORMAT_VERSION))


def test_steps_are_taken_in_order() -> None:
    steps: dict[int, Any] = {0: lambda said: said.update(a=1), 1: lambda said: said.update(b=said["a"] + 1)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(format_version, "FORMAT_VERSION", 2)
        document = {"x": 0}
        assert format_version.upgraded(document, "s", steps) == {"x": 0, "a": 1, "b": 2}
        assert format_version.upgraded({"format": 1, "a": 5}, "s", steps) == {"a": 5, "b": 6}
        assert format_version.upgraded({"format": 2}, "s", steps) == {}
        assert document == {"x": 0}
