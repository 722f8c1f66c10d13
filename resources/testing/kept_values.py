"""Test that destinations keep values which an update left out (kpipe/tables/changes.py), against a dict."""

from __future__ import annotations

import random
import uuid
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from kpipe.batch.batch import Commit, Counts, TableWrite
from kpipe.errors import SchemaConflict
from kpipe.ledger.ledger import Lane, Ledger, Step
from kpipe.schema.columns import Columns
from kpipe.tables.changes import EMPTIES, UNCHANGED, marks
from kpipe.tables.upsert import KeyRule
from kpipe.testing.commits import commit_to
from resources.testing.keyed import begun
from resources.testing.place import COORDINATES, TOPIC, Place, arrow, begin, live
from resources.testing.state import proof

__all__ = ["COLUMNS", "RULE", "Change", "KeptValues", "changed"]

COLUMNS = Columns.of({"id": "BIGINT", "Big Text": "VARCHAR", "raw": "BLOB", "n": "BIGINT"})
RULE = KeyRule(("id",), "replace", deletes=True)
#: Partition, offset, id (negative: all rows), a row without its id (None: a delete), and the columns that keep their value.
Change = tuple[int, int, int, "dict[str, Any] | None", set[str]]


def changed(
    place: Place,
    ledger: Ledger,
    writes: list[Change],
    key_name: str = "id",
    columns: Columns = COLUMNS,
    pipeline: str = "tweets",
    lane: Lane | None = None,
) -> Commit:
    """Build a batch of writes: partition, offset, id, row, kept columns; the first column is the key. `lane`: the only one."""
    columns = Columns(((key_name, columns.items[0][1]), *columns.items[1:]))
    fields = [(name, arrow(kind)) for name, kind in columns]
    whole = pa.schema([*fields, (UNCHANGED, pa.string()), *COORDINATES.items()])
    keys = pa.schema([fields[0], (EMPTIES, pa.bool_()), *COORDINATES.items()])
    steps = tuple(
        Step(lane or live(ledger, number), max(write[1] for write in writes if write[0] == number) + 1)
        for number in sorted({write[0] for write in writes})
    )
    files, deletes, counts = [], [], {}
    for step in steps:
        mine = [write for write in writes if write[0] == step.source.partition]
        rows, gone = [], []
        for number, offset, key, row, kept in mine:
            where = {"_kafka_partition": number, "_kafka_offset": offset, "_kafka_timestamp": offset}
            if row is None:
                gone.append({key_name: key if key >= 0 else None, EMPTIES: key < 0, **where})
            else:
                values = {name: None if name in kept else item for name, item in row.items()}
                rows.append({key_name: key, **values, UNCHANGED: marks(kept), **where})
        files += [place.file(rows, whole)] if rows else []
        deletes += [place.file(gone, keys)] if gone else []
        counts[step.lane.key] = Counts(messages=len(mine), rows=len(rows), deletes=len(gone), bytes=len(mine))
    return commit_to(
        TableWrite(columns=columns, files=tuple(files), deletes=tuple(deletes)),
        counts,
        id=uuid.uuid4().hex,
        pipeline=pipeline,
        changes=tuple(step.change for step in steps),
        steps=steps,
        ends={step.source: (0, step.end) for step in steps},
        metadata={},
        started_ms=1_700_000_000_123,
        seconds=0.5,
    )


class KeptValues:
    """Tests of destinations that keep values. Needs a fixture `place`."""

    def test_any_history_ends_as_the_writes_one_by_one(self, place: Place) -> None:
        if not place.keeps:
            pytest.skip(f"{type(place).__name__}: an update that left out a value stops the pipeline")
        chance, rows, at = random.Random(7), dict[int, dict[str, Any]](), {0: 0, 1: 0}
        destination = begun(place, RULE)
        for number in range(8):
            writes: list[Change] = []
            for _ in range(chance.randint(1, 40)):
                key = chance.randint(0, 9)
                partition = key % 2
                row = {"Big Text": f"t{chance.random()}", "raw": bytes([chance.randint(0, 255)]), "n": chance.randint(0, 9)}
                kept = {name for name in ("Big Text", "raw") if key in rows and chance.random() < 0.5}
                change = None if chance.random() < 0.2 else row
                writes.append((partition, at[partition], key, change, kept))
                at[partition] += 1
                if change is None:
                    rows.pop(key, None)
                else:
                    rows[key] = {**row, **{name: rows[key][name] for name in kept}}
            destination.commit(changed(place, destination.ledger()[1], writes))
            found = {row["id"]: {name: row[name] for name in COLUMNS.names()[1:]} for row in place.rows()}
            assert {key: {**row, "raw": bytes(row["raw"])} for key, row in found.items()} == rows, number
        assert proof(destination).ok

    def test_a_truncate_deletes_all_rows_in_order(self, place: Place) -> None:
        if not place.keeps:
            pytest.skip(f"{type(place).__name__}: a TRUNCATE stops the pipeline")
        chance, rows, at, deleted = random.Random(9), dict[int, int](), 0, 0
        destination = begun(place, RULE, 1)
        for number in range(6):
            writes: list[Change] = []
            for _ in range(chance.randint(1, 30)):
                key, what = chance.randint(0, 9), chance.random()
                if what < 0.15:
                    writes.append((0, at, -1, None, set()))
                    deleted += len(rows)
                    rows.clear()
                elif what < 0.3:
                    writes.append((0, at, key, None, set()))
                    deleted += rows.pop(key, None) is not None
                else:
                    writes.append((0, at, key, {"Big Text": "x", "raw": None, "n": at}, {"Big Text"} if key in rows else set()))
                    rows[key] = at
                at += 1
            done = destination.commit(changed(place, destination.ledger()[1], writes))
            deleted -= done.commit.totals.deleted
            assert {row["id"]: row["n"] for row in place.rows()} == rows and deleted == 0, number
        assert proof(destination).ok
        two = place.open("other", "other", rule=RULE)
        two.commit(begin("other", range(2)))
        ledger = two.ledger()[1]
        commit = changed(place, ledger, [(0, 0, -1, None, set())])
        with pytest.raises(SchemaConflict, match="expected one partition, found 2"):
            two.commit(replace(commit, pipeline="other"))

    def test_a_truncate_deletes_no_rows_of_another_pipeline(self, place: Place) -> None:
        """It would not read them again."""
        if not place.keeps:
            pytest.skip(f"{type(place).__name__}: a TRUNCATE stops the pipeline")
        one, two = begun(place, RULE, 1), place.open("other", rule=RULE)
        two.commit(begin("other", [0]))
        row = {"Big Text": "a", "raw": None, "n": 1}
        two.commit(changed(place, two.ledger()[1], [(0, 0, 2, row, set())], pipeline="other"))
        one.commit(changed(place, one.ledger()[1], [(0, 0, 1, row, set())]))
        emptying = changed(place, one.ledger()[1], [(0, 1, -1, None, set())])
        with pytest.raises(SchemaConflict, match="also has rows of pipeline other"):
            one.commit(emptying)
        assert sorted(found["id"] for found in place.rows()) == [1, 2]
        two.commit(changed(place, two.ledger()[1], [(0, 1, 2, None, set())], pipeline="other"))
        one.commit(emptying)
        assert not place.rows() and proof(one).ok and proof(two).ok

    def test_a_truncate_of_a_topic_that_was_created_again(self, place: Place) -> None:
        """Its partition is the only one whose order matters: all records of the earlier topic are older."""
        if not place.keeps:
            pytest.skip(f"{type(place).__name__}: a TRUNCATE stops the pipeline")
        destination, row = begun(place, RULE, 1), {"Big Text": "a", "raw": None, "n": 1}
        destination.commit(changed(place, destination.ledger()[1], [(0, 0, 1, row, set())]))
        again = replace(TOPIC, topic_id="another")
        destination.commit(begin("tweets", [0], topic=again))
        ledger = destination.ledger()[1]
        destination.commit(changed(place, ledger, [(0, 0, -1, None, set())], lane=live(ledger, 0, again)))
        assert not place.rows() and proof(destination).ok

    def test_a_truncate_finds_keys_of_any_name(self, place: Place) -> None:
        if not place.keeps:
            pytest.skip(f"{type(place).__name__}: a TRUNCATE stops the pipeline")
        for name in ("o", "p", "place", "epoch", "removes", "empties"):
            destination = place.open(name, f"t_{name}", rule=KeyRule((name,), "replace", deletes=True))
            destination.commit(begin(name, [0]))
            row = {"Big Text": "a", "raw": None, "n": 1}
            for first, writes in ((0, [1, 2]), (2, [3, None, 4])):
                changes = [(0, first + at, key or -1, row if key else None, set[str]()) for at, key in enumerate(writes)]
                done = destination.commit(replace(changed(place, destination.ledger()[1], changes, name), pipeline=name))
            assert done.commit.totals.deleted == 3, name
            assert [found[name] for found in place.rows(f"t_{name}")] == [4] and proof(destination).ok, name

    def test_a_value_that_no_row_has_is_refused(self, place: Place) -> None:
        if not place.keeps:
            pytest.skip(f"{type(place).__name__}: an update that left out a value stops the pipeline")
        destination = begun(place, RULE, 1)
        row = {"Big Text": "a", "raw": b"", "n": 1}
        ledger = destination.ledger()[1]
        with pytest.raises(SchemaConflict, match=r"partition 0 offset 1: an update left out big text.*no row of its key"):
            destination.commit(changed(place, ledger, [(0, 0, 1, row, set()), (0, 1, 2, row, {"Big Text"})]))
        # The source's row has a value in a column that the table does not have yet.
        with pytest.raises(SchemaConflict, match=r"partition 0 offset 1: an update left out new one.*no row of its key"):
            destination.commit(changed(place, ledger, [(0, 0, 1, row, set()), (0, 1, 2, row, {"new one"})]))
        assert destination.ledger()[1] == ledger and place.rows() == []
        # A later delete makes the value unnecessary.
        writes: list[Change] = [(0, 0, 1, row, set()), (0, 1, 2, row, {"Big Text"}), (0, 2, 2, None, set())]
        destination.commit(changed(place, ledger, writes))
        assert [found["id"] for found in place.rows()] == [1] and proof(destination).ok
        destination.commit(changed(place, destination.ledger()[1], [(0, 3, 1, {**row, "n": 2}, {"new one"})]))
        assert [(found["id"], found["n"]) for found in place.rows()] == [(1, 2)] and proof(destination).ok
