"""Sums of the offsets of ranges: of those that earlier versions have written, and of retried dead letters."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kpipe.batch.batch import Mark
from kpipe.topics import TopicId
from resources.testing.counting import with_topic
from resources.testing.keyed import RULES, Write, commit_of
from resources.testing.keyed import begun as keyed_begun
from resources.testing.place import TOPIC, batch, begin
from resources.testing.state import begun, loaded, proof, reread
from tests.resources.destinations.place import DuckDBPlace


@pytest.fixture
def place(tmp_path: Path) -> DuckDBPlace:
    return DuckDBPlace(tmp_path)


def test_ranges_with_offsets_in_common_and_without_a_sum_are_not_proven(place: DuckDBPlace) -> None:
    """As earlier versions have written them: only the numbers of their rows can be compared."""
    destination, two = loaded(place, {0: 10}, gaps=[(0, 3)]), place.open("other")
    two.commit(begin("other", (0,)))
    two.commit(replace(batch(place, two.ledger()[1], {0: 8}).writing(marks={}), pipeline="other"))
    assert proof(destination).ok and not proof(destination).unproven
    place.sql("DELETE FROM kpipe_targets")
    for found in (proof(destination), proof(two)):
        assert found.ok and list(found.unproven) == ["tweets/0 [0, 10)"]
    place.sql("DELETE FROM tweets WHERE _kafka_offset = 2")
    assert not proof(destination).ok


def test_ranges_in_which_each_offset_gave_a_row_need_no_sum(place: DuckDBPlace) -> None:
    destination = loaded(place, {0: 10})
    reread(destination, 0)
    destination.commit(batch(place, destination.ledger()[1], {0: 10}, gaps=[(0, 3)]))
    assert place.sql("SELECT count(*) FROM kpipe_targets") == [(1,)]
    assert proof(destination).ok and not proof(destination).unproven


def test_a_wrong_sum_of_a_range_alone_is_found(place: DuckDBPlace) -> None:
    """A row that was moved to an offset without a record."""
    destination = loaded(place, {0: 10}, gaps=[(0, 3)])
    assert proof(destination).ok
    place.sql("UPDATE tweets SET _kafka_offset = 3 WHERE _kafka_offset = 4")
    assert not proof(destination).ok


def test_sums_beyond_64_bits(place: DuckDBPlace) -> None:
    destination = place.open()
    top = 2**62
    destination.commit(begin("tweets", (0,), at=top))
    full = batch(place, destination.ledger()[1], {0: top + 10})
    assert full.only.marks == {}
    destination.commit(full)
    destination.commit(batch(place, destination.ledger()[1], {0: top + 15}, gaps=[(0, top + 12)]))
    assert proof(destination).ok, proof(destination).problems
    assert place.sql("SELECT offsets FROM kpipe_targets")[0][0] == Mark(4, 4 * top + 10 + 11 + 13 + 14).offsets


@pytest.mark.parametrize("cleared", [False, True])
@pytest.mark.parametrize("offset", ["0", "NULL"])
def test_a_row_that_was_missing_before_the_key_is_missing_until_it_is_restored(
    place: DuckDBPlace, offset: str, cleared: bool
) -> None:
    destination, at = loaded(place), 3
    if cleared:
        destination.clear(["tweets"], "me")
        destination.commit(batch(place, destination.ledger()[1], {0: 20, 1: 10}))
        at = 7
    place.sql(f"CREATE TABLE saved AS FROM tweets WHERE _kafka_partition = 1 AND _kafka_offset = {at}")
    place.delete_row(1, at)
    keyed = place.open("tweets", rule=RULES["replace"])
    (end,) = (lane.next for lane in keyed.ledger()[1].lanes.values() if lane.source.partition == 0 and lane.open)
    keyed.commit(commit_of(place, keyed.ledger()[1], [Write(0, end, 77, "x")], RULES["replace"]))
    assert not proof(keyed).ok
    place.sql(f"INSERT INTO tweets (id, _kafka_partition, _kafka_offset) VALUES (999, 1, {offset})")
    assert not proof(keyed).ok, "the row of another record"
    place.sql("DELETE FROM tweets WHERE id = 999; INSERT INTO tweets BY NAME FROM saved")
    assert proof(keyed).ok, proof(keyed).problems


def test_a_default_that_names_the_topic_is_no_difference(place: DuckDBPlace) -> None:
    place.sql(
        "CREATE TABLE tweets (id BIGINT, text VARCHAR, n BIGINT, _kafka_topic VARCHAR DEFAULT 'tweets',"
        " _kafka_partition INTEGER, _kafka_offset BIGINT, _kafka_timestamp TIMESTAMPTZ)"
    )
    destination = keyed_begun(place, RULES["replace"], 1)
    for at in (0, 1):
        destination.commit(commit_of(place, destination.ledger()[1], [Write(0, at, at, "a")], RULES["replace"]))
    assert place.sql("SELECT DISTINCT _kafka_topic FROM tweets") == [("tweets",)]
    assert proof(destination).ok, proof(destination).problems


def test_rows_without_offsets_have_no_sum_when_the_table_gets_a_key(place: DuckDBPlace) -> None:
    """As output of a program that filters lines: numbers of rows are compared."""
    destination = begun(place)
    full = batch(place, destination.ledger()[1], {0: 5})
    rows = [{"id": at, "text": "x", "_kafka_partition": 0, "_kafka_offset": None, "_kafka_timestamp": None} for at in range(5)]
    destination.commit(full.writing(files=(place.staged(rows),)))
    assert proof(destination).ok, proof(destination).problems
    keyed = place.open("tweets", rule=RULES["replace"])
    keyed.commit(commit_of(place, keyed.ledger()[1], [Write(0, 5, 77, "x")], RULES["replace"]))
    assert proof(keyed).ok, proof(keyed).problems


def test_fewer_rows_of_one_record_than_committed_are_found(place: DuckDBPlace) -> None:
    """As of CSV: a record gave two rows, and one of them was moved to a record that gave none."""
    destination = begun(place)
    base = batch(place, destination.ledger()[1], {0: 8})
    key = base.steps[0].lane.key
    where = {"_kafka_partition": 0, "_kafka_timestamp": None}
    offsets = [0, 0, 1, 2, 3, 4, 5]
    rows = [{"id": at, "text": "x", "_kafka_offset": offset, **where} for at, offset in enumerate(offsets)]
    counts = replace(base.counts[key], rows=7, given=6, filtered=2, inserted=7)
    marks = {key: Mark(6, sum(offsets))}
    destination.commit(base.writing(table="tweets", files=(place.staged(rows),), marks=marks).stored({key: counts}))
    assert proof(destination).ok, proof(destination).problems
    place.sql("UPDATE tweets SET _kafka_offset = 6 WHERE rowid = (SELECT min(rowid) FROM tweets WHERE _kafka_offset = 0)")
    assert not proof(destination).ok


def test_rows_without_a_topic_in_a_table_that_once_had_names_of_topics(place: DuckDBPlace) -> None:
    destination, other = loaded(place), TopicId(TOPIC.cluster, "topic-id-2", "more")
    destination.commit(begin("tweets", (0,), topic=other))
    with_topic(destination, place, other, 5)
    destination.clear(["tweets"], "me")
    destination.commit(batch(place, destination.ledger()[1], {0: 25, 1: 10}))
    found = proof(destination)
    assert found.ok and not found.unproven, (found.problems, found.unproven)
