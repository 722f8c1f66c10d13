"""Iceberg tables with a key: files of deletes, the index of keys, other writers, partitions, audits."""

from __future__ import annotations

import multiprocessing
import random
import signal
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.expressions import EqualTo
from pyiceberg.manifest import DataFileContent
from pyiceberg.table.snapshots import Operation

from kpipe import failpoints
from kpipe.batch.batch import Commit
from kpipe.definition.lakehouse_options import Part
from kpipe.errors import AuditFailed, DestinationError, Fenced
from kpipe.interfaces import Destination
from kpipe.schema.columns import Columns
from kpipe.tables.upsert import KeyRule
from resources.destinations.iceberg import Audit, AuditedDestination, IcebergLake, SQLite
from resources.destinations.lakehouse.folder import LocalFolder
from resources.destinations.lakehouse.keyed import keyed
from resources.destinations.lakehouse.table_format import Overtaken
from resources.testing.keyed import RULES, Write, begun, commit_of, contents
from resources.testing.place import batch, begin
from resources.testing.state import proof
from tests.resources.destinations.lake_place import IcebergPlace
from tests.resources.destinations.maintained_tables import one

_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(["tests.resources.destinations.lake_place"])
RULE = RULES["replace"]


@pytest.fixture
def place(tmp_path: Path) -> IcebergPlace:
    return IcebergPlace(tmp_path)


def writes(first: int, ids: Sequence[int], text: str = "t") -> list[Write]:
    return [Write(0, first + at, number, f"{text}{first + at}") for at, number in enumerate(ids)]


def load(place: IcebergPlace, destination: Destination, first: int, ids: Sequence[int], rule: KeyRule = RULE) -> None:
    destination.commit(commit_of(place, destination.ledger()[1], writes(first, ids), rule))


def texts(place: IcebergPlace) -> dict[int, Any]:
    return {key: row[0] for key, row in contents(place).items()}


def files(place: IcebergPlace, content: DataFileContent) -> list[Any]:
    table = place.iceberg()
    snapshot = table.metadata.current_snapshot()
    assert snapshot is not None
    return [
        entry.data_file
        for manifest in snapshot.manifests(table.io)
        for entry in manifest.fetch_manifest_entry(table.io)
        if entry.data_file.content == content
    ]


def index_of(place: IcebergPlace) -> Path:
    return place.staging.parent / "cache" / "tweets" / "index.duckdb"


def test_a_commit_adds_rows_and_deletes_positions_in_one_snapshot(place: IcebergPlace) -> None:
    destination = begun(place, RULE, 1)
    load(place, destination, 0, [1, 2, 3])
    before = len(place.iceberg().metadata.snapshots)
    destination.commit(commit_of(place, destination.ledger()[1], [*writes(3, [2, 4]), Write(0, 5, 3, None)], RULE))
    meta = place.iceberg().metadata
    assert len(meta.snapshots) == before + 1
    summary = meta.current_snapshot().summary  # type: ignore[union-attr]
    assert summary is not None and summary.operation == Operation.OVERWRITE
    counted = {name: summary[name] for name in ("added-records", "added-position-deletes", "total-records", "total-delete-files")}
    assert counted == {
        "added-records": "2", "added-position-deletes": "2", "total-records": "5", "total-delete-files": "1",
    }  # fmt: skip
    (deletes,) = files(place, DataFileContent.POSITION_DELETES)
    assert deletes.record_count == 2 and deletes.lower_bounds[2147483546] == deletes.upper_bounds[2147483546]
    assert not files(place, DataFileContent.EQUALITY_DELETES)
    assert texts(place) == {1: "t0", 2: "t3", 4: "t4"}
    destination.commit(commit_of(place, destination.ledger()[1], [Write(0, 6, 1, None)], RULE))
    summary = place.iceberg().metadata.current_snapshot().summary  # type: ignore[union-attr]
    assert summary is not None and summary.operation == Operation.DELETE
    assert texts(place) == {2: "t3", 4: "t4"} and proof(destination).ok


def test_manifests_of_deletes_are_merged(place: IcebergPlace) -> None:
    """Manifests of both kinds stay few, and readers find every delete."""
    destination = begun(place, RULE, 1)
    load(place, destination, 0, range(4))
    with place.iceberg().transaction() as change:
        change.set_properties({"commit.manifest.min-count-to-merge": "3"})
    for at in range(7):
        load(place, destination, 4 + at, [at % 4])
    table = place.iceberg()
    manifests = table.metadata.current_snapshot().manifests(table.io)  # type: ignore[union-attr]
    assert len(manifests) <= 6
    assert len(files(place, DataFileContent.POSITION_DELETES)) == 7
    assert sorted(texts(place).values()) == ["t10", "t7", "t8", "t9"] and proof(destination).ok


ALWAYS = ("data", "before", "after")
POINTS = ["verify", "open", "ledger", "table", "data", "dead_letters", "history", "before", "after"]


def _commit(place: IcebergPlace, commit: Commit, fault: str) -> None:
    failpoints.arm(failpoints.Fault(fault))
    place.open(rule=RULE).commit(commit)


@pytest.mark.parametrize("point", [name if name in ALWAYS else pytest.param(name, marks=pytest.mark.chaos) for name in POINTS])
def test_killed_anywhere_a_batch_lands_whole_or_not_at_all(place: IcebergPlace, point: str) -> None:
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
    assert texts(place) == {1: "t0", 2: "t3", 4: "t4"} and proof(destination).ok
    load(place, place.open(rule=RULE), 6, [4, 5])  # with the index that the killed process has left
    assert texts(place) == {1: "t0", 2: "t3", 4: "t6", 5: "t7"} and proof(destination).ok


def test_of_two_runs_at_once_one_lands(place: IcebergPlace) -> None:
    """Each has an index; that of the second is private, because the first uses the file."""
    destination = begun(place, RULE, 1)
    load(place, destination, 0, range(20))
    ledger, outcomes = destination.ledger()[1], list[str]()
    commits = [commit_of(place, ledger, writes(20, range(number, number + 10), "ab"[number]), RULE) for number in range(2)]
    meet = threading.Barrier(2)

    def run(commit: Commit) -> None:
        failpoint: Any = lambda point: meet.wait(300) if point == "commit.before" else None  # noqa: E731
        failpoints.arm(failpoint)
        try:
            place.open(rule=RULE).commit(commit)
            outcomes.append("landed")
        except Fenced:
            outcomes.append("fenced")

    threads = [threading.Thread(target=run, args=(commit,)) for commit in commits]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    failpoints.arm(None)
    assert sorted(outcomes) == ["fenced", "landed"]
    assert len(texts(place)) == 20 and proof(destination).ok
    load(place, destination, 30, range(25))
    assert len(texts(place)) == 25 and proof(destination).ok


def rewrite(place: IcebergPlace) -> None:
    """Compact the table as another program does: new files with all rows, none of the old ones, no deletes."""
    table = place.iceberg()
    rows = table.scan().to_arrow()
    rows = rows.take(pa.array(random.Random(1).sample(range(len(rows)), len(rows))))
    table.overwrite(rows.slice(0, len(rows) // 2))
    place.iceberg().append(rows.slice(len(rows) // 2))


def test_a_compaction_by_others_between_two_batches_leads_to_no_wrong_delete(place: IcebergPlace) -> None:
    destination = begun(place, RULE, 1)
    for first in range(0, 60, 20):
        load(place, destination, first, range(first // 2, first // 2 + 20))
    expected = contents(place)
    rewrite(place)
    assert contents(place) == expected
    load(place, destination, 60, range(0, 40, 3))
    expected.update({number: (f"t{60 + at}", None, 0, 60 + at) for at, number in enumerate(range(0, 40, 3))})
    assert contents(place) == expected and proof(destination).ok


def test_a_commit_by_others_during_a_batch_starts_it_again(place: IcebergPlace) -> None:
    """The positions were found in files that are not in the table any more."""
    destination = begun(place, RULE, 1)
    load(place, destination, 0, range(10))
    rewritten = []

    def reached(point: str) -> None:
        if point == "commit.before" and not rewritten:
            rewritten.append(1)
            rewrite(place)

    failpoints.arm(reached)
    load(place, destination, 10, [3, 5, 20])
    failpoints.arm(None)
    assert texts(place) == {**{n: f"t{n}" for n in range(10)}, 3: "t10", 5: "t11", 20: "t12"} and proof(destination).ok


def test_a_commit_that_lands_late_leaves_no_files_of_another_attempt_in_the_index(
    place: IcebergPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection breaks while the server still works on the COMMIT; a second attempt has prepared other files by then."""
    destination = begun(place, RULE, 1)
    load(place, destination, 0, [1])
    land, sent = IcebergLake.land, list[Any]()

    def late(*arguments: Any) -> None:
        sent.append(arguments)
        if len(sent) == 1:
            raise Overtaken("connection lost")
        land(*sent[0])
        land(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(IcebergLake, "land", late)
        load(place, destination, 1, [1, 2])
    load(place, place.open(rule=RULE), 3, [1])
    assert len(sent) == 2 and texts(place) == {1: "t3", 2: "t2"} and proof(destination).ok


@pytest.mark.parametrize("damage", ["removed", "text", "zeros", "other rows", "older"])
def test_the_index_is_only_a_cache(place: IcebergPlace, damage: str) -> None:
    import duckdb

    destination = begun(place, RULE, 1)
    load(place, destination, 0, range(10))
    load(place, destination, 10, [3])
    index = index_of(place)
    older = index.read_bytes()
    load(place, destination, 11, [3, 4])
    if damage == "removed":
        index.unlink()
    elif damage == "zeros":
        data = index.read_bytes()
        index.write_bytes(data[: 12 << 10] + bytes(len(data) - (12 << 10)))
    elif damage == "text":
        index.write_text("not a database")
    elif damage == "older":
        index.write_bytes(older)
    else:
        with duckdb.connect(str(index)) as connection:
            connection.execute("DELETE FROM rows WHERE k0 = 5")
    load(place, destination, 13, [5, 3])
    assert texts(place) == {**{n: f"t{n}" for n in range(10)}, 3: "t14", 4: "t12", 5: "t13"} and proof(destination).ok


def test_a_table_rolled_back_has_the_rows_of_then(place: IcebergPlace) -> None:
    """Ledger and rows go back together, so the batch is read again."""
    destination = begun(place, RULE, 1)
    load(place, destination, 0, range(5))
    snapshot = place.iceberg().metadata.current_snapshot()
    load(place, destination, 5, [1, 2])
    with place.iceberg().manage_snapshots() as change:
        change.set_current_snapshot(snapshot.snapshot_id)  # type: ignore[union-attr]
    load(place, place.open(rule=RULE), 5, [1, 2, 7])
    assert texts(place) == {0: "t0", 1: "t5", 2: "t6", 3: "t3", 4: "t4", 7: "t7"} and proof(place.open(rule=RULE)).ok


def test_rows_that_others_delete_are_not_deleted_twice(place: IcebergPlace) -> None:
    destination = begun(place, RULE, 1)
    load(place, destination, 0, range(6))
    place.iceberg().delete(EqualTo("id", 2))  # copy on write: the file is replaced
    load(place, destination, 6, [2, 3])
    assert texts(place) == {0: "t0", 1: "t1", 2: "t6", 3: "t7", 4: "t4", 5: "t5"}
    assert any("found" in problem for problem in proof(destination).problems)  # verify reports the row that is gone


def test_appended_rows_of_another_pipeline_are_part_of_the_balance(place: IcebergPlace) -> None:
    plain = place.open(pipeline="plain")
    plain.commit(begin("plain", [1]))
    plain.commit(batch(place, plain.ledger()[1], {1: 5}, Columns.of({"id": "BIGINT", "text": "VARCHAR", "n": "BIGINT"}), None))
    destination = begun(place, RULE, 1)
    load(place, destination, 0, [1_000_001, 1, 2])
    plain.commit(batch(place, plain.ledger()[1], {1: 8}, Columns.of({"id": "BIGINT", "text": "VARCHAR", "n": "BIGINT"}), None))
    load(place, destination, 3, [1_000_006, 1])
    assert {key: row[2:] for key, row in contents(place).items()} == {
        1: (0, 4), 2: (0, 2), 1_000_001: (0, 0), 1_000_006: (0, 3),
        **{1_000_000 + at: (1, at) for at in (0, 2, 3, 4, 5, 7)},
    }  # fmt: skip
    assert proof(destination).ok and proof(plain).ok
    place.delete_row(1, 5)
    assert not proof(destination).ok


KEYS = {
    "several": {"a": "VARCHAR", "b": "BIGINT", "c": "DATE"}, "exact": {"a": "DECIMAL(20,4)"}, "wide": {"a": "HUGEINT"},
    "unsigned": {"a": "UTINYINT"}, "uuid": {"a": "UUID"}, "bytes": {"a": "BLOB"},
    "moment": {"a": "TIMESTAMP WITH TIME ZONE", "b": "TIMESTAMP"}, "flag": {"a": "BOOLEAN", "b": "SMALLINT"},
}  # fmt: skip
VALUES = {
    "VARCHAR": ["it's \\ \"\u00e9\U0001f600\n", ""], "BIGINT": [2**62, -1], "DATE": [0, -719_000],
    "DECIMAL(20,4)": ["1.5", "-0.0001"],
    "HUGEINT": ["170141183460469231731687303715884105727", "0"], "UTINYINT": [255, 0], "BLOB": [b"\x00\xff", b""],
    "UUID": ["6f1c5e9e-8d56-4b0c-9c3f-0123456789ab", "00000000-0000-0000-0000-000000000000"],
    "TIMESTAMP WITH TIME ZONE": [1_700_000_000_123_456, -1], "TIMESTAMP": [253_402_300_799_999_999, 0],
    "BOOLEAN": [True, False], "SMALLINT": [-32768, 7],
}  # fmt: skip


@pytest.mark.crossed
@pytest.mark.parametrize("name", KEYS)
def test_keys_of_every_type_are_found_again(place: IcebergPlace, name: str) -> None:
    from decimal import Decimal

    kinds = KEYS[name]
    rule = KeyRule(tuple(kinds), "replace")
    destination = place.open(rule=rule)
    destination.commit(begin("tweets", [0]))
    columns = Columns.of({**kinds, "text": "VARCHAR"})
    for at in range(4):
        values = {key: VALUES[kind][at % 2] for key, kind in kinds.items()}
        values = {key: Decimal(v) if kinds[key].startswith("DECIMAL") else v for key, v in values.items()}
        destination.commit(one(place, destination, at, columns, {**values, "text": f"t{at}"}))
    assert sorted(row["text"] for row in place.rows()) == ["t2", "t3"] and proof(destination).ok


def test_new_columns_and_fields_arrive_with_an_update(place: IcebergPlace) -> None:
    rule = KeyRule(("id",), "update")
    destination = place.open(rule=rule)
    destination.commit(begin("tweets", [0]))
    steps = [
        ({"id": "BIGINT", "who": "STRUCT(name VARCHAR)"}, {"id": 1, "who": {"name": "a"}}),
        ({"id": "BIGINT", "n": "BIGINT"}, {"id": 1, "n": 5}),
        ({"id": "BIGINT", "who": "STRUCT(name VARCHAR, tags VARCHAR[])"}, {"id": 2, "who": {"name": "b", "tags": ["x", None]}}),
        ({"id": "BIGINT", "text": "VARCHAR"}, {"id": 1, "text": "later"}),
    ]
    for at, (columns, values) in enumerate(steps):
        destination.commit(one(place, destination, at, Columns.of(columns), values))
    found = [{name: row[name] for name in ("id", "who", "n", "text")} for row in place.rows()]
    assert found == [
        {"id": 2, "who": {"name": "b", "tags": ["x", None]}, "n": None, "text": None},
        {"id": 1, "who": {"name": "a", "tags": None}, "n": 5, "text": "later"},
    ] and proof(destination).ok  # fmt: skip


class Divided(IcebergPlace):
    parts: tuple[Part, ...] = (Part("text"),)

    def lake(self, table: str = "tweets") -> IcebergLake:
        return IcebergLake(LocalFolder(self.folder), table, SQLite(self.folder), parts=self.parts)


@pytest.mark.crossed
@pytest.mark.parametrize("parts", [(Part("text"),), (Part("_kafka_timestamp", "day"),), (Part("n"), Part("text"))], ids=str)
@pytest.mark.parametrize("name", ["replace", "add"])
def test_rows_move_between_partitions(tmp_path: Path, name: str, parts: tuple[Part, ...]) -> None:
    """Deletes are in the partition of the old row, the new row in its own."""
    place, rule, chance = Divided(tmp_path), RULES[name], random.Random(7)
    place.parts = parts
    destination, expected = begun(place, rule, 1), dict[int, tuple[Any, Any]]()
    for at in range(0, 60, 20):
        more = []
        for offset in range(at, at + 20):
            number, text, n = chance.randint(0, 15), chance.choice(("a", "b", None)), chance.randint(0, 2)
            more.append(Write(0, offset, number, text, n))
            if text is None:
                expected.pop(number, None)
            elif name == "add" and number in expected:
                expected[number] = expected[number][0], expected[number][1] + n
            else:
                expected[number] = text, n
        destination.commit(commit_of(place, destination.ledger()[1], more, rule, cuts=2))
        assert {key: row[:2] for key, row in contents(place).items()} == expected
    rows = {tuple(file.partition[i] for i in range(len(parts))) for file in files(place, DataFileContent.DATA)}
    gone = {tuple(file.partition[i] for i in range(len(parts))) for file in files(place, DataFileContent.POSITION_DELETES)}
    assert gone and gone <= rows and proof(destination).ok


def test_audits_check_the_new_rows_and_publish_the_deletes_with_them(tmp_path: Path) -> None:
    place = IcebergPlace(tmp_path)

    def opened(check: str) -> Any:
        lake = IcebergLake(LocalFolder(place.folder), "tweets", SQLite(place.folder), audit=Audit({"text": check}))
        made = keyed(AuditedDestination)
        return made(lake, "tweets", "tweets", {}, (place.staging,), rule=RULE, cache=tmp_path / "cache")

    destination = opened("text <> 't5'")
    destination.commit(begin("tweets", [0]))
    load(place, destination, 0, range(4))
    with pytest.raises(AuditFailed):
        load(place, destination, 4, [1, 2])
    assert texts(place) == {n: f"t{n}" for n in range(4)} and proof(destination).ok
    destination = opened("text <> 'x'")
    destination.commit(commit_of(place, destination.ledger()[1], [*writes(4, [1, 2]), Write(0, 6, 3, None)], RULE))
    load(place, destination, 7, [2])
    assert texts(place) == {0: "t0", 1: "t4", 2: "t7"} and proof(destination).ok


def test_a_table_of_another_format_version_is_refused(place: IcebergPlace) -> None:
    plain = place.open()
    plain.commit(begin("tweets", [0]))
    table = place.iceberg()
    table.metadata.__dict__["format_version"] = 1  # pyiceberg creates no such tables
    with pytest.raises(DestinationError, match="format version 1: expected 2"):
        from resources.destinations.iceberg.state import IcebergState

        place.lake().live(IcebergState(table))


def test_equality_deletes_of_others_are_refused(place: IcebergPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    destination = begun(place, RULE, 1)
    load(place, destination, 0, [1, 2])
    load(place, destination, 2, [1])
    state = place.lake().load()
    assert state is not None
    from pyiceberg.manifest import DataFile

    real = DataFile.content.fget  # type: ignore[attr-defined]
    as_equality = lambda file: DataFileContent.EQUALITY_DELETES if real(file) == DataFileContent.POSITION_DELETES else real(file)  # noqa: E731
    monkeypatch.setattr(DataFile, "content", property(as_equality))
    with pytest.raises(DestinationError, match=r"into\.key is not supported with equality deletes in PARQUET files"):
        place.lake().live(state)
