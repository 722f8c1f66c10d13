"""Write, audit, publish: what readers of main see, whatever becomes of a batch on its branch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kpipe import failpoints
from kpipe.definition.lakehouse_options import Part
from kpipe.definition.pipeline import Pipeline
from kpipe.errors import AuditFailed, Fenced, InvalidPipeline, SchemaConflict
from kpipe.schema.columns import Columns
from resources.destinations import open_destination
from resources.destinations.iceberg import Audit, IcebergLake, SQLite
from resources.destinations.lakehouse.folder import LocalFolder
from resources.home import Home
from resources.testing.conformance import Conformance
from resources.testing.place import COLUMNS, batch, begin
from resources.testing.state import begun, positions, proof
from tests.resources.destinations.lake_place import IcebergPlace, RestIcebergPlace, killed

CHECKS = {"small": "id < 1000000 OR id % 100 <> 17", "texts": "text LIKE 't%'"}
BRANCH = "kpipe_audit_tweets"
WIDE = Columns((*COLUMNS, *Columns.of({"extra": "JSON"})))


class AuditedPlace(IcebergPlace):
    checks: Mapping[str, str] = CHECKS

    def lake(self, table: str = "tweets") -> IcebergLake:
        return IcebergLake(LocalFolder(self.folder), table, SQLite(self.folder), audit=Audit(self.checks))


class AuditedRestPlace(RestIcebergPlace):
    def lake(self, table: str = "tweets") -> IcebergLake:
        plain = super().lake(table)
        return IcebergLake(LocalFolder(self.folder), table, plain._catalogue, self.namespace, Audit(CHECKS))


class DividedPlace(AuditedPlace):
    checks: Mapping[str, str] = {"any": "id >= 0"}

    def lake(self, table: str = "tweets") -> IcebergLake:
        audit, parts = Audit(self.checks), (Part("text", ""),)
        return IcebergLake(LocalFolder(self.folder), table, SQLite(self.folder), audit=audit, parts=parts)


@pytest.fixture
def place(tmp_path: Path) -> AuditedPlace:
    return AuditedPlace(tmp_path)


@pytest.mark.parametrize("kind", ["sqlite", "rest"])
def test_only_what_passes_is_published(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """A batch that fails leaves main, its columns and the offsets; its rows are on the branch; the next one replaces them."""
    place = AuditedPlace(tmp_path) if kind == "sqlite" else AuditedRestPlace(tmp_path, request.getfixturevalue("rest"))
    destination = begun(place)
    destination.commit(batch(place, destination.ledger()[1], {0: 10, 1: 5}))
    assert BRANCH not in place.iceberg().metadata.refs and len(place.rows()) == 15
    before = place.iceberg().metadata
    bad = batch(place, destination.ledger()[1], {1: 20}, WIDE, {"id": 1_000_017, "text": "x", "extra": "{}"}, dead=[(1, 7)])
    with pytest.raises(AuditFailed) as caught:
        destination.commit(bad)
    said = "check small: 14 of 14 rows fail, the first at partition 1, offset 5; check texts: 14 of 14 rows fail"
    assert said in caught.value.what and BRANCH in caught.value.hint
    after = place.iceberg()
    assert after.metadata.refs["main"] == before.refs["main"] and after.schema() == before.schema()
    assert positions(place.open()) == {0: 10, 1: 5} and len(place.rows()) == 15 and proof(place.open()).ok
    assert place.dead_letters() == 0 and place.open().view("errors") == []
    branch = after.scan(snapshot_id=after.metadata.refs[BRANCH].snapshot_id).to_arrow()
    assert branch.num_rows == 29 and branch["extra"].drop_null().to_pylist() == ["{}"] * 14
    good = batch(place, destination.ledger()[1], {1: 12}, WIDE, {"id": 3, "text": "t", "extra": "[]"}, dead=[(1, 7)])
    assert destination.commit(good).seq == 3
    assert positions(place.open()) == {0: 10, 1: 12} and len(place.rows()) == 21 and proof(place.open()).ok
    assert BRANCH not in place.iceberg().metadata.refs and dict(place.open().columns() or ())["extra"] == dict(WIDE)["extra"]
    assert len(place.open().view("errors")) == 1


@pytest.mark.parametrize("point", ["commit.before", "commit.branch", "commit.audit", "commit.after"])
@pytest.mark.parametrize("passes", [True, False])
def test_killed_at_each_step(place: AuditedPlace, point: str, passes: bool) -> None:
    destination = begun(place)
    destination.commit(batch(place, destination.ledger()[1], {0: 10}))
    text = {} if passes else {"values": {"id": 1, "text": "bad"}}
    commit = batch(place, destination.ledger()[1], {0: 20}, dead=[(0, 15)], **text)
    if passes or point != "commit.after":
        killed(place, commit, point)
    landed = passes and point == "commit.after"
    assert positions(place.open()) == {0: 20 if landed else 10, 1: 0}
    assert (len(place.rows()), place.dead_letters()) == ((19, 1) if landed else (10, 0)) and proof(place.open()).ok
    if passes:
        assert place.open().commit(commit).seq == 3
        assert (len(place.rows()), place.dead_letters()) == (19, 1) and proof(place.open()).ok
        assert BRANCH not in place.iceberg().metadata.refs
    else:
        with pytest.raises(AuditFailed, match="check texts: 9 of 9 rows fail"):
            place.open().commit(commit)
        assert len(place.rows()) == 10


def test_zombie_that_wakes_after_its_audit_is_fenced(place: AuditedPlace) -> None:
    """It has its rows on the branch and knows that they are good; meanwhile a successor has committed."""
    zombie = begun(place)
    late, done = batch(place, zombie.ledger()[1], {0: 20}), []

    def overtaken(point: str) -> None:
        if point == "commit.audit" and not done:
            done.append(point)
            successor = place.open()
            successor.commit(batch(place, successor.ledger()[1], {0: 11}))

    failpoints.arm(overtaken)
    with pytest.raises(Fenced):
        zombie.commit(late)
    assert done and len(place.rows()) == 11 and positions(place.open()) == {0: 11, 1: 0} and proof(place.open()).ok


@pytest.mark.parametrize("at", [("commit.divided",), ("commit.before",), ("commit.divided", "commit.audit")])
def test_zombie_that_has_partitioned_the_table_is_fenced(tmp_path: Path, at: tuple[str, ...]) -> None:
    """The partitioning is a commit of its own; a successor publishes before, after, or between it and the zombie's rows."""
    place, reached = DividedPlace(tmp_path), list[str]()
    zombie = begun(place)
    late = batch(place, zombie.ledger()[1], {0: 20}, values={"id": 1, "text": "t"})

    def overtaken(point: str) -> None:
        if point in at and point not in reached:
            reached.append(point)
            if point == at[-1]:
                successor = place.open()
                successor.commit(batch(place, successor.ledger()[1], {0: 11}, values={"id": 1, "text": "t"}))

    failpoints.arm(overtaken)
    with pytest.raises(Fenced):
        zombie.commit(late)
    assert reached == [*at] and [row["_kafka_offset"] for row in place.rows()] == [*range(11)]
    assert positions(place.open()) == {0: 11, 1: 0} and proof(place.open()).ok


def test_killed_between_the_partitioning_and_the_rows(tmp_path: Path) -> None:
    place = DividedPlace(tmp_path)
    destination = begun(place)
    commit = batch(place, destination.ledger()[1], {0: 20}, values={"id": 1, "text": "t"})
    killed(place, commit, "commit.divided")
    assert len(place.iceberg().spec().fields) == 1 and place.rows() == [] and positions(place.open()) == {0: 0, 1: 0}
    assert place.open().commit(commit).seq == 2
    assert len(place.rows()) == 20 and positions(place.open()) == {0: 20, 1: 0} and proof(place.open()).ok


def offer(place: AuditedPlace, to: int, *names: str, fails: bool = False, fields: str = "a") -> None:
    """Commit a batch with these columns."""
    values = {"id": 1, "text": "bad" if fails else "t", **{name: dict.fromkeys(fields, 7) for name in names}}
    columns = Columns(
        (*COLUMNS, *Columns.of(dict.fromkeys(names, f"STRUCT({', '.join(f'{field} BIGINT' for field in fields)})")))
    )
    destination = place.open()
    destination.commit(batch(place, destination.ledger()[1], {0: to}, columns, values))


def test_columns_of_a_rejected_batch_may_come_back_one_by_one(place: AuditedPlace) -> None:
    begun(place)
    offer(place, 2)
    for _ in range(2):
        with pytest.raises(AuditFailed):
            offer(place, 10, "c", "d", fails=True)
    offer(place, 4, "c")
    with pytest.raises(AuditFailed):
        offer(place, 10, "c", fields="ab", fails=True)
    offer(place, 6, "c", "d")
    offer(place, 8, "c", fields="ab")
    assert [(row["c"], row["d"]) for row in place.rows()] == [
        *[(None, None)] * 2,
        *[({"a": 7, "b": None}, None)] * 2,
        *[({"a": 7, "b": None}, {"a": 7})] * 2,
        *[({"a": 7, "b": 7}, None)] * 2,
    ]
    assert proof(place.open()).ok


def test_a_published_column_that_was_rejected_before_does_not_come_back(place: AuditedPlace) -> None:
    begun(place)
    with pytest.raises(AuditFailed):
        offer(place, 2, "c", fails=True)
    offer(place, 2, "c")
    with place.iceberg().update_schema() as update:
        update.delete_column("c")
    for _ in range(2):
        with pytest.raises(SchemaConflict, match="column c: another program has renamed or dropped it"):
            offer(place, 4, "c")
    offer(place, 4)
    assert len(place.rows()) == 4 and proof(place.open()).ok


def test_others_that_append_meanwhile_do_no_harm(place: AuditedPlace) -> None:
    destination, done = begun(place), []
    destination.commit(batch(place, destination.ledger()[1], {0: 10}))

    def appended(point: str) -> None:
        if point == "commit.audit" and not done:
            done.append(point)
            place.iceberg().append(place.iceberg().scan().to_arrow().slice(0, 1))

    failpoints.arm(appended)
    destination.commit(batch(place, destination.ledger()[1], {0: 20}))
    assert done and len(place.rows()) == 21 and positions(place.open()) == {0: 20, 1: 0}


@pytest.mark.parametrize(
    ("text", "rows"),
    [("NULL", 5), ("_kafka_offset <> 3", 1), ("CAST(text AS BIGINT) > 0", 5), ("length(text) = 2", 0)],
)
def test_what_a_row_must_be(place: AuditedPlace, text: str, rows: int) -> None:
    """True, and nothing else: NULL and an expression that fails for the row are not."""
    place.checks = {"c": text}
    destination = begun(place)
    commit = batch(place, destination.ledger()[1], {0: 5})
    if rows:
        with pytest.raises(AuditFailed, match=f"check c: {rows} of 5 rows fail"):
            destination.commit(commit)
    else:
        assert destination.commit(commit).seq == 2
    assert len(place.rows()) == (0 if rows else 5)


def test_checks_that_cannot_be_are_refused(place: AuditedPlace, tmp_path: Path) -> None:
    place.checks = {"c": "nothing > 1"}
    destination = begun(place)
    with pytest.raises(InvalidPipeline, match=r"into.audit.c: .*nothing"):
        destination.commit(batch(place, destination.ledger()[1], {0: 5}))
    assert place.rows() == [] and positions(place.open()) == {0: 0, 1: 0}

    def opened(**into: Any) -> None:
        fields = {"type": "iceberg", "table": "t", **into}
        source = {"brokers": "b:9092", "topic": "t"}
        open_destination(Pipeline.model_validate({"name": "t", "source": source, "into": fields}), Home.at(tmp_path))

    opened(audit={"c": "a > 1"})
    for audit, said in (({"c": "(SELECT 1)"}, r"into.audit.c: a query is not allowed"), ({"c d": "a"}, "a check is a name")):
        with pytest.raises((InvalidPipeline, ValueError), match=said):
            opened(audit=audit)
    with pytest.raises(ValueError, match="audit belongs to type: iceberg"):
        opened(type="delta", audit={"c": "a > 1"})


class Fine(AuditedPlace):
    checks: Mapping[str, str] = {"any": "_kafka_partition IS NOT NULL OR true"}


@pytest.mark.chaos
class TestAudited(Conformance):
    @pytest.fixture
    def place(self, tmp_path: Path) -> Fine:
        return Fine(tmp_path)


def test_since_when_batches_have_passed_an_expression(place: AuditedPlace) -> None:
    """Of each pipeline by itself: its other writers, a changed expression, and batches without checks are distinguished."""

    def passed(pipeline: str, **checks: str) -> Mapping[str, int]:
        place.checks = checks
        state = place.lake().load()
        assert state is not None
        return place.lake().passed_since(state, pipeline)

    def load(pipeline: str, end: int, **checks: str) -> None:
        place.checks = checks
        destination = place.open(pipeline)
        destination.commit(batch(place, destination.ledger()[1], {0: end}))

    small, texts = "id < 1000", "text LIKE 't%'"
    begun(place)
    assert passed("tweets", small=small) == {}
    load("tweets", 2, small=small)
    load("tweets", 4, small=small, texts=texts)
    assert passed("tweets", renamed=small, texts=texts, other="id < 999") == {"renamed": 2, "texts": 3}
    other = place.open("more")
    other.commit(begin("more", [0]))
    assert passed("tweets", small=small) == {"small": 2} and passed("more", small=small) == {}
    load("tweets", 6, texts=texts)
    load("tweets", 8, small=small, texts=texts)
    assert passed("tweets", small=small, texts=texts) == {"small": 5, "texts": 3}
    load("tweets", 10)
    assert passed("tweets", small=small, texts=texts) == {}
    assert proof(place.open()).ok
