"""The folder of Parquet files beyond the suite: kills at each step, and what readers of the folder see and when."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from kpipe.definition.pipeline import Pipeline
from kpipe.errors import DestinationError, LedgerMismatch, NotAvailable
from resources.destinations import open_destination
from resources.destinations.lakehouse import LakeDestination
from resources.destinations.lakehouse.object_store_folder import BucketFolder
from resources.destinations.parquet import ParquetFolder
from resources.home import Home
from resources.object_store.clients import client
from resources.testing.place import batch
from resources.testing.state import begun, loaded, positions, proof
from tests.resources.destinations.delta.test_delta import STEPS
from tests.resources.destinations.lake_place import ParquetPlace, killed
from tests.servers.object_store import StoreServer


@pytest.fixture
def place(tmp_path: Path) -> ParquetPlace:
    return ParquetPlace(tmp_path)


@pytest.mark.parametrize("point", STEPS)
def test_killed_at_each_step_of_a_commit(place: ParquetPlace, point: str) -> None:
    """By the manifest a batch is there or not. Its files are never beside the others before that; after the next run they are."""
    destination = loaded(place, dead=[(0, 3)])
    commit = batch(place, destination.ledger()[1], {0: 20, 1: 9}, dead=[(0, 15), (1, 7)])
    killed(place, commit, point)
    fresh = place.open()
    landed = point in ("commit.after", "readback")
    assert positions(fresh) == ({0: 20, 1: 9} if landed else {0: 10, 1: 5})
    assert (len(place.rows()), place.dead_letters(), len(fresh.view("errors"))) == ((26, 3, 3) if landed else (14, 1, 1))
    assert len(place.shown()) == 14, "killed before they were shown"
    assert proof(fresh).ok, proof(fresh).problems
    fresh.record_state("running")  # as every run begins
    assert len(place.shown()) == (26 if landed else 14)
    assert fresh.commit(commit).seq == 3
    assert (len(place.rows()), len(place.shown()), place.dead_letters(), len(fresh.view("errors"))) == (26, 26, 3, 3)
    assert proof(fresh).ok and fresh.ledger()[1].seq == 3


def test_stopped_between_two_files_that_are_shown(place: ParquetPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader of the folder finds some files of the batch, and all of them once somebody has ended it."""
    destination = begun(place)
    commit = batch(place, destination.ledger()[1], {0: 10, 1: 5}, dead=[(0, 3)])
    killed(place, commit, "readback")
    waiting = sorted((place.folder / "tweets" / "_files").glob("*.parquet"))
    assert place.shown() == [] and waiting
    lake = place.made("tweets")
    state = lake.load()
    taken: list[str] = []

    def torn(file: str, name: str) -> None:
        if taken:
            raise DestinationError("the disk is gone", "")
        taken.append(name)
        type(lake._folder).take(lake._folder, file, name)

    monkeypatch.setattr(lake._folder, "take", torn)
    lake.upkeep(state)
    assert (len(place.rows()), len(list((place.folder / "tweets").glob("*.parquet")))) == (14, 1)
    place.open().record_state("running")
    assert len(place.shown()) == 14 and not list((place.folder / "tweets" / "_files").glob("*.parquet"))
    assert proof(place.open()).ok


def test_sql_reads_the_folder(place: ParquetPlace) -> None:
    destination = loaded(place)
    destination.commit(batch(place, destination.ledger()[1], {0: 12}))
    found = duckdb.sql(f"SELECT count(*), sum(id) FROM read_parquet('{place.folder}/tweets/*.parquet', union_by_name = true)")
    assert found.fetchall() == [(17, sum(range(12)) + sum(range(1_000_000, 1_000_005)))]


def test_many_commits_leave_few_manifests(place: ParquetPlace) -> None:
    destination = begun(place)
    for end in range(1, 140):
        destination.commit(batch(place, destination.ledger()[1], {0: end}))
    manifests = list((place.folder / "tweets" / "_manifest").iterdir())
    assert len(manifests) < 140 and len([path for path in manifests if path.name.startswith("files-")]) <= 2
    assert max(path.stat().st_size for path in manifests if not path.name.startswith("files-")) < 16 << 10
    assert len(place.rows()) == len(place.shown()) == 139 and proof(place.open()).ok


def test_what_was_changed_by_hand_is_an_error(place: ParquetPlace) -> None:
    destination = loaded(place)
    before = place.newest().read_bytes()
    place.newest().write_bytes(before[:-5])
    with pytest.raises(LedgerMismatch, match="is not written by a commit"):
        destination.ledger()
    place.newest().write_bytes(before)
    next((place.folder / "tweets").glob("*.parquet")).unlink()
    with pytest.raises(DestinationError, match="is missing, but the manifest lists it"):
        destination.recount()
    for path in (place.folder / "tweets" / "_manifest").iterdir():
        path.unlink()
    with pytest.raises(LedgerMismatch, match="table tweets is missing"):
        destination.ledger()


@pytest.mark.parametrize("name", ["s3", "gcs", "azure"])
def test_in_an_object_store(tmp_path: Path, request: pytest.FixtureRequest, name: str) -> None:
    server: StoreServer = request.getfixturevalue(name)
    place = ParquetPlace(tmp_path)
    base = f"{server.base}/{tmp_path.name}"

    def opened() -> LakeDestination:
        folder = BucketFolder(client(server.access()), f"{base}/tweets")
        return LakeDestination(ParquetFolder(folder), "tweets", "tweets", {}, (place.staging,))

    place.open = lambda *_: opened()  # type: ignore[method-assign]
    destination = loaded(place, dead=[(0, 3)])
    destination.commit(batch(place, destination.ledger()[1], {0: 12}))
    shown = [found.uri for found in server.direct().listed(f"{base}/tweets/kpipe-")]
    assert shown and list(server.direct().names(f"{base}/tweets/_files/")) == []
    assert positions(opened()) == {0: 12, 1: 5} and proof(opened()).ok
    assert len(opened().view("errors")) == 1


def test_where_it_lies(tmp_path: Path) -> None:
    source = {"brokers": "localhost:9092", "topic": "tweets"}
    into = {"type": "parquet", "table": "tweets"}
    made = open_destination(Pipeline.model_validate({"name": "p", "source": source, "into": into}), Home.at(tmp_path))
    assert str(tmp_path / "data" / "parquet" / "tweets") in made.describe()
    keyed = Pipeline.model_validate({"name": "p", "source": source, "into": {**into, "key": ["id"], "on_conflict": "replace"}})
    with pytest.raises(NotAvailable, match="are not available for parquet"):
        open_destination(keyed, Home.at(tmp_path))
