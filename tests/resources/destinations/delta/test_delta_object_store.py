"""A Delta table in an object store: lost answers, a store that asks for patience or is gone, kills, and who may see what."""

from __future__ import annotations

import base64
import hashlib
import io
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kpipe.batch.batch import Commit, StagedFile
from kpipe.definition.pipeline import Pipeline
from kpipe.errors import DestinationBusy, DestinationError, Fenced, InvalidPipeline, NotAvailable, OutcomeUnknown, StagingFailed
from kpipe.interfaces import Destination
from resources.destinations import open_destination
from resources.destinations.lakehouse.object_store_folder import BucketFolder
from resources.destinations.staged_file_check import verify
from resources.home import Home
from resources.object_store.clients import client, forget, store
from resources.object_store.store import Store, StoreFailed
from resources.secrets import Secret
from resources.spark.staging.staged_files import StagingWriter, collect_garbage, discard
from resources.testing.place import batch
from resources.testing.state import begun, loaded, positions, proof
from tests.faults.proxy import UP, corrupt, drop_response, pass_, reply, rst
from tests.resources.destinations.delta.test_delta import STEPS
from tests.resources.destinations.lake_place import DeltaStorePlace, killed
from tests.servers.object_store import StoreServer
from tests.servers.s3 import KEY, SECRET, S3Server

ENTRY = b"00000000000000000001.json"  # of the second version, which each commit claims
SAID = b"<?xml version='1.0'?><Error><Code>SlowDown</Code><Message>Please reduce your rate</Message></Error>"
HEAD = b"HTTP/1.1 503 Slow Down\r\nContent-Type: application/xml\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
SLOW_DOWN = HEAD % len(SAID) + SAID


@pytest.fixture(params=["s3", "gcs", "azure"])
def server(request: pytest.FixtureRequest) -> StoreServer:
    found: StoreServer = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def place(tmp_path: Path, server: StoreServer) -> Iterator[DeltaStorePlace]:
    server.proxy.now(pass_())
    yield DeltaStorePlace(tmp_path, server)
    server.proxy.now(pass_())


@pytest.fixture
def found(server: StoreServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The store is in this process's environment, as it is for tasks."""
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    forget()
    yield
    forget()


# -- kills

ALWAYS = ("commit.dead_letters", "commit.before", "commit.after")


@pytest.mark.parametrize("point", [pytest.param(p, marks=[] if p in ALWAYS else pytest.mark.chaos) for p in STEPS])
def test_killed_at_each_step_of_a_commit(place: DeltaStorePlace, point: str) -> None:
    """Rows and dead letters of a batch are there together or not at all, and the next try of the batch ends as it should."""
    destination = loaded(place, dead=[(0, 3)])
    commit = batch(place, destination.ledger()[1], {0: 20, 1: 9}, dead=[(0, 15), (1, 7)])
    killed(place, commit, point)
    fresh = place.open()
    landed = point in ("commit.after", "readback")
    assert positions(fresh) == ({0: 20, 1: 9} if landed else {0: 10, 1: 5})
    assert (len(place.rows()), place.dead_letters(), len(fresh.view("errors"))) == ((26, 3, 3) if landed else (14, 1, 1))
    assert proof(fresh).ok, proof(fresh).problems
    assert fresh.commit(commit).seq == 3
    assert (len(place.rows()), place.dead_letters(), len(fresh.view("errors"))) == (26, 3, 3)
    assert proof(fresh).ok and fresh.ledger()[1].seq == 3


# -- the network


@pytest.mark.parametrize("times", [1, None])
def test_answers_to_the_entry_that_get_lost(place: DeltaStorePlace, server: StoreServer, times: int | None) -> None:
    """The entry is there, and nobody is told: once, or however often it is asked again. It is read back, and lands once."""
    destination = begun(place)
    commit = batch(place, destination.ledger()[1], {0: 10}, dead=[(0, 2)])
    server.proxy.now(drop_response(ENTRY, times))
    done = destination.commit(commit) if times else None
    if times is None:  # what it is read back through has the same name in it, so it stays unknown until the network is back
        with pytest.raises((OutcomeUnknown, DestinationError)):
            destination.commit(commit)
    assert server.proxy.struck
    server.proxy.now(pass_())
    again = place.open().commit(commit)
    assert again.seq == 2 and (done is None or done.seq == 2)
    assert (len(place.rows()), place.dead_letters(), place.delta().version()) == (9, 1, 1)
    assert proof(place.open()).ok


def test_patience_that_a_store_asks_for(place: DeltaStorePlace, server: StoreServer) -> None:
    destination = begun(place)
    commit = batch(place, destination.ledger()[1], {0: 10})
    server.proxy.now(reply(SLOW_DOWN, server.put, times=3))
    assert destination.commit(commit).seq == 2
    assert server.proxy.struck == 3 and proof(place.open()).ok


def test_store_that_refuses_for_good_and_comes_back(place: DeltaStorePlace, server: StoreServer) -> None:
    destination = begun(place)
    commit = batch(place, destination.ledger()[1], {0: 10})
    server.proxy.now(reply(SLOW_DOWN, server.put, times=None))
    with pytest.raises(DestinationError, match="SlowDown"):
        destination.commit(commit)
    server.proxy.now(pass_())
    assert positions(place.open()) == {0: 0, 1: 0} and place.rows() == []
    assert destination.commit(commit).seq == 2 and len(place.rows()) == 10 and proof(destination).ok


def test_store_that_is_gone(place: DeltaStorePlace, server: StoreServer) -> None:
    destination = loaded(place)
    commit = batch(place, destination.ledger()[1], {0: 20})
    server.proxy.now(rst())
    for one in (destination, place.open()):  # which knows the table, and which looks at it for the first time
        with pytest.raises(DestinationBusy) as caught:
            one.commit(commit)
        assert caught.value.retriable and SECRET not in str(caught.value)
    server.proxy.now(pass_())
    assert place.open().commit(commit).seq == 3 and proof(place.open()).ok


def test_zombie_whose_entry_comes_late(place: DeltaStorePlace) -> None:
    """Its put arrives when another run has committed: the store refuses it, and the ledger says Fenced."""
    zombie = begun(place)
    late = batch(place, zombie.ledger()[1], {0: 10, 1: 5})
    successor = place.open()
    successor.commit(batch(place, successor.ledger()[1], {0: 4}))
    with pytest.raises(Fenced):
        zombie.commit(late)
    assert len(place.rows()) == 4 and proof(successor).ok


def test_store_without_conditional_put_is_refused(place: DeltaStorePlace, monkeypatch: pytest.MonkeyPatch) -> None:
    def overwriting(self: Store, uri: str, data: bytes) -> bool:
        self.put(uri, data)
        return True

    monkeypatch.setattr(type(place.bucket().store), "put_new", overwriting)
    with pytest.raises(DestinationError, match="expected a store with conditional puts"):
        begun(place)
    monkeypatch.undo()
    assert place.open().ledger()[0] == "", "nothing was written"


def test_a_name_is_claimed_once_and_by_who_finds_its_own_bytes(place: DeltaStorePlace, server: StoreServer) -> None:
    folder = place.bucket()
    assert folder.claim("x", b"mine") and folder.claim("x", b"mine") and not folder.claim("x", b"yours")
    server.proxy.now(drop_response(server.conditional))
    assert folder.claim("y", b"mine"), "its first answer got lost, and the second said that the name is taken"
    assert server.proxy.struck == 1 and folder.read("y") == b"mine"


# -- staging


def staged(folder: str, count: int = 3) -> StagedFile:
    writer = StagingWriter(folder)
    writer.write(pa.table({"id": pa.array(range(count), pa.int64())}))
    try:
        made = writer.finish()
    finally:
        writer.abandon()
    assert made is not None
    return made


@pytest.mark.usefixtures("found")
def test_files_are_staged_in_the_store_and_proven_there(place: DeltaStorePlace, server: StoreServer) -> None:
    root = f"{place.place}/staging"
    file = staged(f"{root}/{'a' * 32}")
    (proven,) = verify([file], [root])
    assert (proven.path, proven.rows, proven.names) == (file.path, 3, ("id",))
    for other in (place.place + "/elsewhere", f"{server.base}/{'x' * 9}", "/tmp"):
        with pytest.raises(StagingFailed, match="is outside of the staging folders"):
            verify([file], [other])
    with pytest.raises(StagingFailed, match="is outside of the staging folders"):
        verify([StagedFile(f"{root}/../x", 1, 1, "")], [root])
    data = server.direct().get(file.path)
    assert data is not None and hashlib.sha256(data).hexdigest() == file.sha256
    server.direct().put(file.path, data[:-1] + b"x")
    with pytest.raises(StagingFailed, match="differs from the reported SHA-256"):
        verify([file], [root])
    server.direct().put(file.path, data[:-1])
    with pytest.raises(StagingFailed, match=r"expected \d+ bytes, found"):
        verify([file], [root])
    server.direct().remove(file.path)
    with pytest.raises(StagingFailed, match="is missing"):
        verify([file], [root])


@pytest.mark.usefixtures("found")
def test_a_staged_object_is_copied_inside_of_the_store(place: DeltaStorePlace, server: StoreServer) -> None:
    file = staged(f"{place.place}/staging/{'b' * 32}")
    server.proxy.now(drop_response(server.copy))
    place.bucket().take(file.path, "tweets/copy.parquet")
    assert server.proxy.struck == 1
    copy = server.direct().head(f"{place.place}/tweets/copy.parquet")
    assert copy is not None and copy.sha256 == file.sha256


@pytest.mark.usefixtures("found")
def test_bytes_that_are_changed_on_the_way_are_refused(place: DeltaStorePlace) -> None:
    with pytest.raises(StoreFailed) as caught:
        store(place.place).put(f"{place.place}/x", b"other", hashlib.sha256(b"mine").hexdigest())
    assert caught.value.status == 400 and store(place.place).get(f"{place.place}/x") is None


@pytest.mark.usefixtures("found")
def test_a_bit_that_flips_on_the_way_is_refused(place: DeltaStorePlace, server: StoreServer) -> None:
    """By the store, which has a digest with the bytes: of small objects and of pieces of large ones."""
    for size in (200_000, 20 << 20):
        server.proxy.now(corrupt(100_000, UP))
        with pytest.raises(StoreFailed) as caught:
            data = os.urandom(size)
            store(place.place).put(f"{place.place}/x", io.BytesIO(data), hashlib.sha256(data).hexdigest())
        assert server.proxy.struck == 1 and caught.value.status == 400
        server.proxy.now(pass_())
        assert store(place.place).get(f"{place.place}/x") is None


def test_beyond_two_checkpoints(place: DeltaStorePlace) -> None:
    """delta-rs writes them, and kpipe reads on from them; and from what another program has appended."""
    destination = begun(place)
    for end in range(1, 42):
        destination.commit(batch(place, destination.ledger()[1], {0: end}))
    names = list(client(place.around).names(f"{place.place}/tweets/_delta_log/"))
    assert "_last_checkpoint" in names and len([name for name in names if name.endswith(".checkpoint.parquet")]) == 2
    with place.laid():
        place.copy().double_row(0, 7)
    destination.commit(batch(place, destination.ledger()[1], {0: 42}))
    place.open().commit(batch(place, place.open().ledger()[1], {0: 43}))
    assert len(place.rows()) == 44 and positions(place.open()) == {0: 43, 1: 0}
    assert not proof(place.open()).ok, "the row that is there twice"


@pytest.mark.usefixtures("found")
def test_what_is_left_in_staging_is_collected_by_reference_and_age(place: DeltaStorePlace) -> None:
    root = f"{place.place}/staging"
    for name in ("c" * 32, "d" * 32, "not-a-batch"):
        staged(f"{root}/{name}")
    assert collect_garbage(root, lambda _: False) == []
    assert collect_garbage(root, {"c" * 32}.__contains__) == ["c" * 32]
    assert collect_garbage(root, lambda _: False, time.time() + 25 * 3600) == ["d" * 32]
    assert list(store(root).folders(f"{root}/")) == ["not-a-batch"]
    staged(f"{root}/{'e' * 32}")
    discard(root, "e" * 32)
    discard(root, "not-a-batch")
    assert list(store(root).folders(f"{root}/")) == ["not-a-batch"]


@pytest.mark.parametrize(
    ("name", "variable", "wrong", "shown"),
    [
        ("s3", "AWS_SECRET_ACCESS_KEY", "canary-wrong-key", "SignatureDoesNotMatch"),
        ("azure", "AZURE_STORAGE_ACCOUNT_KEY", base64.b64encode(b"canary-wrong-key").decode(), "AuthorizationFailure"),
    ],
)
def test_staging_that_cannot_be_written(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, name: str, variable: str, wrong: str, shown: str
) -> None:
    server: StoreServer = request.getfixturevalue(name)
    for each, value in {**server.environment, variable: wrong}.items():
        monkeypatch.setenv(each, value)
    forget()
    with pytest.raises(StagingFailed) as caught:
        staged(f"{server.base}/staging/{'f' * 32}")
    forget()
    assert shown in str(caught.value) and wrong not in str(caught.value)


# -- who is first


@pytest.mark.parametrize("rounds", [10, pytest.param(100, marks=pytest.mark.chaos)])
def test_of_those_who_claim_a_name_at_once_one_gets_it(server: StoreServer, tmp_path: Path, rounds: int) -> None:
    """By clients of their own, as processes have them; and what is there afterwards is what the first one put."""
    clients = [client(server.access(direct=True)) for _ in range(8)]
    start = threading.Barrier(len(clients))

    def claimed(number: int, at: int) -> bool:
        start.wait()
        return clients[number].put_new(f"{server.base}/{tmp_path.name}/race-{at}", f"writer {number}".encode())

    with ThreadPoolExecutor(len(clients)) as threads:
        for at in range(rounds):
            won = list(threads.map(claimed, range(len(clients)), [at] * len(clients)))
            assert won.count(True) == 1
            assert clients[0].get(f"{server.base}/{tmp_path.name}/race-{at}") == f"writer {won.index(True)}".encode()


def test_two_runs_that_race_for_one_version(place: DeltaStorePlace) -> None:
    """Both have read the same ledger. One commits, and the other is Fenced, in each round."""
    first, second = begun(place), place.open()
    for round_ in range(1, 6):
        ledger = first.ledger()[1]
        commits = [batch(place, ledger, {0: 10 * round_}), batch(place, ledger, {0: 10 * round_})]
        start = threading.Barrier(2)

        def run(destination: Destination, commit: Commit, start: threading.Barrier = start) -> str:
            start.wait()
            try:
                destination.commit(commit)
            except Fenced:
                return "fenced"
            return "committed"

        with ThreadPoolExecutor(2) as threads:
            ends = list(threads.map(run, (first, second), commits))
        assert sorted(ends) == ["committed", "fenced"]
        assert (len(place.rows()), first.ledger()[1].seq) == (10 * round_, round_ + 1)
    assert proof(place.open()).ok


# -- the definition


def definition(kind: str = "delta", **into: Any) -> Pipeline:
    source = {"brokers": "localhost:9092", "topic": "tweets"}
    return Pipeline.model_validate({"name": "tweets", "source": source, "into": {"type": kind, "table": "tweets", **into}})


def test_credentials_of_the_definition(tmp_path: Path, s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.endpoint)
    monkeypatch.setenv("THE_SECRET", SECRET)
    given = {"access.key.id": KEY, "secret.access.key": "{{ env('THE_SECRET') }}"}
    place = f"{s3.base}/{tmp_path.name}"
    made = open_destination(definition(database=place, credentials=given), Home.at(tmp_path))
    assert made.ledger()[0] == "" and place in made.describe()
    assert SECRET not in made.describe() + repr(vars(made))
    monkeypatch.setenv("THE_SECRET", "canary-wrong-key")
    refused = open_destination(definition(database=place, credentials=given), Home.at(tmp_path))
    with pytest.raises(DestinationError) as caught:
        refused.ledger()
    assert "canary" not in str(caught.value)
    forget()


def test_what_cannot_be_is_refused_before_anything_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = Home.at(tmp_path)
    for credentials in ({"password": "x"}, {"access.key.id": "x"}, {"secret.access.key": "{{ env('NOT_SET_ANYWHERE') }}"}):
        with pytest.raises(InvalidPipeline, match=r"into\.credentials"):
            open_destination(definition(database="s3://lake/x", credentials=credentials), home)
    with pytest.raises(InvalidPipeline, match="a local folder needs no credentials"):
        open_destination(definition(credentials={"access.key.id": "x"}), home)
    for name in ("s3://", "s3://UPPER/x", "s3://lake/a b", "s3://lake//x", "s3://lake/../x", "s3://lake/x?y"):
        with pytest.raises(InvalidPipeline, match="expected s3://bucket/key, found"):
            open_destination(definition(database=name), home)
    monkeypatch.setenv("KPIPE_STAGING", "s3://lake/staging")
    for kind in ("duckdb", "delta", "iceberg"):
        with pytest.raises(NotAvailable, match="KPIPE_STAGING"):
            open_destination(definition(kind), home)
    for wrong in ("relative/folder", "s3://lake/a b", "gs://lake//x", "az://lake/../x", "hdfs://lake"):
        monkeypatch.setenv("KPIPE_STAGING", wrong)
        with pytest.raises(InvalidPipeline, match="KPIPE_STAGING"):
            open_destination(definition(), home)


def test_secrets_do_not_show(s3: S3Server) -> None:
    made = BucketFolder(client(s3.access()), s3.base)
    assert SECRET not in repr(made.options()) + repr(vars(made)) + repr(made.store)
    assert all(isinstance(value, Secret) for name, value in made.options().items() if "key" in name)
