"""A table for each topic in a database: one commit for all of them, each with its own columns, proof and clearing."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kpipe import failpoints
from kpipe.batch.batch import Commit, Mark, TableWrite
from kpipe.batch.counts import Counts
from kpipe.errors import DestinationError, Fenced, LedgerMismatch, SchemaConflict
from kpipe.schema.columns import Columns
from kpipe.tables.changes import EMPTIES
from kpipe.tables.topic_tables import TopicTables
from kpipe.tables.upsert import KeyRule
from resources.testing.place import COLUMNS, COORDINATES, Place, live, read_step, source
from resources.testing.state import proof
from tests.resources.destinations.databases import database
from tests.resources.destinations.topic_batches import BLOG, PRICED, SHOP, TABLES, begun, commit, targets

pytestmark = pytest.mark.drawn(1)


@pytest.fixture(params=["duckdb", "postgres", "mysql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    yield database(request, tmp_path)
    failpoints.arm(None)


def opened(place: Place, rule: KeyRule | None = None) -> Any:
    return begun(place.open(table="raw_{topic}", rule=rule))


def test_tables_of_a_batch_are_committed_together(place: Place) -> None:
    destination = opened(place)
    assert isinstance(destination, TopicTables)
    assert destination.columns_of(list(TABLES.values())) == [None, None]
    assert targets(destination) == {}
    first = commit(place, destination, {SHOP: 5, BLOG: 3}, dead=(BLOG, 1))
    place.fail_next("before")
    with pytest.raises(DestinationError):
        destination.commit(first)
    assert place.rows("raw_web_shop") == [] == place.rows("raw_web_blog")
    done = destination.commit(first)
    assert done.commit.totals.rows == 7 and done.commit.totals.dead_letters == 1
    assert [len(place.rows(table)) for table in TABLES.values()] == [5, 2]
    assert destination.columns_of(list(TABLES.values())) == [COLUMNS, PRICED]
    assert targets(destination) == {"raw_web_blog": 2, "raw_web_shop": 5}
    assert proof(destination, True).partitions["web-blog:0"]["rows_found"] == 2
    # One topic alone; its table gets a column, the other one does not.
    wide = Columns((*COLUMNS.items, ("more", PRICED.items[1][1])))
    destination.commit(commit(place, destination, {SHOP: 6}, columns={SHOP: wide}))
    assert destination.columns_of(list(TABLES.values())) == [wide, PRICED]
    assert destination.topics_written() == {"web-blog": "raw_web_blog", "web.shop": "raw_web_shop"}
    assert destination.rows_of_tables() == {"raw_web_blog": 2, "raw_web_shop": 6}
    assert destination.topics_of_tables() == {"raw_web_blog": ["web-blog"], "raw_web_shop": ["web.shop"]}
    assert {(row["topic"], row["target_table"]) for row in destination.view("batches")} >= {("web.shop", "raw_web_shop")}
    with pytest.raises(Fenced):
        destination.commit(replace(first, id=uuid.uuid4().hex))


def test_a_changed_table_is_noticed_in_that_table(place: Place) -> None:
    destination = opened(place)
    destination.commit(commit(place, destination, {SHOP: 5, BLOG: 3}))
    place.sql(f"DELETE FROM {place.name('raw_web_blog')} WHERE id = 1")
    problems = proof(destination, True).problems
    assert problems and all(text.startswith("table raw_web_blog: ") for text in problems)
    place.sql(f"DROP TABLE {place.name('raw_web_blog')}")
    assert any("expected 3 rows, found 0" in text for text in proof(destination, True).problems)
    with pytest.raises(LedgerMismatch, match=r"raw_web_blog.*3 rows"):
        destination.columns_of(["raw_web_blog"])
    with pytest.raises(LedgerMismatch):
        destination.commit(commit(place, destination, {SHOP: 6, BLOG: 4}))
    assert len(place.rows("raw_web_shop")) == 5


def test_one_table_is_cleared(place: Place) -> None:
    destination = opened(place)
    destination.commit(commit(place, destination, {SHOP: 5, BLOG: 3}))
    done = destination.clear(["raw_web_shop"], "me")
    assert (done.rows, done.pipelines) == ({"raw_web_shop": 5}, {"tweets": ["web.shop/0 [0, 5)"]})
    assert targets(destination) == {"raw_web_blog": 3, "raw_web_shop": 0}
    assert destination.topics_of_tables() == {"raw_web_blog": ["web-blog"]}
    destination.commit(commit(place, destination, {SHOP: 7, BLOG: 4}))
    assert targets(destination) == {"raw_web_blog": 4, "raw_web_shop": 2}
    assert destination.topics_of_tables() == {"raw_web_blog": ["web-blog"], "raw_web_shop": ["web.shop"]}


def test_clearing_one_table_leaves_the_dead_letters_of_other_topics(place: Place) -> None:
    """A batch has ranges of both topics: its id alone does not tell whose letter it is."""
    destination = opened(place)
    destination.commit(commit(place, destination, {SHOP: 5, BLOG: 3}, dead=(BLOG, 1)))
    destination.clear(["raw_web_shop"], "me")
    assert targets(destination) == {"raw_web_blog": 2, "raw_web_shop": 0}
    assert [(letter.source.topic, letter.offset) for letter in destination.letters(0, 10)] == [(BLOG, 1)]
    assert destination.letters_behind(None) == 1, "errors.topic receives it"
    assert destination.view("pipelines")[0]["dead_letters"] == 1
    destination.clear(["raw_web_blog"], "me")
    assert proof(destination, True).ok and destination.letters(0, 10) == []
    assert destination.view("pipelines")[0]["dead_letters"] == 0


def test_a_table_of_records_with_several_rows_is_cleared_alone(place: Place) -> None:
    destination = opened(place)
    destination.commit(several_rows(commit(place, destination, {SHOP: 5, BLOG: 3})))
    done = destination.clear(["raw_web_shop"], "me")
    assert done.pipelines == {"tweets": ["web.shop/0 [0, 5)"]}
    assert targets(destination) == {"raw_web_blog": 3, "raw_web_shop": 0}
    destination.commit(several_rows(commit(place, destination, {SHOP: 7, BLOG: 4})))
    assert targets(destination) == {"raw_web_blog": 4, "raw_web_shop": 2}


def several_rows(made: Commit) -> Commit:
    """Count the rows by table, as of records that may give several rows."""
    marks = {step.lane.key: Mark(len(step.range), sum(range(step.range.start, step.range.end))) for step in made.steps}
    tables = [replace(write, marks={key: marks[key] for key in write.counts}) for write in made.tables]
    return replace(
        made, tables=tuple(tables), records={key: replace(item, given=item.messages) for key, item in made.records.items()}
    )


def test_a_table_with_a_dead_letter_only_is_its_topics(place: Place) -> None:
    """The record can become a row later."""
    destination = opened(place)
    destination.commit(commit(place, destination, {BLOG: 1}, dead=(BLOG, 0)))
    assert destination.topics_of_tables() == {"raw_web_blog": ["web-blog"]}


def test_an_edited_template_and_one_table_for_all(place: Place) -> None:
    destination = opened(place)
    destination.commit(commit(place, destination, {SHOP: 5, BLOG: 3}))
    other = place.open(table="new_{topic}")
    assert targets(other) == {"raw_web_blog": 3, "raw_web_shop": 5}
    names = {SHOP: "new_web_shop", BLOG: "new_web_blog"}
    other.commit(commit(place, other, {SHOP: 6, BLOG: 5}, tables=names))
    assert targets(other) == {"new_web_blog": 2, "new_web_shop": 1, "raw_web_blog": 3, "raw_web_shop": 5}
    one = place.open(table="web")
    found = proof(one, True)
    assert found.ok, found.problems
    assert found.targets["new_web_blog"] == {"rows": 2, "rows_found": 2}


def test_rows_with_a_key_in_each_table(place: Place) -> None:
    rule = KeyRule(("id",), "replace")
    destination = opened(place, rule)
    done = destination.commit(commit(place, destination, {SHOP: 5, BLOG: 3}, keyed=True))
    assert {lane[0].topic.name: counts.inserted for lane, counts in done.commit.counts.items()} == {"web.shop": 5, "web-blog": 3}
    assert targets(destination) == {"raw_web_blog": 3, "raw_web_shop": 5}
    again = commit(place, destination, {SHOP: 6, BLOG: 4}, keyed=True)
    place.fail_next("after_landed")
    done = destination.commit(again)
    assert [counts.inserted for counts in done.commit.counts.values()] == [1, 1]
    assert destination.commit(again).commit.counts == done.commit.counts
    assert destination.rows_of_tables() == {"raw_web_blog": 4, "raw_web_shop": 6}
    place.sql(f"DELETE FROM {place.name('raw_web_shop')} WHERE id = 4")
    assert all(text.startswith("table raw_web_shop: ") for text in proof(destination, True).problems)


def test_duplicates_of_each_table_become_dead_letters(place: Place) -> None:
    destination = opened(place, KeyRule(("id",), "error", duplicates="dead_letter"))
    done = destination.commit(commit(place, destination, {SHOP: 5, BLOG: 3}, dead=(SHOP, 4), keyed=True, pairs=True))
    assert {lane[0].topic.name: counts.dead_letters for lane, counts in done.commit.counts.items()} == {
        SHOP.name: 3,
        BLOG.name: 1,
    }
    letters = destination.letters(0, 10)  # a page has an offset once
    letters = [*letters, *destination.letters(letters[-1].id, 10)]
    found = sorted((letter.source.topic.name, letter.offset) for letter in letters)
    assert found == [(BLOG.name, 1), (SHOP.name, 1), (SHOP.name, 3), (SHOP.name, 4)]
    assert sorted(letter.id for letter in letters) == [1, 2, 3, 4]
    assert {letter.value for letter in letters} > {b"web.shop 1", b"web.shop 3", b"web-blog 1"}
    assert targets(destination) == {"raw_web_blog": 2, "raw_web_shop": 2}


def test_a_truncate_of_one_source_empties_its_table(place: Place) -> None:
    """Kafka orders its topic, which has one partition, whatever other topics the pipeline reads."""
    destination = opened(place, KeyRule(("id",), "replace", deletes=True))
    destination.commit(commit(place, destination, {SHOP: 5, BLOG: 3}, keyed=True))
    step = read_step(live(destination.ledger()[1], 0, SHOP), 6)
    fields = [("id", pa.int64()), (EMPTIES, pa.bool_()), *COORDINATES.items(), ("_kafka_topic", pa.string())]
    where = {"_kafka_partition": 0, "_kafka_offset": 5, "_kafka_timestamp": 5, "_kafka_topic": SHOP.name}
    deletes = (place.file([{"id": None, EMPTIES: True, **where}], pa.schema(fields)),)
    counts = {step.lane.key: Counts(deletes=1)}
    write = TableWrite(TABLES[SHOP], COLUMNS, (), deletes, counts)
    emptied = Commit(
        uuid.uuid4().hex, "tweets", (step.change,), steps=(step,), tables=(write,),
        records={step.lane.key: Counts(messages=1)}, ends={step.source: (0, 6)}, multi_topic=True,
    )  # fmt: skip
    destination.commit(emptied)
    assert [len(place.rows(table)) for table in TABLES.values()] == [0, 3]
    assert targets(destination) == {"raw_web_blog": 3, "raw_web_shop": 0} or proof(destination, True).ok


def test_rows_that_a_table_rejects_are_named_by_their_topic(place: Place) -> None:
    """Offsets of other topics are the same: the table tells which of them is meant."""
    destination = opened(place)
    place.sql(f"CREATE TABLE {place.name('raw_web_shop')} (id BIGINT, text VARCHAR(20) NOT NULL)")
    with pytest.raises(SchemaConflict) as caught:
        destination.commit(commit(place, destination, {SHOP: 2, BLOG: 2}))
    assert {found: set(offsets) for found, offsets in caught.value.refused.items()} == {source(0, SHOP): {0, 1}}
    assert place.rows("raw_web_blog") == []


def test_rows_that_a_table_of_several_topics_rejects_are_named_by_their_topic(place: Place) -> None:
    destination = begun(place.open(table="tweets"))
    place.sql(f"CREATE TABLE {place.name('tweets')} (id BIGINT, text VARCHAR(20), CHECK (id <> 1))")
    both = commit(place, destination, {SHOP: 3, BLOG: 2}, columns={BLOG: COLUMNS}, tables={SHOP: "tweets", BLOG: "tweets"})
    files = [file for write in both.tables for file in write.files]
    counts = {lane: found for write in both.tables for lane, found in write.counts.items()}
    with pytest.raises(SchemaConflict) as caught:
        destination.commit(replace(both, tables=(TableWrite("tweets", COLUMNS, tuple(files), counts=counts),)))
    named = {found: set(offsets) for found, offsets in caught.value.refused.items()}
    assert named == {source(0, SHOP): {1}, source(0, BLOG): {1}}
