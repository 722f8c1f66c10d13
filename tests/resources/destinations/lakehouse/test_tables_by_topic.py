"""A table for each topic in a lake: a commit of each table, one after the other, and one ledger of all tables together."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kpipe import failpoints
from kpipe.batch.batch import Commit
from kpipe.errors import DestinationError, Fenced, InvalidPipeline, LedgerMismatch
from kpipe.ledger.ledger import Lane, LaneChange
from kpipe.maintenance.plan import Limits
from kpipe.schema.columns import Columns
from kpipe.tables.topic_tables import TopicTables
from kpipe.tables.upsert import KeyRule
from kpipe.topics import TopicId
from resources.destinations.iceberg import Shared, SQLite
from resources.destinations.lakehouse.folder import LocalFolder
from resources.destinations.lakehouse.ledger_file import folder_of
from resources.destinations.lakehouse.topics import KeyedTopicLakes, TopicLakes, TopicRegistry
from resources.testing.place import COLUMNS, live, source
from resources.testing.state import proof
from tests.resources.destinations.lake_place import DeltaPlace, IcebergPlace, ParquetPlace
from tests.resources.destinations.topic_batches import BLOG, PRICED, SHOP, TABLES, begun, commit, targets

PLACES: dict[str, Any] = {"delta": DeltaPlace, "iceberg": IcebergPlace, "parquet": ParquetPlace}
RULE = KeyRule(("id",), "replace")


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    yield PLACES[request.param](tmp_path)
    failpoints.arm(None)


@pytest.fixture(params=["delta", "iceberg"])
def keyed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    yield PLACES[request.param](tmp_path)
    failpoints.arm(None)


def opened(place: Any, template: str = "raw_{topic}", rule: KeyRule | None = None, pipeline: str = "tweets") -> Any:
    how = {"rule": rule} if rule is not None else {}
    registry = TopicRegistry(LocalFolder(place.folder / "_kpipe-topics"), pipeline)
    arguments = (lambda table: place.open(pipeline, table, **how), registry, template, pipeline, (place.staging,))
    return TopicLakes(*arguments) if rule is None else KeyedTopicLakes(*arguments, rule=rule)


def held(place: Any) -> list[int]:
    return [len(place.rows(table)) for table in TABLES.values()]


def next_offsets(destination: Any) -> dict[str, int]:
    return {where.topic.name: at for where, at in destination.ledger()[1].positions().items()}


def fails(destination: Any, whole: Commit, point: str, times: int = 1) -> None:
    failpoints.arm(failpoints.Fault(f"{point}:{times}:raise"))
    with pytest.raises((RuntimeError, DestinationError), match="KPIPE_FAULT"):
        destination.commit(whole)
    failpoints.arm(None)


def test_each_table_has_its_rows_and_its_part_of_the_ledger(place: Any) -> None:
    destination = begun(opened(place))
    assert isinstance(destination, TopicTables)
    assert destination.columns_of(list(TABLES.values())) == [None, None]
    assert targets(destination) == {}
    uid, ledger = destination.ledger()
    assert uid and ledger.seq == 1
    done = destination.commit(commit(place, destination, {SHOP: 5, BLOG: 3}, dead=(BLOG, 1)))
    assert (done.seq, done.commit.totals.rows, done.commit.totals.dead_letters) == (2, 7, 1)
    assert held(place) == [5, 2]
    assert destination.columns_of(list(TABLES.values())) == [COLUMNS, PRICED]
    assert targets(destination) == {"raw_web_blog": 2, "raw_web_shop": 5}
    # One topic alone: its table gets a column, the other one does not.
    wide = Columns((*COLUMNS.items, ("more", PRICED.items[1][1])))
    assert destination.commit(commit(place, destination, {SHOP: 6}, columns={SHOP: wide})).seq == 3
    other = opened(place)
    assert other.ledger() == destination.ledger() and other.ledger()[1].seq == 3
    assert other.columns_of(list(TABLES.values())) == [wide, PRICED]
    assert other.topics_written() == {"web-blog": "raw_web_blog", "web.shop": "raw_web_shop"}
    assert other.rows_of_tables() == {"raw_web_blog": 2, "raw_web_shop": 6}
    assert other.topics_of_tables() == {"raw_web_blog": ["web-blog"], "raw_web_shop": ["web.shop"]}
    assert [(entry.seq, entry.source.topic.name, entry.table) for entry in other.history()] == [
        (2, "web-blog", "raw_web_blog"), (2, "web.shop", "raw_web_shop"), (3, "web.shop", "raw_web_shop"),
    ]  # fmt: skip


def test_views_and_publications_are_those_of_the_pipeline(place: Any) -> None:
    destination = begun(opened(place))
    first = commit(place, destination, {SHOP: 5, BLOG: 3}, dead=(BLOG, 1))
    destination.commit(first)
    second = commit(place, destination, {SHOP: 6})
    destination.commit(second)
    (row,) = destination.view("pipelines")
    assert (row["seq"], row["rows"], row["dead_letters"], row["target_table"]) == (3, 8, 1, "raw_{topic}")
    assert [(row["seq"], row["rows_streamed"], row["dead_letters"]) for row in destination.view("batches_summary")] == [
        (3, 1, 0), (2, 8, 1),
    ]  # fmt: skip
    assert [(row["seq"], row["topic"], row["target_table"]) for row in destination.view("batches", 2)] == [
        (3, "web.shop", "raw_web_shop"), (2, "web-blog", "raw_web_blog"),
    ]  # fmt: skip
    assert [(row["topic"], row["cursor_offset"]) for row in destination.view("cursors")] == [("web-blog", 3), ("web.shop", 6)]
    destination.record_state("error", "the brokers do not answer", "BrokerUnreachable")
    errors = destination.view("errors")
    assert [(row["dead_letter"], row["topic"], row["offset"]) for row in errors] == [(False, None, None), (True, "web-blog", 1)]
    assert destination.view("pipelines")[0]["state"] == "error" and destination.clear_errors() == 1
    waiting = destination.unpublished()
    assert [(item.batch, item.seq, sorted(item.metadata)) for item in waiting] == [
        (first.id, 2, ["web-blog:0", "web.shop:0"]), (second.id, 3, ["web.shop:0"]),
    ]  # fmt: skip
    assert destination.unpublished(1) == waiting[:1]
    assert opened(place).published([waiting[0], replace(waiting[1], batch="x")]) == [first.id]
    assert destination.unpublished() == waiting[1:] and destination.published(waiting[:1]) == []
    facts = destination.trace("web.shop", 0, 5)
    assert [(reading.commit.seq, reading.entry.seq, reading.tables[0].at_offset) for reading in facts.readings] == [(3, 3, 1)]
    assert not facts.decisions and not destination.trace("other", 0, 1).readings
    assert [(row.topic, row.offset) for row in destination.rows_at("raw_web_blog", {"id": "2"}, 5)] == [("web-blog", 2)]
    with pytest.raises(InvalidPipeline, match="raw_web_shop"):
        destination.rows_at("raw_other", {"id": "2"}, 5)


def test_a_part_that_lands_after_the_batch_was_read_is_published_later(place: Any) -> None:
    destination = begun(opened(place))
    whole = commit(place, destination, {SHOP: 5, BLOG: 3})
    publisher, read = opened(place), []

    def between(point: str) -> None:
        if point == "commit.next_table":
            read.extend(publisher.unpublished())

    failpoints.arm(between)
    destination.commit(whole)
    failpoints.arm(None)
    assert [sorted(item.metadata) for item in read] == [["web-blog:0"]]
    assert publisher.published(read) == [whole.id]
    (left,) = opened(place).unpublished()
    assert (left.batch, left.seq, sorted(left.metadata)) == (whole.id, read[0].seq, ["web.shop:0"])
    assert publisher.published([left]) == [whole.id] and not opened(place).unpublished()


@pytest.mark.parametrize(("point", "times", "landed"), [
    ("commit.before", 1, []), ("commit.before", 2, ["web-blog"]), ("commit.next_table", 1, ["web-blog"]),
    ("commit.history", 2, ["web-blog"]), ("commit.open", 2, ["web-blog"]),
])  # fmt: skip
def test_a_batch_that_ended_between_two_tables_continues_from_each_table(
    place: Any, point: str, times: int, landed: list[str]
) -> None:
    destination = begun(opened(place))
    destination.commit(commit(place, destination, {SHOP: 2, BLOG: 2}))
    fails(destination, commit(place, destination, {SHOP: 5, BLOG: 4}, dead=(SHOP, 3)), point, times)
    after = opened(place)
    assert next_offsets(after) == {"web-blog": 4 if landed else 2, "web.shop": 2}
    assert held(place) == [2, 4 if landed else 2]
    assert targets(after) == {"raw_web_blog": 4 if landed else 2, "raw_web_shop": 2}
    ends = {SHOP: 7} if landed else {SHOP: 7, BLOG: 4}
    after.commit(commit(place, after, ends, dead=(SHOP, 3)))
    assert targets(after) == {"raw_web_blog": 4, "raw_web_shop": 6}
    assert [row["id"] for row in place.rows("raw_web_shop")] == [0, 1, 2, 4, 5, 6]
    found = proof(after, True)
    assert (found.span, found.counts.dead_letters) == (11, 1)


def test_the_same_commit_again_adds_the_missing_tables(place: Any) -> None:
    destination = begun(opened(place))
    whole = commit(place, destination, {SHOP: 5, BLOG: 4})
    fails(destination, whole, "commit.next_table")
    done = destination.commit(whole)
    assert done.commit.totals.rows == 9 and done.seq == 2
    assert opened(place).commit(whole).seq == 2
    assert targets(destination) == {"raw_web_blog": 4, "raw_web_shop": 5}
    assert [item.batch for item in destination.unpublished()] == [whole.id]
    (row,) = destination.view("batches_summary")
    assert (row["rows_streamed"], row["num_partitions"]) == (9, 2)


def test_an_answer_that_is_lost_at_the_second_table(place: Any) -> None:
    destination = begun(opened(place))
    failpoints.arm(failpoints.Fault("commit.after:2:raise"))  # the second table's, after it has landed
    destination.commit(commit(place, destination, {SHOP: 5, BLOG: 4}))
    assert targets(destination) == {"raw_web_blog": 4, "raw_web_shop": 5}


def test_of_two_runs_each_table_takes_one(place: Any) -> None:
    destination, other = begun(opened(place)), opened(place)
    first, second = commit(place, destination, {SHOP: 5, BLOG: 3}), commit(place, other, {SHOP: 4})
    other.commit(second)
    with pytest.raises(Fenced, match="1 of 2 tables of the batch are committed"):
        destination.commit(first)
    assert targets(destination) == {"raw_web_blog": 3, "raw_web_shop": 4}
    destination.commit(commit(place, destination, {SHOP: 6, BLOG: 4}))
    assert targets(other) == {"raw_web_blog": 4, "raw_web_shop": 6}
    assert [entry.seq for entry in other.history()] == sorted(entry.seq for entry in other.history())


def test_a_decision_without_lanes_and_a_topic_that_appears(place: Any) -> None:
    destination = begun(opened(place))
    destination.commit(Commit(uuid.uuid4().hex, "tweets", (), kind="accept_ledger", note="accepted by me"))
    assert destination.ledger()[1].seq == 2
    news = TopicId("cluster-1", "id-news", "news")
    lane = LaneChange(None, Lane(source(0, news), 3, 3))
    destination.commit(Commit(uuid.uuid4().hex, "tweets", (lane,), kind="begin", note="begin: news/0 at 3"))
    assert next_offsets(destination) == {"news": 3, "web-blog": 0, "web.shop": 0}
    destination.commit(commit(place, destination, {news: 5}, columns={news: COLUMNS}, tables={**TABLES, news: "raw_news"}))
    assert targets(opened(place)) == {"raw_news": 2}
    # The topic vanishes: its table and its proof stay.
    ledger = destination.ledger()[1]
    gone = LaneChange(live(ledger, 0, news), replace(live(ledger, 0, news), end=5))
    destination.commit(Commit(uuid.uuid4().hex, "tweets", (gone,), kind="retire", note="retire: news/0"))
    assert targets(opened(place)) == {"raw_news": 2}


def test_a_table_that_was_changed_or_is_missing(place: Any) -> None:
    destination = begun(opened(place))
    destination.commit(commit(place, destination, {SHOP: 5, BLOG: 3}))
    if isinstance(place, DeltaPlace):
        place.delta("raw_web_blog").delete("id = 1")
    elif isinstance(place, IcebergPlace):
        place.iceberg("raw_web_blog").delete("id == 1")
    else:
        next((place.folder / "raw_web_blog").glob("*.parquet")).unlink()
        with pytest.raises(DestinationError):
            proof(opened(place), True)
        return
    found = proof(opened(place), True)
    assert found.problems and all(text.startswith("table raw_web_blog: ") for text in found.problems)
    assert found.partitions["web.shop:0"]["rows_found"] == 5


def test_the_list_of_topics_cannot_lose_one(place: Any) -> None:
    destination = begun(opened(place))
    destination.commit(commit(place, destination, {SHOP: 5, BLOG: 3}))
    own = place.folder / "_kpipe-topics" / folder_of("tweets") / "topics"
    names = sorted(path.name for path in own.glob("*.json"))
    assert names == ["000001.json", "000002.json"]
    (own / "000001.json").rename(own / "kept")
    with pytest.raises(LedgerMismatch, match="numbered"):
        opened(place).ledger()
    (own / "000001.json").write_text("[]")
    (own / "kept").unlink()
    with pytest.raises(LedgerMismatch, match=r"000001\.json was not written by kpipe"):
        opened(place).ledger()
    with pytest.raises(LedgerMismatch, match="changed by hand"):
        opened(place).recount()


def test_edits_of_the_template_and_topics_of_one_name(place: Any) -> None:
    destination = begun(opened(place))
    destination.commit(commit(place, destination, {SHOP: 5, BLOG: 3}))
    with pytest.raises(InvalidPipeline, match=r"web-blog was loaded into table raw_web_blog.*new_\{topic\}"):
        opened(place, "new_{topic}").ledger()
    with pytest.raises(LedgerMismatch, match="the ledger of one topic only"):
        place.open(table="raw_web_shop").ledger()
    twin = TopicId("cluster-1", "id-twin", "web_shop")
    with pytest.raises(InvalidPipeline, match=r"web.shop and web_shop"):
        destination.commit(Commit("t" * 32, "tweets", (LaneChange(None, Lane(source(0, twin), 0, 0)),), kind="begin"))
    one = place.open("one", "raw_web_one")
    one.commit(Commit("o" * 32, "one", (LaneChange(None, Lane(source(0, SHOP), 0, 0)),), kind="begin", note="begin"))
    topic = TopicId("cluster-1", "id-one", "web.one")
    many = opened(place, pipeline="one")
    with pytest.raises(LedgerMismatch, match="the ledger of all topics"):
        many.commit(Commit("p" * 32, "one", (LaneChange(None, Lane(source(0, topic), 0, 0)),), kind="begin", note="begin"))


def test_two_pipelines_write_the_same_tables(place: Any) -> None:
    mine, other = begun(opened(place)), opened(place, pipeline="more")
    changes = tuple(LaneChange(None, Lane(source(1, topic), 0, 0)) for topic in TABLES)
    other.commit(Commit(uuid.uuid4().hex, "more", changes, kind="begin", note="begin"))
    mine.commit(commit(place, mine, {SHOP: 5, BLOG: 3}))
    assert targets(mine) == {"raw_web_blog": 3, "raw_web_shop": 5}
    assert proof(other, True).ok
    assert mine.ledger()[0] != other.ledger()[0]


def test_rows_with_a_key_in_each_table(keyed: Any) -> None:
    destination = begun(opened(keyed, rule=RULE))
    assert destination.key() == ("id",)
    done = destination.commit(commit(keyed, destination, {SHOP: 5, BLOG: 3}, keyed=True))
    assert {lane[0].topic.name: counts.inserted for lane, counts in done.commit.counts.items()} == {"web.shop": 5, "web-blog": 3}
    again = commit(keyed, destination, {SHOP: 8, BLOG: 5}, keyed=True)
    fails(destination, again, "commit.next_table")
    after = opened(keyed, rule=RULE)
    assert targets(after) == {"raw_web_blog": 5, "raw_web_shop": 5}
    done = after.commit(again)
    assert {lane[0].topic.name: counts.inserted for lane, counts in done.commit.counts.items()} == {"web.shop": 3, "web-blog": 2}
    assert targets(after) == {"raw_web_blog": 5, "raw_web_shop": 8}
    assert after.rows_of_tables() == {"raw_web_blog": 5, "raw_web_shop": 8}


def test_a_catalogue_is_opened_once(tmp_path: Path) -> None:
    place = IcebergPlace(tmp_path)
    shared, folder = Shared(place.lake()._catalogue), LocalFolder(place.folder)
    assert not shared.exists() and shared.place == ""
    assert shared.opened(folder) is shared.opened(folder) and shared.exists()


def test_each_table_is_maintained_and_keeps_its_part_of_the_ledger(keyed: Any) -> None:
    destination = begun(opened(keyed, rule=RULE))
    for end in range(1, 7):
        destination.commit(commit(keyed, destination, {SHOP: 5 * end, BLOG: 3 * end}, keyed=True))
    before, ledger = [keyed.rows(table) for table in TABLES.values()], destination.ledger()
    said: list[str] = []
    limits = Limits(min_input_files=2)
    assert destination.maintain(limits, keyed.folder / "scratch", dry_run=True).rewritten == 12
    done = opened(keyed, rule=RULE).maintain(limits, keyed.folder / "scratch", note=said.append)
    assert (done.commits, done.files_before, done.files_after) == (2, 12, 2)
    assert [line.split(":")[0] for line in said] == sorted(TABLES.values())
    assert [keyed.rows(table) for table in TABLES.values()] == before
    assert opened(keyed, rule=RULE).ledger() == ledger and proof(destination).ok
    destination.commit(commit(keyed, destination, {SHOP: 35, BLOG: 20}, keyed=True))
    assert held(keyed) == [35, 20] and proof(destination).ok


def test_a_pipeline_without_tables_has_nothing_to_maintain(place: Any) -> None:
    with pytest.raises(InvalidPipeline, match="nothing committed yet"):
        opened(place).maintain(Limits(), place.folder / "scratch")


def test_a_dropped_table_is_missing_although_others_have_later_commits(place: Any) -> None:
    """Delta's and Parquet's ledgers are in the folder of the table, so nothing there shows that it was read."""
    destination = begun(opened(place))
    destination.commit(commit(place, destination, {SHOP: 5, BLOG: 3}))
    destination.commit(commit(place, destination, {SHOP: 9}))
    if isinstance(place, IcebergPlace):
        SQLite(place.folder).opened(LocalFolder(place.folder)).drop_table(f"default.{TABLES[BLOG]}")
    else:
        shutil.rmtree(place.folder / TABLES[BLOG])
    for ask in (destination.ledger, opened(place).ledger, lambda: proof(opened(place), True)):
        with pytest.raises(LedgerMismatch, match=f"{TABLES[BLOG]}.* is missing"):
            ask()


def test_a_table_is_marked_by_the_next_run(place: Any) -> None:
    """The mark is missing after a kill between commit and mark, and in folders of earlier versions."""
    destination = begun(opened(place))
    marks = place.folder / "_kpipe-topics" / folder_of("tweets") / "committed"
    assert sorted(path.name for path in marks.iterdir()) == ["000001.json", "000002.json"]
    shutil.rmtree(marks)
    assert opened(place).ledger() == destination.ledger() and not marks.exists()
    opened(place).record_state("running")
    assert len(list(marks.iterdir())) == 2
