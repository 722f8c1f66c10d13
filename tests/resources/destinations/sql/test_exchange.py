"""A rebuilt table exchanged with the live one: tables, dead letters and ledgers in one commit, or nothing at all."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest

from kpipe import failpoints
from kpipe.errors import Fenced, InvalidStatement, KpipeError, LedgerMismatch, NotAvailable, OutcomeUnknown
from kpipe.ledger.ledger import Lane
from kpipe.rebuild.exchange import Exchange, Exchanging, TableNames
from kpipe.tables.upsert import KeyRule
from resources.destinations.duckdb.table_extras import lost_by_exchange
from resources.testing.place import Place, batch, begin, source
from resources.testing.state import positions, proof
from tests.resources.destinations.databases import database

REBUILT, REPLACED = "tweets_rebuild", "tweets_replaced"
NAMES = TableNames("tweets", REBUILT, REPLACED)
#: Of the transaction, in their order.
STEPS = [f"commit.{step}" for step in ("open", "begin", "ledger", "register", "table", "history", "before", "after")]


@pytest.fixture(params=["duckdb", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    yield database(request, tmp_path)
    failpoints.arm(None)


def filled(place: Place, name: str, ends: dict[int, int], rule: KeyRule | None = None, **more: Any) -> Any:
    """A pipeline that has read that far, with dead letters, into the table of its name."""
    made = place.open(name, name, rule)
    made.commit(begin(name, (0, 1)))
    made.commit(batch(place, made.ledger()[1], ends, **more))
    return made


def both(place: Place, ends: dict[int, int] | None = None) -> tuple[Any, Any]:
    old = filled(place, "tweets", {0: 5, 1: 3}, dead={(0, 2)})
    return old, filled(place, REBUILT, ends or {0: 5, 1: 3}, gaps={(0, 2)})


def work(**more: Any) -> Exchange:
    return Exchange(uuid.uuid4().hex, NAMES, (NAMES,), note="exchange: tweets rebuilt; mia", **more)


def offsets(place: Place, table: str) -> list[tuple[int, int]]:
    return sorted((row["_kafka_partition"], row["_kafka_offset"]) for row in place.rows(table))


def seen(place: Place) -> Any:
    """All that anyone can see of both."""
    known = [place.open(name, name) for name in ("tweets", REBUILT, REPLACED)]
    tables = [offsets(place, name) for name in ("tweets", REBUILT, REPLACED)]
    return tables, [(*one.ledger(), list(one.history())) for one in known], [place.dead_letters(x.pipeline) for x in known]


def test_tables_dead_letters_and_ledgers_are_exchanged_and_both_stay_proven(place: Place) -> None:
    old, new = both(place)
    assert isinstance(old, Exchanging)
    before, after = old.ledger(), new.ledger()
    done = work()
    assert not old.exchanged(done.id)
    seq = old.exchange(done)
    assert old.exchanged(done.id) and seq == after[1].seq + 1
    assert offsets(place, "tweets") == [(0, 0), (0, 1), (0, 3), (0, 4), (1, 0), (1, 1), (1, 2)] == offsets(place, REPLACED)
    assert (place.dead_letters(), place.dead_letters(REPLACED), place.dead_letters(REBUILT)) == (0, 1, 0)
    live_one, replaced = place.open(), place.open(REPLACED, REPLACED)
    assert live_one.ledger()[0] == after[0] and replaced.ledger() == (before[0], type(before[1])(REPLACED, *_fields(before[1])))
    assert place.open(REBUILT, REBUILT).ledger()[0] == "" and not place.rows(REBUILT)
    for one in (live_one, replaced):
        assert proof(one).ok, proof(one).problems
    assert (proof(live_one).counts.gaps, proof(replaced).counts.dead_letters) == (1, 1)
    live_one.commit(batch(place, live_one.ledger()[1], {0: 9}))
    assert positions(live_one) == {0: 9, 1: 3} and proof(live_one).ok and len(place.rows()) == 11
    (row,) = live_one.view("pipelines")
    assert (row["target_table"], row["seq"]) == ("tweets", seq + 1)


def _fields(ledger: Any) -> tuple[Any, ...]:
    return ledger.seq, ledger.lanes, ledger.dead_letters


@pytest.mark.parametrize("ends", [{0: 5, 1: 3}, {1: 3}])
def test_no_batch_lands_that_was_planned_before(place: Place, ends: dict[int, int]) -> None:
    """Also where both ledgers are equal, and where nothing was read of a partition."""
    old = filled(place, "tweets", ends)
    filled(place, REBUILT, ends)
    ledger = old.ledger()[1]
    late = batch(place, ledger, {0: 9, 1: 9})
    single = [batch(place, ledger, {number: 9}) for number in (0, 1)]
    old.exchange(work())
    before = seen(place)
    for commit in (late, *single):
        with pytest.raises(Fenced):
            old.commit(commit)
    assert seen(place) == before
    shadow = batch(place, ledger, {0: 9}, lanes=[Lane(source(0), 0, 5)])
    with pytest.raises((Fenced, LedgerMismatch)):
        place.open(REBUILT, REBUILT).commit(shadow)


def test_no_decision_lands_that_was_planned_before(place: Place) -> None:
    """The lane of a new partition equals none of the ledger, so only the registration shows that it is another one."""
    old, new = both(place)
    uid, after = old.ledger()[0], new.ledger()[0]
    fresh = begin("tweets", (2,))
    old.exchange(work())
    before = seen(place)
    with pytest.raises(Fenced, match="its ledger was replaced by another one since its plan"):
        old.commit(replace(fresh, registered=uid))
    assert seen(place) == before
    old.commit(replace(fresh, registered=after))
    assert positions(old) == {0: 5, 1: 3, 2: 0}


@pytest.mark.parametrize("point", STEPS)
def test_failed_at_any_step_nothing_is_changed(place: Place, point: str) -> None:
    old, _ = both(place)
    before = seen(place)

    def reached(name: str) -> None:
        if name == point:
            raise place.failure("injected")

    done = work()
    failpoints.arm(reached)
    if point == "commit.after":
        old.exchange(done)
    else:
        with pytest.raises(KpipeError):
            old.exchange(done)
    failpoints.arm(None)
    assert (seen(place) == before) == (not old.exchanged(done.id)) == (point != "commit.after")


def test_an_answer_that_is_lost_is_read_back(place: Place) -> None:
    old, _ = both(place)
    place.fail_next("after_landed")
    done = work()
    old.exchange(done)
    assert place.open().exchanged(done.id) and proof(place.open()).ok


def test_an_outcome_that_is_unknown_is_found_out_by_its_id(place: Place) -> None:
    old, _ = both(place)
    place.fail_next("unknown")
    done = work()
    with pytest.raises(OutcomeUnknown):
        old.exchange(done)
    failpoints.arm(None)
    assert place.open().exchanged(done.id)
    before = seen(place)
    assert place.open().exchange(done) == place.open().ledger()[1].seq  # as any commit that is repeated
    assert seen(place) == before and proof(place.open()).ok


def test_a_rebuilt_table_that_is_behind_waits(place: Place) -> None:
    old, new = both(place, {0: 4, 1: 3})
    before = seen(place)
    with pytest.raises(Fenced, match=r"tweets has read more in the meantime: tweets/0 \[4, 5\)"):
        old.exchange(work())
    assert seen(place) == before
    new.commit(batch(place, new.ledger()[1], {0: 5}))
    old.exchange(work())


def test_offsets_that_are_missing_for_good_must_be_accepted(place: Place) -> None:
    old = filled(place, "tweets", {0: 5, 1: 3})
    new = place.open(REBUILT, REBUILT)
    new.commit(begin(REBUILT, (0, 1), at=2))
    new.commit(batch(place, new.ledger()[1], {0: 6, 1: 3}))
    with pytest.raises(InvalidStatement, match=r"lacks offsets that the live one has: tweets/0 \[0, 2\), tweets/1 \[0, 2\)"):
        old.exchange(work())
    old.exchange(work(accept_missing=True))
    assert proof(place.open()).ok and positions(place.open()) == {0: 6, 1: 3}


def test_it_can_be_done_again_when_the_old_table_is_dropped(place: Place) -> None:
    old, _ = both(place)
    old.exchange(work())
    filled(place, REBUILT, {0: 6, 1: 3})
    with pytest.raises(InvalidStatement, match="left from an earlier rebuild -> kpipe rebuild tweets --drop-replaced"):
        place.open().exchange(work())
    place.open().discard(REPLACED, [REPLACED])
    assert place.open(REPLACED, REPLACED).ledger()[0] == "" and not place.rows(REPLACED)
    place.open().exchange(work())
    assert positions(place.open()) == {0: 6, 1: 3}
    assert proof(place.open()).ok and proof(place.open(REPLACED, REPLACED)).ok


def test_a_cancelled_rebuild_leaves_nothing(place: Place) -> None:
    old, _ = both(place)
    kept = old.ledger(), place.rows(), place.dead_letters()
    for _ in range(2):
        old.discard(REBUILT, [REBUILT])
    assert (old.ledger(), place.rows(), place.dead_letters()) == kept
    assert place.open(REBUILT, REBUILT).ledger()[0] == "" and not place.rows(REBUILT)
    for table in ("kpipe_ledger", "kpipe_batches", "kpipe_commits", "kpipe_partitions", "kpipe_errors"):
        assert not place.sql(f"SELECT pipeline_name FROM {table} WHERE pipeline_name = '{REBUILT}'")


def test_a_table_that_another_pipeline_has_written_is_not_dropped(place: Place) -> None:
    both(place)
    other = place.open("other", REBUILT)
    other.commit(begin("other", (0,)))
    other.commit(batch(place, other.ledger()[1], {0: 2}))
    with pytest.raises(InvalidStatement, match="has rows of pipeline other"):
        place.open().discard(REBUILT, [REBUILT])


def test_a_table_that_the_pipeline_has_not_written_is_not_dropped(place: Place) -> None:
    """It is a user's, or of a user who has created the table of a rebuild by hand."""
    both(place)
    place.sql("CREATE TABLE mine_rebuild (id BIGINT)")
    before = seen(place)
    with pytest.raises(InvalidStatement, match="table mine_rebuild: pipeline tweets_rebuild has not written it"):
        place.open().discard(REBUILT, [REBUILT, "mine_rebuild"])
    assert seen(place) == before
    place.sql("DROP TABLE mine_rebuild")
    place.open().discard(REBUILT, [REBUILT, "mine_rebuild"])
    assert place.open(REBUILT, REBUILT).ledger()[0] == "" and not place.rows(REBUILT)


def test_what_the_live_table_has_beside_its_rows_is_not_lost(place: Place) -> None:
    old, _ = both(place)
    before = seen(place)
    place.sql("CREATE INDEX fast ON tweets (id)")
    with pytest.raises(InvalidStatement, match=r"an exchange would lose: .*(fast|INDEX)"):
        old.exchange(work())
    assert seen(place) == before
    place.sql("DROP INDEX fast")
    old.exchange(work())


def test_a_column_that_is_not_null_is_not_lost(place: Place) -> None:
    old, _ = both(place)
    before = seen(place)
    place.sql("ALTER TABLE tweets ALTER COLUMN id SET NOT NULL")
    with pytest.raises(InvalidStatement, match="an exchange would lose: NOT NULL of column id"):
        old.exchange(work())
    assert seen(place) == before
    place.sql(f"ALTER TABLE {REBUILT} ALTER COLUMN id SET NOT NULL")
    old.exchange(work())


def test_constraints_of_a_table_whose_name_has_another_case() -> None:
    """DuckDB's names have no case, but its catalog has."""
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE orders (id BIGINT PRIMARY KEY, n INTEGER DEFAULT 7 NOT NULL, CHECK (n > 0))")
        connection.execute("CREATE INDEX fast ON orders (n)")
        connection.execute("CREATE TABLE orders_rebuild (id BIGINT NOT NULL, n INTEGER)")
        for live, rebuilt in (("orders", "orders_rebuild"), ("Orders", "Orders_REBUILD")):
            assert lost_by_exchange(connection, live, rebuilt) == [
                "index fast", "NOT NULL of column n", "constraint CHECK((n > 0))", "constraint PRIMARY KEY(id)",
                "default of column n: 7",
            ]  # fmt: skip


def test_views_and_privileges_of_postgres(place: Place) -> None:
    if not hasattr(place, "server"):
        pytest.skip("views of DuckDB name their tables, and it has no privileges")
    old, _ = both(place)
    place.sql("GRANT SELECT ON tweets TO PUBLIC")
    place.sql("CREATE VIEW reader AS SELECT id FROM tweets")
    with pytest.raises(InvalidStatement, match="an exchange would lose: view reader"):
        old.exchange(work())
    place.sql("DROP VIEW reader")
    place.sql("CREATE UNIQUE INDEX once ON tweets (_kafka_partition, _kafka_offset)")
    with pytest.raises(InvalidStatement, match="CREATE UNIQUE INDEX USING btree"):
        old.exchange(work())
    place.sql(f"CREATE UNIQUE INDEX other ON {REBUILT} (_kafka_partition, _kafka_offset)")
    old.exchange(work())
    assert place.sql("SELECT 1 AS found WHERE has_table_privilege('public', 'tweets', 'SELECT')")


def test_coordinates_that_only_one_table_has(place: Place) -> None:
    old, _ = both(place, {0: 4, 1: 5})
    found = old.differences(NAMES, 2)
    assert (found.live, found.rebuilt) == ([("", 0, 4)], [("", 1, 3), ("", 1, 4)])


def test_rows_with_a_key_keep_their_sums(place: Place) -> None:
    from tests.resources.destinations.sql.test_clearing import unsettled

    rule = KeyRule(("id",), "replace")
    for name in ("tweets", REBUILT):
        made = place.open(name, name, rule)
        made.commit(begin(name, (0, 1)))
        made.commit(unsettled(batch(place, made.ledger()[1], {0: 5, 1: 3}), rule))
    place.open(rule=rule).exchange(work())
    made = place.open(rule=rule)
    made.commit(unsettled(batch(place, made.ledger()[1], {0: 7}), rule))
    assert proof(made).ok, proof(made).problems
    assert proof(place.open(REPLACED, REPLACED, rule)).ok


def test_mysql_is_refused_by_name(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    request.param = "mysql"  # type: ignore[attr-defined]
    place = database(request, tmp_path)
    made = place.open()
    assert isinstance(made, Exchanging)
    for call in (made.check_exchange, lambda: made.exchange(work()), lambda: made.discard(REBUILT, [REBUILT])):
        with pytest.raises(NotAvailable, match="MySQL commits each RENAME TABLE at once, without the ledger"):
            call()


def test_a_table_with_rows_of_another_pipeline_stays_where_it_is(place: Place) -> None:
    """They would be in the old table afterwards, and be dropped with it."""
    old, _ = both(place)
    other = place.open("other", "tweets")
    other.commit(begin("other", (0,)))
    other.commit(batch(place, other.ledger()[1], {0: 2}))
    before = seen(place)
    refused = "table tweets has rows of pipeline other"
    with pytest.raises(InvalidStatement, match=refused):
        old.check_rebuild(NAMES, (NAMES,))
    with pytest.raises(InvalidStatement, match=refused):
        old.exchange(work())
    assert seen(place) == before


@pytest.mark.parametrize("name", [REBUILT, REPLACED])
def test_a_table_with_a_name_that_a_rebuild_needs_is_not_touched(place: Place, name: str) -> None:
    old = filled(place, "tweets", {0: 5})
    place.sql(f"CREATE TABLE {name} (note VARCHAR(9))")
    with pytest.raises(InvalidStatement, match=f"table {name} exists"):
        old.check_rebuild(NAMES, (NAMES,))
    place.sql(f"DROP TABLE {name}")
    old.check_rebuild(NAMES, (NAMES,))
    place.open(name, name).commit(begin(name, (0,)))
    with pytest.raises(InvalidStatement, match=f"a ledger of pipeline {name} exists"):
        old.check_rebuild(NAMES, (NAMES,))


@pytest.mark.parametrize(
    ("column", "lost"),
    [
        ("note VARCHAR(9) DEFAULT 'x'", "default of column note"),
        ("twice BIGINT GENERATED ALWAYS AS (id * 2) STORED", "default of column twice"),
        ("number BIGINT GENERATED ALWAYS AS IDENTITY", "identity of column number"),
    ],
    ids=["default", "generated", "identity"],
)
def test_values_that_the_database_makes_are_not_lost(place: Place, column: str, lost: str) -> None:
    old, _ = both(place)
    if not hasattr(place, "server") and "GENERATED" in column:
        pytest.skip("DuckDB adds no such column to a table")
    place.sql(f"ALTER TABLE tweets ADD COLUMN {column}")
    with pytest.raises(InvalidStatement, match=f"an exchange would lose: {lost}"):
        old.exchange(work())
    place.sql(f"ALTER TABLE {REBUILT} ADD COLUMN {column}")
    old.exchange(work())


def test_the_page_tells_how_to_delete_what_an_earlier_rebuild_left(place: Place) -> None:
    old, _ = both(place)
    page = (Path(__file__).parents[4] / "docs/how-to/operate/rebuild.md").read_text(encoding="utf-8")
    statements = page.partition("BEGIN;\n")[2].partition("COMMIT;")[0].replace("orders_rebuild", REBUILT)
    kept = old.ledger(), place.rows()
    with pytest.raises(InvalidStatement, match="table tweets_rebuild exists"):
        old.check_rebuild(NAMES, (NAMES,))
    for statement in statements.split(";\n")[:-1]:
        place.sql(statement)
    old.check_rebuild(NAMES, (NAMES,))
    assert (old.ledger(), place.rows()) == kept and not place.rows(REBUILT)
