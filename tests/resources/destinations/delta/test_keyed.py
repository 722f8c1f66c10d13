"""Delta tables with a key: deletion vectors, the log's protocol, other writers, partitions."""

from __future__ import annotations

import json
import multiprocessing
import random
import shutil
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars
import pyarrow
import pytest
from deltalake import DeltaTable, write_deltalake
from pyroaring import BitMap64

from kpipe import failpoints
from kpipe.batch.batch import Commit
from kpipe.definition.lakehouse_options import Part
from kpipe.definition.pipeline import Pipeline
from kpipe.errors import DestinationError, NotAvailable
from kpipe.interfaces import Destination, Keyed
from kpipe.schema.columns import Columns
from kpipe.tables.upsert import KeyRule
from resources.destinations import open_destination
from resources.destinations.delta import DeltaLake, deletion_vectors
from resources.destinations.delta.live_files import live_adds
from resources.destinations.lakehouse.folder import LocalFolder
from resources.destinations.lakehouse.keyed import KeyedLakes
from resources.destinations.lakehouse.keyed.key_index import KeyIndex
from resources.home import Home
from resources.testing.keyed import RULES, Write, begun, commit_of, contents
from resources.testing.place import batch, begin
from resources.testing.state import proof
from tests.resources.destinations.lake_place import DeltaPlace

_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(["tests.resources.destinations.lake_place"])
RULE = RULES["replace"]


@pytest.fixture
def place(tmp_path: Path) -> DeltaPlace:
    return DeltaPlace(tmp_path)


def writes(first: int, ids: Sequence[int]) -> list[Write]:
    return [Write(0, first + at, number, f"t{first + at}") for at, number in enumerate(ids)]


def load(place: DeltaPlace, destination: Destination, first: int, ids: Sequence[int]) -> None:
    destination.commit(commit_of(place, destination.ledger()[1], writes(first, ids), RULE))


def texts(place: DeltaPlace) -> dict[int, Any]:
    return {key: row[0] for key, row in contents(place).items()}


def adds(place: DeltaPlace) -> list[dict[str, Any]]:
    return list(live_adds(LocalFolder(place.folder / "tweets"), place.delta().version()).values())


def entry(place: DeltaPlace) -> list[dict[str, Any]]:
    version = place.delta().version()
    return [json.loads(line) for line in (place.folder / f"tweets/_delta_log/{version:020}.json").read_text().splitlines()]


def test_a_commit_adds_rows_and_a_vector_in_one_entry(place: DeltaPlace) -> None:
    destination = begun(place, RULE, 1)
    load(place, destination, 0, [1, 2, 3])
    destination.commit(commit_of(place, destination.ledger()[1], [*writes(3, [2, 4]), Write(0, 5, 3, None)], RULE))
    actions = entry(place)
    (protocol,) = [action["protocol"] for action in actions if "protocol" in action]
    assert (protocol["minReaderVersion"], protocol["minWriterVersion"]) == (3, 7)
    assert "deletionVectors" in protocol["readerFeatures"] and "deletionVectors" in protocol["writerFeatures"]
    (meta,) = [action["metaData"] for action in actions if "metaData" in action]
    assert meta["configuration"]["delta.enableDeletionVectors"] == "true"
    (removed,) = [action["remove"] for action in actions if "remove" in action]
    (changed,) = [a["add"] for a in actions if "add" in a and a["add"].get("deletionVector")]
    assert removed["path"] == changed["path"] and changed["deletionVector"]["cardinality"] == 2
    assert json.loads(changed["stats"])["tightBounds"] is False and json.loads(changed["stats"])["numRecords"] == 3
    assert texts(place) == {1: "t0", 2: "t3", 4: "t4"} and proof(destination).ok
    load(place, destination, 6, [4])
    assert not [action for action in entry(place) if "protocol" in action or "metaData" in action]
    destination.commit(commit_of(place, destination.ledger()[1], [Write(0, 7, 1, None)], RULE))
    assert [a["remove"]["deletionVector"]["cardinality"] for a in entry(place) if "remove" in a] == [2]
    assert not [a for a in entry(place) if "add" in a], "a file without rows is removed"
    assert texts(place) == {2: "t3", 4: "t6"} and proof(destination).ok


def test_readers_apply_the_vectors(place: DeltaPlace) -> None:
    destination, chance = begun(place, RULE, 1), random.Random(3)
    for first in range(0, 120, 20):
        places = range(first, first + 20)
        more = [Write(0, at, chance.randint(0, 30), None if chance.random() < 0.2 else f"t{at}") for at in places]
        destination.commit(commit_of(place, destination.ledger()[1], more, RULE))
    found = polars.scan_delta(str(place.folder / "tweets")).select("id", "text").collect().rows()
    assert dict(found) == texts(place) and len(found) == 21
    assert not place.delta().vacuum(0, dry_run=True, enforce_retention_duration=False), "vectors are not garbage"


def test_vectors_are_written_and_read_as_the_protocol_says(tmp_path: Path) -> None:
    """Bitmaps of several kinds, also beyond 32 bits, and one inside of the log, as Spark writes it."""
    folder = LocalFolder(tmp_path)
    given = [BitMap64([0]), BitMap64(range(100_000)), BitMap64([5, 1 << 33, (1 << 40) + 7])]
    descriptors = deletion_vectors.write(folder, given)
    assert [deletion_vectors.read(folder, item) for item in descriptors] == given
    assert len({deletion_vectors.identity(item) for item in descriptors}) == 3
    text = "^Bg9^0rr910000000000iXQKl0rr91000625c8Xg0rri41POJ5"  # the protocol's own example is not in the format that it defines
    inside = {"storageType": "i", "pathOrInlineDv": text, "sizeInBytes": 38, "cardinality": 3}
    assert deletion_vectors.read(folder, inside) == BitMap64([1, 3, 5])
    (file,) = tmp_path.glob("deletion_vector_*.bin")
    data = bytearray(file.read_bytes())
    data[30] ^= 1
    file.write_bytes(data)
    with pytest.raises(DestinationError, match="the file is damaged"):
        [deletion_vectors.read(folder, item) for item in descriptors]


def _commit(place: DeltaPlace, commit: Commit, fault: str) -> None:
    failpoints.arm(failpoints.Fault(fault))
    place.open(rule=RULE).commit(commit)


ALWAYS = ("before", "after")
POINTS = ["verify", "open", "ledger", "table", "data", "dead_letters", "history", "before", "after"]


@pytest.mark.parametrize("point", [name if name in ALWAYS else pytest.param(name, marks=pytest.mark.chaos) for name in POINTS])
def test_killed_anywhere_a_batch_lands_whole_or_not_at_all(place: DeltaPlace, point: str) -> None:
    destination = begun(place, RULE, 1)
    load(place, destination, 0, [1, 2, 3])
    before = contents(place)
    commit = commit_of(place, destination.ledger()[1], [*writes(3, [2, 4]), Write(0, 5, 3, None)], RULE)
    process = _processes.Process(target=_commit, args=(place, commit, f"commit.{point}:1:kill"))
    process.start()
    process.join(300)
    assert process.exitcode == -signal.SIGKILL
    assert (contents(place) == before) == (point != "after")
    done = place.open(rule=RULE).commit(commit).commit.totals
    assert (done.inserted, done.updated, done.deleted) == (1, 1, 1)
    load(place, place.open(rule=RULE), 6, [4, 5])
    assert texts(place) == {1: "t0", 2: "t3", 4: "t6", 5: "t7"} and proof(destination).ok


def test_a_compaction_by_others_leads_to_no_wrong_delete(place: DeltaPlace) -> None:
    destination = begun(place, RULE, 1)
    for first in range(0, 60, 20):
        load(place, destination, first, range(first // 2, first // 2 + 20))
    expected = texts(place)
    place.delta().optimize.compact()
    assert len(adds(place)) == 1 and texts(place) == expected
    compacted = []

    def reached(point: str) -> None:
        if point == "commit.before" and not compacted:
            compacted.append(place.delta().optimize.z_order(["id"]))

    failpoints.arm(reached)
    load(place, destination, 60, range(0, 40, 3))
    failpoints.arm(None)
    expected.update({number: f"t{60 + at}" for at, number in enumerate(range(0, 40, 3))})
    assert compacted and texts(place) == expected and proof(destination).ok


def test_a_checkpoint_keeps_the_vectors(place: DeltaPlace) -> None:
    """The next run reads the checkpoint; the index of the first is gone."""
    destination = begun(place, RULE, 1)
    for first in range(0, 120, 4):
        load(place, destination, first, [first % 7, 10, 11, first])
    assert list((place.folder / "tweets" / "_delta_log").glob("*.checkpoint.parquet"))
    for path in (place.staging.parent / "cache" / "tweets").glob("index*"):
        path.unlink()
    expected = texts(place)
    load(place, place.open(rule=RULE), 120, [10, 3])
    assert texts(place) == {**expected, 10: "t120", 3: "t121"} and proof(destination).ok


@pytest.mark.parametrize("parts", [(Part("text"),), (Part("n"), Part("text"))], ids=str)
def test_rows_move_between_partitions(tmp_path: Path, parts: tuple[Part, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    place, chance = DeltaPlace(tmp_path), random.Random(7)
    monkeypatch.setattr(place, "lake", lambda table="tweets": DeltaLake(place.folder / table, parts))
    destination, expected = begun(place, RULES["add"], 1), dict[int, tuple[Any, Any]]()
    for at in range(0, 60, 20):
        more = []
        for offset in range(at, at + 20):
            number, text, n = chance.randint(0, 15), chance.choice(("a", "b", None)), chance.randint(0, 2)
            more.append(Write(0, offset, number, text, n))
            if text is None:
                expected.pop(number, None)
            elif number in expected:
                expected[number] = expected[number][0], expected[number][1] + n
            else:
                expected[number] = text, n
        destination.commit(commit_of(place, destination.ledger()[1], more, RULES["add"]))
        assert {key: row[:2] for key, row in contents(place).items()} == expected
    assert proof(destination).ok


def test_rows_of_others_without_their_partition_columns_are_found(place: DeltaPlace) -> None:
    """The library leaves partition columns out of its files; kpipe's own have them."""
    import pyarrow as pa

    rows = {"id": [1, 2], "text": ["a", "b"], "n": [1, 2]}
    schema = pa.schema([("id", pa.int64()), ("text", pa.string()), ("n", pa.int64())])
    write_deltalake(str(place.folder / "tweets"), pa.table(rows, schema=schema), partition_by=["text"])
    destination = begun(place, RULES["update"], 1)
    destination.commit(commit_of(place, destination.ledger()[1], [Write(0, 0, 2, "b", 5), Write(0, 1, 3, "c")], RULES["update"]))
    found = {row["id"]: (row["text"], row["n"]) for row in place.rows()}
    assert found == {1: ("a", 1), 2: ("b", 5), 3: ("c", None)} and proof(destination).ok


def test_appended_rows_of_another_pipeline_are_part_of_the_balance(place: DeltaPlace) -> None:
    columns = Columns.of({"id": "BIGINT", "text": "VARCHAR", "n": "BIGINT"})
    plain = place.open(pipeline="plain")
    plain.commit(begin("plain", [1]))
    plain.commit(batch(place, plain.ledger()[1], {1: 5}, columns))
    destination = begun(place, RULE, 1)
    load(place, destination, 0, [1_000_001, 1, 2])
    plain.commit(batch(place, plain.ledger()[1], {1: 8}, columns))
    load(place, destination, 3, [1_000_006, 1])
    assert len(place.rows()) == 10 and proof(destination).ok and proof(plain).ok


def test_times_are_read_back_as_keys_and_as_values(place: DeltaPlace) -> None:
    """Delta has no TIME: kpipe stores text."""
    rule, ends = KeyRule(("at",), "update"), [0, 86_400_000_000]
    destination = place.open(rule=rule)
    destination.commit(begin("tweets", [0]))
    columns = Columns.of({"at": "TIME", "late": "TIME", "all": "STRUCT(name VARCHAR, times TIME[])", "text": "VARCHAR"})
    for at, moment in enumerate([*ends, *ends]):
        more = {"late": moment, "all": {"name": "a", "times": [moment, None]}} if at < 2 else {}
        known = Columns(tuple(item for item in columns if item[0] in {"at", "text", *more}))
        commit = batch(place, destination.ledger()[1], {0: at + 1}, known, {"at": moment, "text": f"t{at}", **more})
        destination.commit(commit.stored({lane: replace(counts, inserted=0) for lane, counts in commit.counts.items()}))
        if at == 1:
            (place.staging.parent / "cache" / "tweets" / "index.duckdb").unlink()
    texts = ["00:00:00.000000", "24:00:00.000000"]
    assert [(row["at"], row["late"], row["all"], row["text"]) for row in place.rows()] == [
        (text, text, {"name": "a", "times": [text, None]}, f"t{at + 2}") for at, text in enumerate(texts)
    ]
    assert proof(destination).ok


@pytest.mark.parametrize("reopened", [True, False])
def test_a_restored_folder_of_the_same_version_is_not_that_of_the_index(
    place: DeltaPlace, tmp_path: Path, reopened: bool
) -> None:
    destination = begun(place, RULE, 1)
    load(place, destination, 0, [1, 2])
    shutil.copytree(place.folder, tmp_path / "backup")
    load(place, destination, 2, [3, 1])
    version = place.delta().version()
    load(place, destination, 4, [2])  # with the files of that version, which stay in memory
    shutil.rmtree(place.folder)
    shutil.copytree(tmp_path / "backup", place.folder)
    place.say({"another program": 1})
    assert place.delta().version() == version
    destination = place.open(rule=RULE) if reopened else destination
    load(place, destination, 2, [3, 1, 4])
    load(place, destination, 5, [3, 2])
    assert texts(place) == {1: "t3", 2: "t6", 3: "t5", 4: "t4"} and proof(destination).ok


def test_an_index_that_cannot_follow_a_commit_does_not_fail_it(place: DeltaPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise pyarrow.ArrowNotImplementedError("no such cast")

    destination = begun(place, RULE, 1)
    load(place, destination, 0, [1, 2])
    with monkeypatch.context() as patched:
        patched.setattr(KeyIndex, "_load", fail)
        load(place, destination, 2, [1])
    load(place, destination, 3, [1, 2])
    assert texts(place) == {1: "t3", 2: "t4"} and proof(destination).ok


@pytest.mark.parametrize("name", ["delta.appendOnly", "delta.enableChangeDataFeed"])
def test_a_table_that_takes_no_deletes_is_refused(place: DeltaPlace, name: str) -> None:
    import pyarrow as pa

    rows = pa.table({"id": [1], "text": ["a"], "n": [1]})
    write_deltalake(str(place.folder / "tweets"), rows, configuration={name: "true"})
    destination = begun(place, RULE, 1)
    with pytest.raises(DestinationError, match=rf"into\.key is not supported with {name}"):
        load(place, destination, 0, [1])
    assert len(DeltaTable(str(place.folder / "tweets")).to_pyarrow_table()) == 1


@pytest.mark.parametrize("kind", ["delta", "iceberg", "parquet"])
def test_a_definition_opens_a_table_with_its_key(tmp_path: Path, kind: str) -> None:
    into = {"type": kind, "table": "t", "key": ["id"], "on_conflict": "replace", "on_null": "delete"}
    pipeline = Pipeline.model_validate({"name": "p", "source": {"brokers": "b:9092", "topic": "t"}, "into": into})
    home = Home(tmp_path)
    if kind == "parquet":
        with pytest.raises(NotAvailable, match="are not available for parquet"):
            open_destination(pipeline, home)
        return
    destination = open_destination(pipeline, home)
    assert isinstance(destination, KeyedLakes) and isinstance(destination, Keyed) and destination.key() == ("id",)
    assert destination.rule.deletes and destination.cache.is_relative_to(tmp_path / "cache" / "keys")
