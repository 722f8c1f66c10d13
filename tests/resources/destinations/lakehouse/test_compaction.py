"""Compaction of tables in table formats: the same rows, or no commit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table.snapshots import Operation

from kpipe import failpoints
from kpipe.definition.lakehouse_options import Part
from kpipe.errors import DestinationError, NotAvailable
from kpipe.maintenance.facts import Maintained
from kpipe.maintenance.plan import Limits
from kpipe.schema.columns import Columns
from resources.destinations.delta import DeltaLake
from resources.destinations.iceberg import Audit, AuditedDestination, IcebergLake, SQLite
from resources.destinations.lakehouse import LakeDestination
from resources.destinations.lakehouse.folder import LocalFolder
from resources.destinations.lakehouse.keyed.key_index import KeyIndex
from resources.testing.keyed import Write, begun, commit_of, contents
from resources.testing.place import batch, begin
from resources.testing.state import proof
from tests.resources.destinations.lake_place import DeltaPlace, IcebergPlace, ParquetPlace
from tests.resources.destinations.maintained_tables import PLACES, RULE, SOON, at, filled, load, maintained, version


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return PLACES[request.param](tmp_path)


def test_small_files_and_their_deletes_become_one_file(place: Any) -> None:
    destination = filled(place)
    before = contents(place)
    planned = maintained(place, dry_run=True)
    assert (planned.rewritten, planned.commits, planned.files_after) == (4, 0, 4)
    done = maintained(place)
    assert (done.files_before, done.files_after, done.deletes_after, done.commits, done.rewritten) == (4, 1, 0, 1, 4)
    assert done.deletes_before == 3 and done.rows == len(before) == 31
    assert contents(place) == before and proof(destination).ok
    assert maintained(place).commits == 0
    load(place, 40, [3, 99])  # the index of keys is that of the files before
    assert contents(place) == {**before, 3: ("t40", None, 0, 40), 99: ("t41", None, 0, 41)} and proof(destination).ok


def test_files_of_a_table_without_a_key_are_merged(place: Any) -> None:
    destination = place.open()
    destination.commit(begin("tweets", [0, 1]))
    for end in range(1, 7):
        destination.commit(batch(place, destination.ledger()[1], {0: 2 * end, 1: end}, dead=[(1, end - 1)] if end % 2 else []))
    before = place.rows()
    done = maintained(place)
    assert (done.files_after, done.commits, done.rows) == (1, 1, len(before))
    assert place.rows() == before and proof(destination).ok
    destination.commit(batch(place, destination.ledger()[1], {0: 20}))
    assert len(place.rows()) == len(before) + 8 and proof(destination).ok


def test_deletes_of_files_that_stay_are_merged(tmp_path: Path) -> None:
    """No file is small here, and too few rows are deleted to rewrite one."""
    place = IcebergPlace(tmp_path)
    destination = begun(place, RULE, 1)
    load(place, 0, range(50))
    for first in range(50, 54):
        load(place, first, [first - 45])
    before, limits = contents(place), Limits(min_input_files=3, delete_ratio=0.5)
    done = _with(limits, 0, place, place.lake())
    assert (done.rewritten, done.files_after, done.deletes_before, done.deletes_after) == (0, 5, 4, 1)
    assert contents(place) == before and proof(destination).ok
    load(place, 54, [5, 6, 7])
    assert len(contents(place)) == 50 and proof(destination).ok


def _with(limits: Limits, target: int, place: Any, lake: Any) -> Maintained:
    from resources.destinations.lakehouse.maintenance.compaction import Compaction

    class _Target(Limits):
        @property
        def target(self) -> int:
            return target

    chosen = _Target(limits.target_file_mb, limits.min_input_files, limits.delete_ratio)
    compaction = Compaction(lake, chosen, place.staging.parent / "scratch", lambda _: None)
    try:
        return compaction.run()
    finally:
        compaction.close()


def test_only_worn_files_are_rewritten_and_other_deletes_kept(place: Any) -> None:
    destination = begun(place, RULE, 1)
    load(place, 0, range(20))
    load(place, 20, range(20, 40))
    load(place, 40, [*range(8), 20, 21])  # 8 of 20 rows of the first file, 2 of the second
    before = contents(place)
    done = _with(Limits(min_input_files=9), 0, place, place.lake())
    assert (done.rewritten, done.rows, done.files_after) == (1, 12, 3)
    assert done.deletes_after == 1 and contents(place) == before and proof(destination).ok


def test_the_index_of_keys_takes_over_what_has_not_changed(place: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deletes that were merged into files are no reason to read the files that stay."""
    begun(place, RULE, 1)
    for first in (0, 20, 40):
        load(place, first, range(first, first + 20))
    load(place, 60, [*range(8), 20, 21])
    _with(Limits(min_input_files=9), 0, place, place.lake())
    loaded, created = list[int](), list[str]()
    load_files, create = KeyIndex._load, KeyIndex._create

    def counted(self: KeyIndex, lake: Any, state: Any, columns: Columns, files: Any) -> None:
        loaded.append(len(files))
        load_files(self, lake, state, columns, files)

    def noted(self: KeyIndex, table: str) -> None:
        created.append(table)
        create(self, table)

    monkeypatch.setattr(KeyIndex, "_load", counted)
    monkeypatch.setattr(KeyIndex, "_create", noted)
    before = contents(place)
    load(place, 70, [5, 20, 30, 70])
    assert not created and loaded[0] == 1
    expected = {number: (f"t{70 + at}", None, 0, 70 + at) for at, number in enumerate([5, 20, 30, 70])}
    assert contents(place) == {**before, **expected} and proof(place.open(rule=RULE)).ok


def test_a_file_without_rows_is_removed(place: Any) -> None:
    destination = begun(place, RULE, 1)
    load(place, 0, range(5))
    destination.commit(commit_of(place, destination.ledger()[1], [Write(0, 5 + at, at, None) for at in range(4)], RULE))
    load(place, 9, range(4, 9))
    before = contents(place)
    done = maintained(place)
    assert done.files_after == 1 and contents(place) == before and proof(destination).ok


def test_the_snapshot_says_what_it_is(tmp_path: Path) -> None:
    place = IcebergPlace(tmp_path)
    filled(place)
    before = place.iceberg().metadata.current_snapshot()
    maintained(place)
    after = place.iceberg().metadata.current_snapshot()
    assert before is not None and after is not None and after.parent_snapshot_id == before.snapshot_id
    assert before.summary is not None and after.summary is not None and after.summary.operation == Operation.REPLACE
    pointers = {name: value for name, value in before.summary.additional_properties.items() if name.startswith("kpipe.pipeline.")}
    assert pointers and pointers.items() <= after.summary.additional_properties.items()
    totals = {name: after.summary[name] for name in ("total-records", "total-data-files", "total-delete-files")}
    assert totals == {"total-records": "31", "total-data-files": "1", "total-delete-files": "0"}
    assert after.summary["deleted-data-files"] == "4" and after.summary["total-position-deletes"] == "0"
    old = place.iceberg().scan(snapshot_id=before.snapshot_id).to_arrow()
    assert old.num_rows == 31  # readers of older snapshots


def test_the_log_says_that_no_row_has_changed(tmp_path: Path) -> None:
    import json

    place = DeltaPlace(tmp_path)
    filled(place)
    before = version(place)
    maintained(place)
    lines = (place.folder / "tweets" / "_delta_log" / f"{before + 1:020}.json").read_text().splitlines()
    actions = [json.loads(line) for line in lines]
    changes = [action.get("add") or action.get("remove") for action in actions if "add" in action or "remove" in action]
    assert len(changes) == 5 and not any(change["dataChange"] for change in changes)
    assert actions[0]["commitInfo"]["operation"] == "OPTIMIZE"
    assert len(place.delta().history(1)) == 1


def test_partitions_are_rewritten_apart(tmp_path: Path) -> None:
    for name, parts in (("iceberg", (Part("text"), Part("at", "day"))), ("delta", (Part("text"),))):
        (tmp_path / name).mkdir()
        place = PLACES[name](tmp_path / name)
        lake: Any = (
            IcebergLake(LocalFolder(place.folder), "tweets", SQLite(place.folder), parts=parts)
            if name == "iceberg"
            else DeltaLake(place.folder / "tweets", parts)
        )
        destination = LakeDestination(lake, "tweets", "tweets", {}, (place.staging,))
        destination.commit(begin("tweets", [0]))
        columns = Columns.of({"id": "BIGINT", "text": "VARCHAR", "at": "TIMESTAMP WITH TIME ZONE"})
        for end in range(1, 9):
            values = {"id": end, "text": [None, "a/b c", "é%=", "x" * 80][end % 4], "at": 1_700_000_000_000_000 + end}
            destination.commit(batch(place, destination.ledger()[1], {0: 2 * end}, columns, values))
        before = place.rows()
        done = destination.maintain(Limits(min_input_files=2), place.staging.parent / "scratch")
        assert (done.files_before, done.files_after, done.commits) == (8, 4, 1)
        assert place.rows() == before and len(before) == 16 and proof(destination).ok
        destination.commit(batch(place, destination.ledger()[1], {0: 18}, columns, values))
        assert len(place.rows()) == 18 and proof(destination).ok


def test_files_with_fewer_columns_and_members_are_merged(place: Any) -> None:
    destination = place.open()
    destination.commit(begin("tweets", [0]))
    steps: list[tuple[dict[str, str], dict[str, Any]]] = [
        ({"id": "BIGINT", "who": "STRUCT(name VARCHAR)"}, {"id": 1, "who": {"name": "a"}}),
        ({"id": "BIGINT", "n": "DECIMAL(20,4)", "m": "MAP(VARCHAR, BIGINT)"}, {"id": 2, "n": None, "m": [("k", 5)]}),
        (
            {"id": "BIGINT", "who": "STRUCT(name VARCHAR, tags VARCHAR[])"},
            {"id": 3, "who": {"name": "b", "tags": ["x", None]}},
        ),
        ({"id": "BIGINT", "t": "TIME", "d": "DATE", "f": "DOUBLE"}, {"id": 4, "t": None, "d": -719_000, "f": float("nan")}),
    ]
    for end, (columns, values) in enumerate(steps, 1):
        destination.commit(batch(place, destination.ledger()[1], {0: end}, Columns.of(columns), values))
    before = repr(place.rows())
    done = maintained(place)
    assert (done.files_after, done.rows) == (1, 4)
    assert repr(place.rows()) == before and proof(destination).ok


def _ignored(_: object) -> None:
    failpoints.arm(None)


def test_an_audited_table_is_compacted(tmp_path: Path) -> None:
    place = IcebergPlace(tmp_path)
    lake = IcebergLake(LocalFolder(place.folder), "tweets", SQLite(place.folder), audit=Audit({"positive": "id >= 0"}))
    destination = AuditedDestination(lake, "tweets", "tweets", {}, (place.staging,))
    destination.commit(begin("tweets", [0]))
    for end in range(1, 5):
        destination.commit(batch(place, destination.ledger()[1], {0: end}))
    at("commit.branch", lambda: _ignored(destination.maintain(SOON, tmp_path / "scratch")))
    destination.commit(batch(place, destination.ledger()[1], {0: 6}))
    failpoints.arm(None)
    assert len(place.rows()) == 6 and proof(destination).ok
    assert destination.maintain(SOON, tmp_path / "scratch").left == 0 and proof(destination).ok


def test_tables_that_kpipe_cannot_maintain_are_refused(tmp_path: Path) -> None:
    for name in ("parquet", "iceberg"):
        (tmp_path / name).mkdir()
    parquet = ParquetPlace(tmp_path / "parquet")
    destination: Any = parquet.open()
    destination.commit(begin("tweets", [0]))
    with pytest.raises(NotAvailable, match="not available for"):
        destination.maintain(SOON, tmp_path / "scratch")
    place = IcebergPlace(tmp_path / "iceberg")
    filled(place)
    lake = place.lake()
    state = lake.load()
    assert state is not None
    state.table.metadata.__dict__["format_version"] = 3  # pyiceberg creates no such tables
    with pytest.raises(DestinationError, match="format version 3: expected 2"):
        lake.listed(state)
