"""A Delta table in an object store: lost answers, a store that asks for patience or is gone, kills, and who may see what."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kpipe.batch.batch import StagedFile
from kpipe.definition.pipeline import Pipeline
from kpipe.errors import DestinationBusy, DestinationError, Fenced, InvalidPipeline, NotAvailable, OutcomeUnknown, StagingFailed
from resources.destinations import open_destination
from resources.destinations.lakehouse.object_store_folder import BucketFolder
from resources.destinations.staged_file_check import verify
from resources.home import Home
from resources.object_store.s3 import Store, StoreFailed, store
from resources.secrets import Secret
from resources.spark.staging.staged_files import StagingWriter, collect_garbage, discard
from resources.testing.place import batch
from resources.testing.state import begun, loaded, positions, proof
from tests.faults.proxy import drop_response, pass_, reply, rst
from tests.resources.destinations.delta.test_delta import STEPS
from tests.resources.destinations.lake_place import DeltaStorePlace, killed
from tests.servers.s3 import BUCKET, CREDENTIALS, KEY, SECRET, S3Server

ENTRY = b"PUT /lake/"  # the first bytes of a put
LOG = b"_delta_log/0"
SAID = b"<?xml version='1.0'?><Error><Code>SlowDown</Code><Message>Please reduce your rate</Message></Error>"
HEAD = b"HTTP/1.1 503 Slow Down\r\nContent-Type: application/xml\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
SLOW_DOWN = HEAD % len(SAID) + SAID


@pytest.fixture
def place(tmp_path: Path, s3: S3Server) -> Iterator[DeltaStorePlace]:
    s3.proxy.now(pass_())
    yield DeltaStorePlace(tmp_path, s3)
    s3.proxy.now(pass_())


@pytest.fixture
def found(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The store is in this process's environment, as it is for tasks."""
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    store.cache_clear()
    yield
    store.cache_clear()


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
def test_answers_to_the_entry_that_get_lost(place: DeltaStorePlace, s3: S3Server, times: int | None) -> None:
    """The entry is there, and nobody is told: once, or however often it is asked again. It is read back, and lands once."""
    destination = begun(place)
    commit = batch(place, destination.ledger()[1], {0: 10}, dead=[(0, 2)])
    s3.proxy.now(drop_response(LOG + b"0000000000000000001.json HTTP", times))
    done = destination.commit(commit) if times else None
    if times is None:  # what it is read back through has the same name in it, so it stays unknown until the network is back
        with pytest.raises((OutcomeUnknown, DestinationError)):
            destination.commit(commit)
    assert s3.proxy.struck
    s3.proxy.now(pass_())
    again = place.open().commit(commit)
    assert again.seq == 2 and (done is None or done.seq == 2)
    assert (len(place.rows()), place.dead_letters(), place.delta().version()) == (9, 1, 1)
    assert proof(place.open()).ok


def test_patience_that_a_store_asks_for(place: DeltaStorePlace, s3: S3Server) -> None:
    destination = begun(place)
    commit = batch(place, destination.ledger()[1], {0: 10})
    s3.proxy.now(reply(SLOW_DOWN, ENTRY, times=3))
    assert destination.commit(commit).seq == 2
    assert s3.proxy.struck == 3 and proof(place.open()).ok


def test_store_that_refuses_for_good_and_comes_back(place: DeltaStorePlace, s3: S3Server) -> None:
    destination = begun(place)
    commit = batch(place, destination.ledger()[1], {0: 10})
    s3.proxy.now(reply(SLOW_DOWN, ENTRY, times=None))
    with pytest.raises(DestinationError, match="SlowDown"):
        destination.commit(commit)
    s3.proxy.now(pass_())
    assert positions(place.open()) == {0: 0, 1: 0} and place.rows() == []
    assert destination.commit(commit).seq == 2 and len(place.rows()) == 10 and proof(destination).ok


def test_store_that_is_gone(place: DeltaStorePlace, s3: S3Server) -> None:
    destination = loaded(place)
    commit = batch(place, destination.ledger()[1], {0: 20})
    s3.proxy.now(rst())
    for one in (destination, place.open()):  # which knows the table, and which looks at it for the first time
        with pytest.raises(DestinationBusy) as caught:
            one.commit(commit)
        assert caught.value.retriable and SECRET not in str(caught.value)
    s3.proxy.now(pass_())
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

    monkeypatch.setattr(Store, "put_new", overwriting)
    with pytest.raises(DestinationError, match="expected a store with conditional puts"):
        begun(place)
    monkeypatch.undo()
    assert place.open().ledger()[0] == "", "nothing was written"


def test_a_name_is_claimed_once_and_by_who_finds_its_own_bytes(place: DeltaStorePlace, s3: S3Server) -> None:
    folder = place.bucket()
    assert folder.claim("x", b"mine") and folder.claim("x", b"mine") and not folder.claim("x", b"yours")
    s3.proxy.now(drop_response(b"If-None-Match"))
    assert folder.claim("y", b"mine"), "its first answer got lost, and the second said that the name is taken"
    assert s3.proxy.struck == 1 and folder.read("y") == b"mine"


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
def test_files_are_staged_in_the_store_and_proven_there(place: DeltaStorePlace, s3: S3Server) -> None:
    root = f"{place.place}/staging"
    file = staged(f"{root}/{'a' * 32}")
    (proven,) = verify([file], [root])
    assert (proven.path, proven.rows, proven.names) == (file.path, 3, ("id",))
    for other in (place.place + "/elsewhere", f"s3://{BUCKET}/{'x' * 9}", "/tmp"):
        with pytest.raises(StagingFailed, match="is outside of the staging folders"):
            verify([file], [other])
    with pytest.raises(StagingFailed, match="is outside of the staging folders"):
        verify([StagedFile(f"{root}/../x", 1, 1, "")], [root])
    data = s3.direct().get(file.path)
    assert data is not None and hashlib.sha256(data).hexdigest() == file.sha256
    s3.direct().put(file.path, data[:-1] + b"x")
    with pytest.raises(StagingFailed, match="differs from the reported SHA-256"):
        verify([file], [root])
    s3.direct().put(file.path, data[:-1])
    with pytest.raises(StagingFailed, match=r"holds \d+ bytes"):
        verify([file], [root])
    s3.direct().remove(file.path)
    with pytest.raises(StagingFailed, match="is missing"):
        verify([file], [root])


@pytest.mark.usefixtures("found")
def test_a_staged_object_is_copied_inside_of_the_store(place: DeltaStorePlace, s3: S3Server) -> None:
    file = staged(f"{place.place}/staging/{'b' * 32}")
    s3.proxy.now(drop_response(b"x-amz-copy-source"))
    place.bucket().take(file.path, "tweets/copy.parquet")
    assert s3.proxy.struck == 1
    copy = s3.direct().head(f"{place.place}/tweets/copy.parquet")
    assert copy is not None and copy.sha256 == file.sha256


@pytest.mark.usefixtures("found")
def test_bytes_that_are_changed_on_the_way_are_refused(place: DeltaStorePlace) -> None:
    with pytest.raises(StoreFailed) as caught:
        store().put(f"{place.place}/x", b"other", hashlib.sha256(b"mine").hexdigest())
    assert caught.value.status == 400 and store().get(f"{place.place}/x") is None


@pytest.mark.usefixtures("found")
def test_what_is_left_in_staging_is_collected_by_reference_and_age(place: DeltaStorePlace) -> None:
    root = f"{place.place}/staging"
    for name in ("c" * 32, "d" * 32, "not-a-batch"):
        staged(f"{root}/{name}")
    assert collect_garbage(root, lambda _: False) == []
    assert collect_garbage(root, {"c" * 32}.__contains__) == ["c" * 32]
    assert collect_garbage(root, lambda _: False, time.time() + 25 * 3600) == ["d" * 32]
    assert list(store().folders(f"{root}/")) == ["not-a-batch"]
    staged(f"{root}/{'e' * 32}")
    discard(root, "e" * 32)
    discard(root, "not-a-batch")
    assert list(store().folders(f"{root}/")) == ["not-a-batch"]


def test_staging_that_cannot_be_written(place: DeltaStorePlace, s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**s3.environment, "AWS_SECRET_ACCESS_KEY": "canary-wrong-key"}.items():
        monkeypatch.setenv(name, value)
    store.cache_clear()
    with pytest.raises(StagingFailed) as caught:
        staged(f"{place.place}/staging/{'f' * 32}")
    store.cache_clear()
    assert "SignatureDoesNotMatch" in str(caught.value) and "canary" not in str(caught.value)


# -- the definition


def definition(kind: str = "delta", **into: Any) -> Pipeline:
    source = {"brokers": "localhost:9092", "topic": "tweets"}
    return Pipeline.model_validate({"name": "tweets", "source": source, "into": {"type": kind, "table": "tweets", **into}})


def test_credentials_of_the_definition(tmp_path: Path, s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.endpoint)
    monkeypatch.setenv("THE_SECRET", SECRET)
    given = {"access.key.id": KEY, "secret.access.key": "{{ env('THE_SECRET') }}"}
    place = f"s3://{BUCKET}/{tmp_path.name}"
    made = open_destination(definition(database=place, credentials=given), Home.at(tmp_path))
    assert made.ledger()[0] == "" and place in made.describe()
    assert SECRET not in made.describe() + repr(vars(made))
    monkeypatch.setenv("THE_SECRET", "canary-wrong-key")
    refused = open_destination(definition(database=place, credentials=given), Home.at(tmp_path))
    with pytest.raises(DestinationError) as caught:
        refused.ledger()
    assert "canary" not in str(caught.value)
    store.cache_clear()


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
    for wrong in ("relative/folder", "s3://lake/a b", "gs://lake"):
        monkeypatch.setenv("KPIPE_STAGING", wrong)
        with pytest.raises(InvalidPipeline, match="KPIPE_STAGING"):
            open_destination(definition(), home)


def test_secrets_do_not_show(s3: S3Server) -> None:
    made = BucketFolder(Store(CREDENTIALS, s3.endpoint), f"s3://{BUCKET}")
    assert SECRET not in repr(made.options()) + repr(vars(made)) + repr(made.store)
    assert all(isinstance(value, Secret) for name, value in made.options().items() if "key" in name)
