"""Dead letters moved to rows in a database: what a replay may change, what fences it, and that it happens once."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kpipe import failpoints
from kpipe.batch.batch import Commit, TableWrite
from kpipe.batch.dead_letter_replay import DeadLetter, Replay
from kpipe.errors import Fenced, NotAvailable, OutcomeUnknown, SchemaConflict, StagingFailed
from kpipe.tables.upsert import KeyRule
from kpipe.verification.verify import audit
from resources.testing.place import COLUMNS, DEAD_LETTERS, Place, batch, begin, source
from tests.resources.destinations.databases import database
from tests.resources.destinations.mysql_place import MySQLPlace
from tests.resources.destinations.postgres_place import PostgresPlace

pytestmark = pytest.mark.drawn(1)

BAD = {(0, 2), (0, 3), (0, 7), (1, 0), (1, 4)}


@pytest.fixture(params=["duckdb", "postgres", "mysql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    yield database(request, tmp_path)
    failpoints.arm(None)


def ask(place: Any, statement: str) -> list[tuple[Any, ...]]:
    if isinstance(place, MySQLPlace):
        for ours, mysqls in (("::BIGINT", ""), ("extract(epoch FROM _kafka_timestamp)", "unix_timestamp(_kafka_timestamp)"),
                             ("AS BIGINT)", "AS SIGNED)")):  # fmt: skip
            statement = statement.replace(ours, mysqls)
        with place.server.server(place.database).session() as session:
            done = session.execute(statement)
            found = list(done.fetchall()) if done.description else []
            session.commit()
            return found
    return [tuple(row.values()) if isinstance(row, dict) else row for row in place.sql(statement)]


@pytest.fixture
def destination(place: Place) -> Any:
    """Two batches: dead letters at offsets 2 and 3 of partition 0 and 0 of partition 1; then at 7 and 4."""
    made = place.open()
    made.commit(begin("tweets", (0, 1)))
    made.commit(batch(place, made.ledger()[1], {0: 5, 1: 3}, dead=BAD))
    made.commit(batch(place, made.ledger()[1], {0: 10, 1: 6}, dead=BAD))
    return made


def known(destination: Any) -> list[DeadLetter]:
    """All letters, by batch as they come; within one a database may number them as it likes."""
    found = destination.letters(0, 10)
    batches = list(dict.fromkeys(letter.batch for letter in found))
    assert [letter.id for letter in found] == sorted(letter.id for letter in found)
    return sorted(found, key=lambda letter: (batches.index(letter.batch), letter.source, letter.offset))


def replayed(place: Place, destination: Any, letters: Sequence[DeadLetter], failed: Sequence[int] = (), **more: Any) -> Replay:
    """Those at these places fail again; the one at offset 4 is filtered; each other gives a row."""
    rows, dead = [], []
    for at, letter in enumerate(letters):
        number = letter.source.partition
        if at in failed:
            dead.append(place.dead(letter.source, letter.offset, reason="still not JSON"))
        elif letter.offset != 4:
            row = {"id": number * 1_000_000 + letter.offset, "text": "mended"}
            rows.append(
                {**row, "_kafka_partition": number, "_kafka_offset": letter.offset, "_kafka_timestamp": letter.timestamp * 1000}
            )
    commit = Commit(
        uuid.uuid4().hex,
        "tweets",
        (),
        kind="replay",
        tables=(TableWrite(columns=COLUMNS, files=(place.staged(rows),) if rows else ()),),
        dead_letters=(place.file(dead, DEAD_LETTERS),) if dead else (),
        version="v2",
        note="retry",
    )
    return Replay(commit, destination.ledger()[0], tuple(letters), **more)


def sums(destination: Any) -> tuple[int, int, int]:
    result = audit(destination.ledger()[1], destination.history(), destination.recount())
    assert not result.problems
    return result.counts.rows, result.counts.dead_letters, result.counts.filtered


def test_letters_are_given_whole_and_in_order(destination: Any) -> None:
    letters = known(destination)
    assert [(letter.source, letter.offset) for letter in letters] == [
        (source(0), 2), (source(0), 3), (source(1), 0), (source(0), 7), (source(1), 4),
    ]  # fmt: skip
    first = letters[0]
    assert (first.timestamp, first.key, first.value, first.headers) == (1_700_000_000_000, b"k", b"{broken", [("h", b"\x00")])
    ids = [letter.id for letter in destination.letters(0, 10)]
    assert [letter.id for letter in destination.letters(ids[1], 2)] == ids[2:4]


def test_rows_letters_and_history_move_together(place: Place, destination: Any) -> None:
    assert sums(destination) == (11, 5, 0)
    letters = known(destination)
    lanes = destination.ledger()[1].lanes
    done = destination.replay(replayed(place, destination, letters, failed=[1]))
    assert done.seq == 4 and destination.ledger()[1].lanes == lanes
    assert sums(destination) == (14, 1, 1)
    (left,) = destination.letters(0, 10)
    assert (left.id, left.offset) == (letters[1].id, 3)
    assert ask(place, "SELECT error_message, version, batch_id FROM kpipe_errors") == [("still not JSON", "v2", letters[1].batch)]
    assert ask(place, "SELECT _kafka_partition, _kafka_offset FROM tweets WHERE text = 'mended' ORDER BY 1, 2") == [
        (0, 2),
        (0, 7),
        (1, 0),
    ]
    assert ask(
        place,
        "SELECT CAST(extract(epoch FROM _kafka_timestamp) * 1000 AS BIGINT) FROM tweets"
        " WHERE text = 'mended' AND _kafka_offset = 2",
    ) == [(1_700_000_000_000,)]
    row = destination.view("pipelines")[0]
    assert (row["rows"], row["dead_letters"], row["seq"]) == (14, 1, 4)
    counted = ", ".join(f'sum("{name}")::BIGINT AS {name}_' for name in ("rows", "dead_letters", "filtered", "inserted"))
    assert (
        ask(place, f"SELECT {counted} FROM kpipe_commits")
        == ask(place, f"SELECT {counted} FROM kpipe_batches")
        == [(14, 1, 1, 14)]
    )
    assert ask(place, "SELECT kind, note FROM kpipe_commits WHERE seq = 4") == [("replay", "retry")]


def test_once_however_often_it_is_sent(place: Place, destination: Any) -> None:
    letters = destination.letters(0, 10)
    replay, other = replayed(place, destination, letters), replayed(place, destination, letters[:1])
    seq = destination.replay(replay).seq
    after = sums(destination)
    # The same again has landed; another one of the same letters has not, as they are none any more.
    with pytest.raises(Fenced, match="1 of 1 dead letters were resolved by another retry"):
        destination.replay(other)
    assert destination.replay(replay).seq == seq
    assert sums(destination) == after == (15, 0, 1)
    new = batch(place, destination.ledger()[1], {0: 12})
    destination.commit(new)
    assert sums(destination) == (17, 0, 1)


@pytest.mark.crossed
@pytest.mark.parametrize("fault", ["before", "after_landed", "unknown"])
def test_the_answer_is_lost(place: Place, destination: Any, fault: str) -> None:
    replay = replayed(place, destination, destination.letters(0, 10))
    place.fail_next(fault)
    if fault == "after_landed":
        assert destination.replay(replay).seq == 4
    else:
        with pytest.raises(OutcomeUnknown if fault == "unknown" else Exception):
            destination.replay(replay)
        assert sums(destination) == ((11, 5, 0) if fault == "before" else (15, 0, 1))
        assert destination.replay(replay).seq == 4
    assert sums(destination) == (15, 0, 1)


def test_a_registration_or_files_that_are_not_those(place: Place, destination: Any) -> None:
    letters = destination.letters(0, 10)
    good = replayed(place, destination, letters)
    with pytest.raises(Fenced, match="registered again"):
        destination.replay(replace(good, registered="other"))
    with pytest.raises(StagingFailed, match="of the retried records"):
        destination.replay(replace(good, letters=tuple(letters[:2])))
    moved = replace(letters[0], batch=letters[-1].batch)
    with pytest.raises(Fenced, match="1 of 5"):
        destination.replay(replace(good, letters=(moved, *letters[1:])))
    assert sums(destination) == (11, 5, 0)
    assert destination.replay(good).seq == 4


def test_ranges_of_another_table_and_rows_without_offset_stay(place: Place, destination: Any) -> None:
    ask(place, 'UPDATE kpipe_errors SET "offset" = NULL WHERE "offset" = 7')
    assert len(destination.letters(0, 10)) == 4
    assert not place.open(table="others").letters(0, 10)  # type: ignore[attr-defined]


def test_where_a_record_gives_several_rows_the_records_are_counted_too(place: Place, destination: Any) -> None:
    letters = known(destination)[:1]
    rows = [{"id": n, "text": "m", "_kafka_partition": 0, "_kafka_offset": 2, "_kafka_timestamp": 0} for n in range(3)]
    commit = Commit(
        uuid.uuid4().hex, "tweets", (), kind="replay", tables=(TableWrite(columns=COLUMNS, files=(place.staged(rows),)),)
    )
    destination.replay(Replay(commit, destination.ledger()[0], tuple(letters), fan_out=True))
    assert sums(destination) == (14, 4, 0)
    found = ask(
        place, 'SELECT "rows", given, set_aside_before FROM kpipe_batches WHERE seq = 2 AND batch_source_partition_id = 0'
    )
    assert found == [(6, 4, 1)]
    destination.replay(replayed(place, destination, destination.letters(0, 10)))
    assert sums(destination) == (17, 0, 1)


def test_the_same_record_read_twice_comes_in_two_pages(place: Place, destination: Any) -> None:
    ask(place, 'UPDATE kpipe_errors SET "offset" = 2 WHERE "offset" = 7')  # as if the last batch had read offset 2 again
    ask(place, "UPDATE kpipe_batches SET batch_earliest_offset = 0 WHERE seq = 3 AND batch_source_partition_id = 0")
    first = destination.letters(0, 10)
    later = destination.letters(first[-1].id, 10)
    # The first page ends before the second letter of that record; which of the last batch's two comes first, is the database's.
    pages = sorted(letter.offset for letter in first), sorted(letter.offset for letter in later)
    assert pages in [([0, 2, 3], [2, 4]), ([0, 2, 3, 4], [2])]


@pytest.mark.crossed
@pytest.mark.parametrize("name", ["b", "u", "hits"])
def test_no_name_inside_of_the_queries_that_verify_hides_a_table(place: Place, name: str) -> None:
    made: Any = place.open(table=name)
    made.commit(begin("tweets", [0]))
    made.commit(batch(place, made.ledger()[1], {0: 3}))
    assert sums(made) == (3, 0, 0) and len(place.rows(name)) == 3


def test_letters_of_a_table_that_was_written_with_a_key_are_refused(place: Place, destination: Any) -> None:
    """Also after the key was edited out: a newer row of the letter's key may be there, or was deleted."""
    letters = destination.letters(0, 10)
    early = replayed(place, destination, letters)
    keyed = place.open(rule=KeyRule(("id",), "replace"))
    upsert = batch(place, keyed.ledger()[1], {0: 12}, dead={(0, 11)})
    keyed.commit(upsert.stored({lane: replace(counts, inserted=0) for lane, counts in upsert.counts.items()}))
    before = sums(destination)
    for act in (lambda: destination.replay(early), lambda: destination.letters(0, 10)):
        with pytest.raises(NotAvailable, match=r"rows with a key \(into.key\) cannot be retried .*tweets was written with a key"):
            act()
    assert sums(destination) == before
    assert not destination.letters(10**9, 10)


def test_rows_that_a_deferred_constraint_rejects(place: Place, destination: Any) -> None:
    if not isinstance(place, PostgresPlace):
        pytest.skip("no deferred constraints")
    place.sql("CREATE TABLE parents (id BIGINT PRIMARY KEY)")
    place.sql("INSERT INTO parents SELECT id FROM tweets")
    place.sql("ALTER TABLE tweets ADD FOREIGN KEY (id) REFERENCES parents DEFERRABLE INITIALLY DEFERRED")
    before = sums(destination)
    with pytest.raises(SchemaConflict, match=r"(?s)step data: .*change the table or the records; nothing was written"):
        destination.replay(replayed(place, destination, known(destination)))
    assert sums(destination) == before
