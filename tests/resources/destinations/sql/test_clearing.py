"""Tables cleared on purpose in a database: rows and ledgers change together, and the proof stays one."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kpipe import failpoints
from kpipe.batch.batch import Commit
from kpipe.errors import Fenced, NotAvailable
from kpipe.ledger.ledger import Lane, LaneChange, Step
from kpipe.ledger.transitions import reread
from kpipe.tables.upsert import KeyRule
from kpipe.verification.clearing import Clearing
from resources.destinations.mysql import sql_dialect
from resources.testing.place import Place, batch, begin, live, source
from resources.testing.state import positions, proof
from tests.resources.destinations.databases import database

pytestmark = pytest.mark.drawn(1)


@pytest.fixture(params=["duckdb", "postgres", "mysql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    yield database(request, tmp_path)
    failpoints.arm(None)


def unsettled(commit: Commit, rule: KeyRule | None) -> Commit:
    """Where rows have a key, the commit says what became of them."""
    counts = {key: replace(item, inserted=0) for key, item in commit.counts.items()}
    return commit.stored(counts) if rule is not None else commit


def filled(place: Place, pipeline: str = "tweets", rule: KeyRule | None = None, **more: Any) -> Any:
    """Partitions 0 and 1 read up to 5 and 3, by one batch, and partition 0 up to 8 by another."""
    made = place.open(pipeline, rule=rule)
    made.commit(begin(pipeline, (0, 1)))
    for ends in ({0: 5, 1: 3}, {0: 8}):
        made.commit(unsettled(batch(place, made.ledger()[1], ends, **more), rule))
    return made


def back(destination: Any, number: int, at: int = 0) -> None:
    """As SET OFFSETS and RESET do: reading begins anew there."""
    ledger = destination.ledger()[1]
    changes, done = reread(ledger, source(number), at)
    assert not done, "nothing that is read is read again"
    destination.commit(Commit(uuid.uuid4().hex, ledger.pipeline, changes, kind="rewind"))


@pytest.mark.parametrize("place", ["postgres"], indirect=True)
def test_a_table_that_another_run_creates_meanwhile_is_cleared(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rows would stay beside those of the records that are read again."""
    check_that_new_tables_are_cleared(place, monkeypatch)


@pytest.mark.parametrize("place", ["mysql"], indirect=True)
def test_a_table_that_another_run_creates_before_the_lock_is_cleared(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """MySQL creates tables before the transaction."""
    check_that_new_tables_are_cleared(place, monkeypatch, sql_dialect, "lock")


def check_that_new_tables_are_cleared(
    place: Place, monkeypatch: pytest.MonkeyPatch, owner: Any = None, name: str = "begin"
) -> None:
    """Another run commits its first rows when the clearing is about to call that function; by default, of the engine."""
    destination: Any = place.open()
    destination.commit(begin("tweets", (0,)))
    owner = owner or type(destination.engine)
    original = getattr(owner, name)

    def overtaken(*arguments: Any) -> Any:
        monkeypatch.undo()
        other = place.open()
        other.commit(batch(place, other.ledger()[1], {0: 3}))
        return original(*arguments)

    monkeypatch.setattr(owner, name, overtaken)
    assert destination.clear(["tweets"], "me").rows == {"tweets": 3}
    assert place.rows() == [] and proof(place.open()).ok


def test_rows_are_cleared_and_read_again_and_proven_each_time(place: Place) -> None:
    destination = filled(place, dead={(0, 2), (1, 0)}, gaps={(0, 6)})
    assert isinstance(destination, Clearing)
    assert proof(destination).ok and len(place.rows()) == 8
    done = destination.clear(["tweets"], "me")
    assert (done.rows, done.pipelines) == ({"tweets": 8}, {"tweets": ["tweets/0 [0, 8)", "tweets/1 [0, 3)"]})
    assert place.rows() == [] and positions(destination) == {0: 8, 1: 3}
    after = proof(destination)
    assert after.ok, after.problems
    assert (after.span, after.counts.rows, after.counts.dead_letters) == (0, 0, 0)
    assert list(after.skipped) == ["tweets/0 [0, 8)", "tweets/1 [0, 3)"]
    (shown,) = destination.view("pipelines")
    assert (shown["rows"], shown["dead_letters"]) == (0, 0)
    assert place.dead_letters() == 0 and len(destination.view("errors")) == 2, "they stay to be looked at"
    assert destination.letters(0, 10) == [], "and are not replayed"
    back(destination, 0)
    destination.commit(batch(place, destination.ledger()[1], {0: 9}, dead={(0, 2)}, gaps={(0, 6)}))
    again = proof(destination)
    assert again.ok, again.problems
    assert (again.span, again.counts.rows, again.counts.dead_letters, len(place.rows())) == (9, 7, 1, 7)
    assert destination.view("pipelines")[0]["rows"] == 7
    # Cleared once more, with nothing in between and with something.
    assert destination.clear(["tweets"], "me").pipelines == {"tweets": ["tweets/0 [0, 9)"]}
    assert destination.clear(["tweets"], "me").pipelines == {}
    assert proof(destination).ok and not place.rows()


def test_what_goes_wrong_behind_a_clear_is_noticed(place: Place) -> None:
    """The proof is as strict as before: each range is compared, not only sums."""
    destination = filled(place)
    destination.clear(["tweets"], "me")
    back(destination, 0)
    destination.commit(batch(place, destination.ledger()[1], {0: 8}))
    assert proof(destination).ok
    column = '"_kafka_offset"' if "mysql" not in type(place).__name__.lower() else "`_kafka_offset`"
    place.sql(f"UPDATE {place.name('tweets')} SET {column} = 3 WHERE {column} = 4")
    wrong = proof(destination)
    assert not wrong.ok and any("repeat an offset" in problem or "are not those" in problem for problem in wrong.problems)


def test_a_table_that_was_changed_by_hand_is_proven_again_once_it_is_cleared(place: Place) -> None:
    destination = filled(place)
    place.sql(f"DELETE FROM {place.name('tweets')} WHERE id = 3")
    assert not proof(destination).ok
    assert destination.clear(["tweets"], "me").rows == {"tweets": 10}
    assert proof(destination).ok
    back(destination, 0)
    destination.commit(batch(place, destination.ledger()[1], {0: 8}))
    assert proof(destination).ok and len(place.rows()) == 8


def test_rows_that_come_back_by_hand_are_no_proof(place: Place) -> None:
    destination = filled(place)
    rows = batch(place, destination.ledger()[1], {1: 4})
    destination.clear(["tweets"], "me")
    other = place.open("other")
    other.commit(begin("other", (1,)))
    other.commit(replace(batch(place, other.ledger()[1], {1: 2}), tables=rows.tables, records=rows.records, changes=(
        LaneChange(live(other.ledger()[1], 1), live(other.ledger()[1], 1).advanced(2)),
    ), steps=()))  # fmt: skip
    assert not proof(destination).ok


def test_the_rows_of_another_pipeline_are_taken_back_in_its_ledger(place: Place) -> None:
    one, two = filled(place), filled(place, "two")
    assert len(place.rows()) == 22 and one.other_rows("tweets") == 0
    with pytest.raises(NotAvailable, match="table tweets also contains rows of pipeline two") as refused:
        one.clear(["tweets"], "me", only=["tweets"])
    assert refused.value.hint.startswith("RESET PIPELINE tweets, two")
    assert len(place.rows()) == 22 and proof(one).ok and proof(two).ok
    done = two.clear(["tweets"], "me")
    assert set(done.pipelines) == {"tweets", "two"} and done.rows == {"tweets": 22}
    for destination in (one, two):
        after = proof(destination)
        assert after.ok and len(after.skipped) == 2, after.problems
    back(one, 1)
    one.commit(batch(place, one.ledger()[1], {1: 3}))
    assert len(place.rows()) == 3 and proof(one).ok and proof(two).ok


def test_a_table_with_a_key_is_counted_anew(place: Place) -> None:
    rule = KeyRule(("id",), "replace")
    destination = filled(place, rule=rule)
    before = proof(destination)
    assert before.ok, before.problems
    destination.clear(["tweets"], "me")
    assert proof(destination).ok and not place.rows()
    assert destination.view("pipelines")[0]["rows"] == 0
    back(destination, 0)
    destination.commit(unsettled(batch(place, destination.ledger()[1], {0: 4}), rule))
    after = proof(destination)
    assert after.ok, after.problems
    assert len(place.rows()) == 4
    place.sql(f"DELETE FROM {place.name('tweets')} WHERE id = 2")
    assert not proof(destination).ok


def test_what_was_read_again_before_is_cleared_once(place: Place) -> None:
    destination = filled(place)
    ledger = destination.ledger()[1]
    changes, done = reread(ledger, source(0), 4)
    steps = tuple(Step(Lane(source(0), x.start, x.start, x.end), x.end, "reread") for x in done)
    destination.commit(Commit(uuid.uuid4().hex, "tweets", changes, kind="reread", steps=steps))
    destination.commit(batch(place, destination.ledger()[1], {0: 6}))
    assert len(place.rows()) == 13 and proof(destination).ok
    assert destination.clear(["tweets"], "me").pipelines == {"tweets": ["tweets/0 [0, 6)", "tweets/1 [0, 3)"]}
    assert positions(destination)[0] == 6 and not place.rows()
    after = proof(destination)
    assert after.ok and after.span == 0, after.problems


def test_a_run_at_work_is_fenced_and_a_killed_clear_is_none(place: Place) -> None:
    destination = filled(place)
    late = batch(place, destination.ledger()[1], {0: 9})
    for point in ("commit.ledger", "commit.data", "commit.before"):
        failpoints.arm(failpoints.Fault(f"{point}:1:raise"))
        with pytest.raises(Exception, match=r"commit\."):
            destination.clear(["tweets"], "me")
        failpoints.arm(None)
        assert len(place.rows()) == 11 and proof(destination).ok
    destination.clear(["tweets"], "me")
    with pytest.raises(Fenced):
        destination.commit(late)
    assert proof(destination).ok and not place.rows()


def test_a_table_that_is_not_there_holds_nothing(place: Place) -> None:
    destination = place.open()
    assert destination.other_rows("tweets") == 0
    assert destination.clear(["tweets"], "me").rows == {"tweets": 0}
    destination.commit(begin("tweets", (0,)))
    done = destination.clear(["tweets"], "me")
    assert (done.rows, done.pipelines) == ({"tweets": 0}, {})
    assert positions(destination) == {0: 0}


def test_rows_of_no_ledger_are_deleted_or_the_error_says_that_they_are_not(place: Place) -> None:
    destination = filled(place)
    destination.clear(["tweets"], "me")
    assert destination.other_rows("tweets") == 0
    place.sql(f"INSERT INTO {place.name('tweets')} (id) VALUES (1)")
    assert destination.other_rows("tweets") == 1
    failpoints.arm(failpoints.Fault("commit.before:1:raise"))
    with pytest.raises(Exception, match=r"commit\.before"):
        destination.clear(["tweets"], "me")
    failpoints.arm(None)
    assert len(place.rows()) == 1
    done = destination.clear(["tweets"], "me")
    assert (done.rows, done.pipelines, place.rows()) == ({"tweets": 1}, {}, [])
    assert proof(destination).ok
