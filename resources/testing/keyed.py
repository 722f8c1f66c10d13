"""Test destinations with keys (kpipe/tables/upsert.py) against a dict, on each `Place` with `keyed`."""

from __future__ import annotations

import random
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from kpipe.batch.batch import Commit, Counts, TableWrite
from kpipe.errors import DestinationError, Fenced, InvalidPipeline, NotAvailable, SchemaConflict
from kpipe.interfaces import Destination, Keyed
from kpipe.ledger.ledger import Lane, Ledger, Step
from kpipe.schema.columns import Columns
from kpipe.tables.upsert import ORIGINAL, KeyRule
from kpipe.testing.commits import commit_to
from resources.testing.place import COORDINATES, HEADERS, Place, arrow, batch, begin, live
from resources.testing.state import loaded, proof

__all__ = [
    "COLUMNS",
    "RULES",
    "KeyedConformance",
    "Oracle",
    "Write",
    "begun",
    "commit_of",
    "contents",
    "staged",
]

COLUMNS = Columns.of({"id": "BIGINT", "text": "VARCHAR", "n": "BIGINT"})
EVERY = Columns.of(
    {
        "id": "BIGINT", "b": "BOOLEAN", "tiny": "TINYINT", "unsigned": "UTINYINT", "small": "SMALLINT", "i": "INTEGER",
        "f": "FLOAT", "d": "DOUBLE", "n": "DECIMAL(38,9)", "v": "VARCHAR", "y": "BLOB", "day": "DATE", "t": "TIMESTAMP",
        "z": "TIMESTAMP WITH TIME ZONE", "j": "JSON",
    }
)  # fmt: skip
VALUES: dict[str, Any] = {
    "id": 1, "b": True, "tiny": -128, "unsigned": 255, "small": 2**15 - 1, "i": -(2**31), "f": 16777215.0,
    "d": 0.1 + 0.2, "n": Decimal("-12345678901234567890123456789.123456789"), "v": "it's \\ \"quoted\",\n\ttwo lines, \U0001f600",
    "y": b"\x00\xff'\\", "day": date(1066, 10, 14), "t": datetime(9999, 12, 31, 23, 59, 59, 999999),
    "z": datetime(2026, 1, 2, 3, 4, 5, 678901, timezone.utc), "j": '{"k": [1, "it\'s", 123456789012345678901234567890]}',
}  # fmt: skip
RECORD = pa.struct([("key", pa.binary()), ("value", pa.binary()), ("headers", HEADERS)])


@dataclass(frozen=True)
class Write:
    """One record: its coordinates, key and value (None: a tombstone); `topic`: for rows with a topic column."""

    partition: int
    offset: int
    id: int
    text: str | None
    n: int | None = None
    topic: str | None = None


@dataclass
class Oracle:
    """A table as a dict, to which writes are applied in order."""

    rule: KeyRule
    rows: dict[int, tuple[str | None, int | None, int, int]] = field(default_factory=dict)
    counts: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("inserted", "updated", "deleted", "ignored", "dead"), 0)
    )

    def apply(self, write: Write) -> None:
        """Apply the next write."""
        there = self.rows.get(write.id)
        new = (write.text, write.n, write.partition, write.offset)
        if write.text is None:
            self.counts["deleted"] += self.rows.pop(write.id, None) is not None
        elif there is None:
            self.rows[write.id] = new
            self.counts["inserted"] += 1
        elif self.rule.on_conflict == "error":
            self.counts["dead" if self.rule.duplicates == "dead_letter" else "ignored"] += 1
        elif self.rule.on_conflict == "ignore":
            self.counts["ignored"] += 1
        else:
            if self.rule.update:  # n = n + excluded.n
                new = (there[0], (there[1] or 0) + (write.n or 0), *new[2:])
            self.rows[write.id] = new
            self.counts["updated"] += 1


RULES = {
    "replace": KeyRule(("id",), "replace", deletes=True),
    "ignore": KeyRule(("id",), "ignore", deletes=True),
    "update": KeyRule(("id",), "update", deletes=True),
    "add": KeyRule(("id",), "update", {"n": "mysql: COALESCE(n, 0) + COALESCE(VALUES(n), 0)"}, deletes=True),
    "skip": KeyRule(("id",), "error", duplicates="skip", deletes=True),
    "dead_letter": KeyRule(("id",), "error", duplicates="dead_letter", deletes=True),
}


def begun(place: Place, rule: KeyRule, partitions: int = 2) -> Destination:
    """Open a pipeline with this rule and commit its start offsets."""
    destination = place.open(rule=rule)
    destination.commit(begin("tweets", range(partitions)))
    return destination


def commit_of(
    place: Place, ledger: Ledger, writes: Sequence[Write], rule: KeyRule, cuts: int = 1, lanes: Sequence[Lane] | None = None
) -> Commit:
    """Build a batch of these writes, with `cuts` files of rows for each partition, not in Kafka's order."""
    ends = {w.partition: max(x.offset for x in writes if x.partition == w.partition) + 1 for w in writes}
    chosen = lanes or [live(ledger, number) for number in sorted(ends)]
    steps = tuple(Step(lane, ends[lane.source.partition]) for lane in chosen)
    files, deletes, counts = [], [], {}
    for step in steps:
        mine = sorted((w for w in writes if w.partition == step.source.partition), key=lambda w: w.offset)
        rows, gone = [w for w in mine if w.text is not None], [w for w in mine if w.text is None]
        for at in range(cuts):
            part = rows[at * len(rows) // cuts : (at + 1) * len(rows) // cuts]
            files += [staged(place, part, rule)] if part else []
        deletes += [_staged_deletes(place, gone)] if gone else []
        counts[step.lane.key] = Counts(
            messages=len(mine), rows=len(rows), gaps=len(step.range) - len(mine), bytes=len(mine), deletes=len(gone)
        )
    return commit_to(
        TableWrite(columns=COLUMNS, files=tuple(reversed(files)), deletes=tuple(deletes)),
        counts,
        id=uuid.uuid4().hex,
        pipeline="tweets",
        changes=tuple(step.change for step in steps),
        steps=steps,
        ends={step.source: (0, step.end) for step in steps},
        metadata={step.source: {"rows": counts[step.lane.key].rows, "inserted": 0, "updated": 0} for step in steps},
        started_ms=1_700_000_000_123,
        seconds=0.5,
    )


def staged(place: Place, writes: Sequence[Write], rule: KeyRule) -> Any:
    """Write a staged file of rows."""
    fields = [(name, arrow(kind)) for name, kind in COLUMNS] + list(COORDINATES.items())
    rows: list[dict[str, Any]] = [{"id": w.id, "text": w.text, "n": w.n, **_place(w)} for w in writes]
    if any(w.topic for w in writes):
        fields.append(("_kafka_topic", pa.string()))
        rows = [{**row, "_kafka_topic": w.topic} for row, w in zip(rows, writes, strict=True)]
    if rule.keeps_originals:
        fields.append((ORIGINAL, RECORD))
        rows = [{**row, ORIGINAL: {"key": b"k", "value": f"v{row['_kafka_offset']}".encode(), "headers": None}} for row in rows]
    return place.file(rows, pa.schema(fields))


def _staged_deletes(place: Place, writes: Sequence[Write]) -> Any:
    schema = pa.schema([("id", pa.int64()), *COORDINATES.items()])
    return place.file([{"id": w.id, **_place(w)} for w in writes], schema)


def _place(write: Write) -> dict[str, Any]:
    return {"_kafka_partition": write.partition, "_kafka_offset": write.offset, "_kafka_timestamp": write.offset}


def contents(place: Place) -> dict[int, tuple[Any, ...]]:
    """Read the table: text, n, partition and offset by id."""
    rows = place.rows()
    found = {r["id"]: (r["text"], r["n"], r["_kafka_partition"], r["_kafka_offset"]) for r in rows}
    assert len(found) == len(rows), "duplicate key in the table"
    return found


class KeyedConformance:
    """Tests of destinations with keys. Needs a fixture `place`."""

    @pytest.mark.parametrize("name", RULES)
    def test_any_history_ends_as_the_writes_one_by_one(self, place: Place, name: str) -> None:
        """Commit random keys, tombstones, batches and files of sub-ranges, with lost responses, failures and zombies."""
        rule, chance = RULES[name], random.Random(name)
        if rule.update and not place.expressions:
            with pytest.raises(NotAvailable, match=r"into\.update"):
                place.open(rule=rule)
            return
        oracle, at = Oracle(rule), {0: 0, 1: 0}
        destination = begun(place, rule)
        total = Counts()
        for number in range(8):
            writes = []
            for partition in chance.sample((0, 1), chance.choice((1, 2))):
                for _ in range(chance.randint(1, 25)):
                    at[partition] += chance.choice((1, 1, 1, 2))  # 2: a gap before the record
                    text = None if chance.random() < 0.25 else f"t{chance.random()}"
                    writes.append(Write(partition, at[partition] - 1, chance.randint(0, 12), text, chance.randint(0, 9)))
            ledger = destination.ledger()[1]
            commit = commit_of(place, ledger, writes, rule, cuts=chance.randint(1, 4))
            zombie = commit_of(place, ledger, writes[:1], rule)
            fault = chance.choice(("", "before", "after_landed", ""))
            if fault:
                place.fail_next(fault)
            if fault == "before":
                with pytest.raises(DestinationError):
                    destination.commit(commit)
                assert contents(place) == oracle.rows
            done = destination.commit(commit)
            for write in sorted(writes, key=lambda w: (w.partition, w.offset)):
                oracle.apply(write)
            assert contents(place) == oracle.rows, (name, number)
            again = destination.commit(commit)  # already committed: the same result, and nothing changes
            assert again == done and contents(place) == oracle.rows
            with pytest.raises(Fenced):
                place.open(rule=rule).commit(zombie)
            total += done.commit.totals
            assert sum(int(str(v["inserted"])) for v in done.commit.metadata.values()) == done.commit.totals.inserted
        found = {field: getattr(total, field) for field in ("inserted", "updated", "deleted", "ignored")}
        assert {**found, "dead": total.dead_letters} == oracle.counts
        assert place.dead_letters() == destination.ledger()[1].dead_letters == oracle.counts["dead"]
        summary = destination.view("batches_summary")
        names = ("inserted", "updated", "deleted", "ignored")
        assert {n: sum(row[f"rows_{n}"] for row in summary) for n in names} == found
        audit = proof(destination)
        assert audit.ok, audit.problems
        assert destination.view("pipelines")[0]["rows"] == len(oracle.rows)

    def test_expressions_take_and_give_every_value(self, place: Place) -> None:
        """`excluded.x` is the value without an expression; `x` is the existing row's value."""
        if not place.expressions:
            return  # the test above covers their rejection
        names = [name for name, _ in EVERY if name != "id"]
        empty = {"id": 1, **dict.fromkeys(names)}
        new = KeyRule(("id",), "update", {name: f"excluded.{name}" for name in names})
        old = KeyRule(("id",), "update", {name: f"CASE WHEN excluded.id > 0 THEN every.{name} END" for name in names})
        place.open(table="every", rule=new).commit(begin("tweets", [0]))
        steps = [
            (KeyRule(("id",), "replace"), VALUES), (KeyRule(("id",), "replace"), {**empty, "id": 2}),
            (new, {**VALUES, "id": 2}), (old, empty), (new, {**VALUES, "id": 3}), (new, empty | {"id": 4}),
            (old, VALUES | {"id": 4}),
        ]  # fmt: skip
        for at, (rule, values) in enumerate(steps):
            destination = place.open(table="every", rule=rule)
            commit = batch(place, destination.ledger()[1], {0: at + 1}, EVERY, values)
            destination.commit(commit.stored({lane: replace(c, inserted=0) for lane, c in commit.counts.items()}))
        found = {row.pop("id"): {name: row[name] for name in names} for row in place.rows("every")}
        assert found[1] == found[2] == found[3]
        assert found[4] == dict.fromkeys(names) and None not in found[1].values()
        assert found[1]["v"] == VALUES["v"] and found[1]["y"] == VALUES["y"] and proof(destination).ok

    def test_an_expression_that_cannot_be_computed_writes_nothing(self, place: Place) -> None:
        if not place.expressions:
            return
        rule = KeyRule(("id",), "update", {"n": "CAST(excluded.text AS BIGINT)"})
        destination = begun(place, rule, 1)
        destination.commit(commit_of(place, destination.ledger()[1], [Write(0, 0, 1, "a")], rule))
        ledger, before = destination.ledger()[1], contents(place)
        with pytest.raises(DestinationError, match=r"Could not convert string .b. to INT64"):
            destination.commit(commit_of(place, ledger, [Write(0, 1, 2, "c"), Write(0, 2, 1, "b")], rule))
        assert (destination.ledger()[1], contents(place)) == (ledger, before) and proof(destination).ok

    def test_last_write_wins_within_a_batch_over_its_parts(self, place: Place) -> None:
        rule = RULES["replace"]
        destination = begun(place, rule, 1)
        writes = [Write(0, at, at % 3, f"t{at}") for at in range(30)]
        done = destination.commit(commit_of(place, destination.ledger()[1], writes, rule, cuts=4))
        assert {key: row[0] for key, row in contents(place).items()} == {0: "t27", 1: "t28", 2: "t29"}
        assert (done.commit.totals.inserted, done.commit.totals.updated) == (3, 27)

    def test_deleted_and_written_again_in_one_batch(self, place: Place) -> None:
        rule = RULES["update"]
        destination = begun(place, rule, 1)
        writes = [Write(0, 0, 1, "a"), Write(0, 1, 1, None), Write(0, 2, 2, None), Write(0, 3, 1, "b"), Write(0, 4, 3, "c")]
        done = destination.commit(commit_of(place, destination.ledger()[1], writes, rule)).commit.totals
        assert {key: row[0] for key, row in contents(place).items()} == {1: "b", 3: "c"}
        assert (done.inserted, done.updated, done.deleted, done.deletes) == (3, 0, 1, 2)
        destination.commit(commit_of(place, destination.ledger()[1], [Write(0, 5, 1, None), Write(0, 6, 3, None)], rule))
        assert contents(place) == {} and proof(destination).ok

    @pytest.mark.parametrize("name", ["replace", "ignore", "update", "skip"])
    def test_a_batch_of_tombstones_only(self, place: Place, name: str) -> None:
        rule = RULES[name]
        destination = begun(place, rule, 1)
        destination.commit(commit_of(place, destination.ledger()[1], [Write(0, 0, 1, "a"), Write(0, 1, 2, "b")], rule))
        gone = [Write(0, 2, 1, None), Write(0, 3, 1, None), Write(0, 4, 7, None)]
        done = destination.commit(commit_of(place, destination.ledger()[1], gone, rule)).commit.totals
        assert list(contents(place)) == [2] and (done.deleted, done.deletes) == (1, 3) and proof(destination).ok

    def test_duplicates_are_errors_where_nothing_else_is_said(self, place: Place) -> None:
        rule = KeyRule(("id",))
        destination = begun(place, rule, 1)
        destination.commit(commit_of(place, destination.ledger()[1], [Write(0, 0, 1, "a"), Write(0, 1, 2, "b")], rule))
        ledger, before = destination.ledger()[1], contents(place)
        for writes in ([Write(0, 2, 3, "c"), Write(0, 3, 1, "d")], [Write(0, 2, 3, "c"), Write(0, 3, 3, "d")]):
            with pytest.raises(SchemaConflict, match="partition 0 offset 3"):
                destination.commit(commit_of(place, ledger, writes, rule))
        assert (destination.ledger()[1], contents(place)) == (ledger, before) and proof(destination).ok

    def test_duplicates_are_kept_whole(self, place: Place) -> None:
        rule = RULES["dead_letter"]
        destination = begun(place, rule, 1)
        writes = [Write(0, 0, 1, "a"), Write(0, 1, 1, "b"), Write(0, 2, 2, "c")]
        destination.commit(commit_of(place, destination.ledger()[1], writes, rule))
        (letter,) = destination.view("errors")
        assert (letter["stage"], letter["topic"], letter["partition"], letter["offset"]) == ("duplicate_key", "tweets", 0, 1)
        assert (bytes(letter["key"]), bytes(letter["load_data_line"])) == (b"k", b"v1")
        assert contents(place)[1][0] == "a" and proof(destination).ok

    def test_verify_sees_what_others_change(self, place: Place) -> None:
        rule = RULES["replace"]
        writes = [Write(0, at, at % 7, f"t{at}") for at in range(30)]
        destination = begun(place, rule, 1)
        destination.commit(commit_of(place, destination.ledger()[1], writes, rule))
        assert proof(destination).ok
        place.delete_row(0, 29)
        assert any("found 6 in the table" in problem for problem in proof(destination).problems)
        place.double_row(0, 28)  # restores the number of rows
        problems = proof(destination).problems
        assert any("sum of their offsets" in p for p in problems) and any("more than once" in p for p in problems)

    @pytest.mark.parametrize("pipeline", ["tweets", "other"])
    def test_a_row_that_is_missing_before_the_key_stays_missing(self, place: Place, pipeline: str) -> None:
        plain, rule = loaded(place), RULES["replace"]
        place.delete_row(1, 3)
        assert not proof(plain).ok
        keyed = place.open(pipeline, rule=rule)
        if pipeline != "tweets":
            keyed.commit(begin(pipeline, [0]))
        commit = commit_of(place, keyed.ledger()[1], [Write(0, 10, 77, "x")], rule)
        keyed.commit(replace(commit, pipeline=pipeline))
        for destination in (plain, keyed):
            assert list(proof(destination).problems) == ["partition 1: expected 5 rows, found 4 in the table"]

    def test_a_table_that_holds_a_key_twice_is_refused(self, place: Place) -> None:
        rule = RULES["replace"]
        destination = begun(place, rule, 1)
        destination.commit(commit_of(place, destination.ledger()[1], [Write(0, 0, 1, "a")], rule))
        place.double_row(0, 0)
        with pytest.raises(SchemaConflict, match="more than once"):
            destination.commit(commit_of(place, destination.ledger()[1], [Write(0, 1, 1, "b")], rule))

    def test_key_of_the_rule_or_nothing(self, place: Place) -> None:
        destination = place.open(rule=KeyRule(("id",), "replace"))
        assert isinstance(destination, Keyed) and destination.key() == ("id",)
        unnamed = place.open(rule=KeyRule(None, "replace"))
        assert isinstance(unnamed, Keyed)
        with pytest.raises(InvalidPipeline, match="primary key"):
            unnamed.key()
