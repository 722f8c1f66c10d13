"""Rows with a key in PostgreSQL: what its own tables can be like, and who else writes them (the rules are in keyed.py)."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from kpipe import failpoints
from kpipe.errors import NotAvailable, SchemaConflict
from kpipe.interfaces import Destination, Keyed
from kpipe.tables.upsert import KeyRule
from resources.testing.keyed import RULES, Write, begun, commit_of, contents
from resources.testing.place import COORDINATES, begin
from resources.testing.state import proof
from tests.resources.destinations.postgres_place import PostgresPlace
from tests.servers.postgres import PostgresServer

COLUMNS = 'id BIGINT, "text" TEXT, n BIGINT, _kafka_partition INTEGER, _kafka_offset BIGINT, _kafka_timestamp TIMESTAMPTZ'


@pytest.fixture
def place(postgres: PostgresServer, tmp_path: Path) -> PostgresPlace:
    return PostgresPlace(tmp_path, postgres)


def load(place: PostgresPlace, destination: Destination, writes: Sequence[Write], rule: KeyRule) -> None:
    destination.commit(commit_of(place, destination.ledger()[1], writes, rule))


def test_the_primary_key_is_the_key(place: PostgresPlace) -> None:
    place.sql(f"CREATE TABLE tweets ({COLUMNS}, PRIMARY KEY (id))")
    place.sql("CREATE TABLE two (a BIGINT, b BIGINT, c BIGINT, PRIMARY KEY (c, a))")
    rule = KeyRule(None, "replace", deletes=True)
    two = place.open(table="two", rule=rule)
    assert isinstance(two, Keyed) and two.key() == ("c", "a")
    destination = begun(place, rule, 1)
    load(place, destination, [Write(0, 0, 1, "a"), Write(0, 1, 1, "b"), Write(0, 2, 2, "c"), Write(0, 3, 2, None)], rule)
    load(place, destination, [Write(0, 4, 1, "d"), Write(0, 5, 2, "e")], rule)
    assert {key: row[0] for key, row in contents(place).items()} == {1: "d", 2: "e"} and proof(destination).ok


@pytest.mark.parametrize(("name", "kept"), [("update", {1: "mine", 2: "given"}), ("replace", {1: "given", 2: "given"})])
def test_columns_that_rows_do_not_have(place: PostgresPlace, name: str, kept: dict[int, str]) -> None:
    place.sql(f"CREATE TABLE tweets ({COLUMNS}, extra TEXT DEFAULT 'given')")
    destination = begun(place, RULES[name], 1)
    load(place, destination, [Write(0, 0, 1, "a"), Write(0, 1, 2, "b")], RULES[name])
    place.sql("UPDATE tweets SET extra = 'mine'")
    load(place, destination, [Write(0, 2, 1, "c"), Write(0, 3, 2, None), Write(0, 4, 2, "d")], RULES[name])
    assert {row["id"]: row["extra"] for row in place.rows()} == kept and proof(destination).ok


def test_a_partitioned_table(place: PostgresPlace) -> None:
    """A row's place in one part is another row's in the next."""
    place.sql(f"CREATE TABLE tweets ({COLUMNS}) PARTITION BY LIST (id)")
    for number in range(3):
        place.sql(f"CREATE TABLE part{number} PARTITION OF tweets FOR VALUES IN ({number})")
    destination = begun(place, RULES["replace"], 1)
    load(place, destination, [Write(0, at, at, f"a{at}") for at in range(3)], RULES["replace"])
    load(place, destination, [Write(0, 3, 0, "b"), Write(0, 4, 1, None)], RULES["replace"])
    assert {key: row[0] for key, row in contents(place).items()} == {0: "b", 2: "a2"} and proof(destination).ok


def test_two_pipelines_write_the_same_keys_at_once(place: PostgresPlace) -> None:
    """The second waits for the first before it looks what is there, though it began before the first had committed."""
    rule = RULES["replace"]
    place.sql(f"CREATE TABLE tweets ({COLUMNS})")
    begun(place, rule, 1)
    other = place.open("other", rule=rule)
    other.commit(begin("other", range(1)))
    late = replace(commit_of(place, other.ledger()[1], [Write(0, 0, 1, "late"), Write(0, 1, 2, "late")], rule), pipeline="other")
    second = threading.Thread(target=other.commit, args=[late])

    def reached(point: str) -> None:
        if point != "commit.before" or threading.current_thread() is second:
            return
        second.start()
        waits = "SELECT 1 FROM pg_locks WHERE NOT granted AND mode = 'ShareRowExclusiveLock' AND relation = 'tweets'::regclass"
        deadline = time.monotonic() + 300
        while not place.sql(waits):
            assert time.monotonic() < deadline
            time.sleep(0.01)

    destination = place.open(rule=rule)
    failpoints.arm(reached)
    load(place, destination, [Write(0, 0, 1, "first"), Write(0, 1, 3, "first")], rule)
    second.join(300)
    assert {key: row[0] for key, row in contents(place).items()} == {1: "late", 2: "late", 3: "first"}
    assert proof(destination).ok and proof(other).ok


LEAVES_OUT = "CREATE FUNCTION left_out() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'"


@pytest.mark.parametrize(
    ("statements", "message"),
    [
        ([LEAVES_OUT, "CREATE TRIGGER t BEFORE DELETE ON tweets FOR EACH ROW EXECUTE FUNCTION left_out()"], "DELETE: expected 1"),
        ([LEAVES_OUT, "CREATE TRIGGER t BEFORE INSERT ON tweets FOR EACH ROW EXECUTE FUNCTION left_out()"], "INSERT: expected 2"),
        (["CREATE RULE r AS ON INSERT TO tweets DO INSTEAD NOTHING"], "INSERT: expected 2"),
        (
            ["CREATE POLICY p ON tweets USING (id <> 1)", "ALTER TABLE tweets ENABLE ROW LEVEL SECURITY",
             "ALTER TABLE tweets FORCE ROW LEVEL SECURITY"], "row-level security",
        ),
        (['CREATE TABLE "Tweets" (id BIGINT)'], "differ in case"),
        (["ALTER TABLE tweets ADD CONSTRAINT c CHECK (n IS NOT NULL) NOT VALID"], "violates check constraint"),
    ],
)  # fmt: skip
def test_what_would_make_other_rows_is_refused(place: PostgresPlace, statements: list[str], message: str) -> None:
    rule = RULES["replace"]
    destination = begun(place, rule, 1)
    load(place, destination, [Write(0, 0, 1, "a", 1)], rule)
    ledger, before = destination.ledger()[1], contents(place)
    for statement in statements:
        place.sql(statement)
    with pytest.raises(SchemaConflict, match=message):
        load(place, destination, [Write(0, 1, 1, "b"), Write(0, 2, 2, "c")], rule)
    assert destination.ledger()[1] == ledger
    place.sql("ALTER TABLE tweets DISABLE ROW LEVEL SECURITY")
    assert contents(place) == before


def test_values_of_a_unique_column_are_exchanged(place: PostgresPlace) -> None:
    """By one UPDATE, they could not: PostgreSQL checks the constraint after each row."""
    rule = RULES["replace"]
    place.sql(f'CREATE TABLE tweets ({COLUMNS}, PRIMARY KEY (id), UNIQUE ("text"))')
    destination = begun(place, rule, 1)
    load(place, destination, [Write(0, 0, 1, "a", 1), Write(0, 1, 2, "b", 1)], rule)
    load(place, destination, [Write(0, 2, 1, "b", 1), Write(0, 3, 2, "a", 1)], rule)
    assert {key: row[0] for key, row in contents(place).items()} == {1: "b", 2: "a"} and proof(destination).ok


def test_rows_that_refer_to_a_replaced_row_stay(place: PostgresPlace) -> None:
    rule = RULES["replace"]
    place.sql(f"CREATE TABLE tweets ({COLUMNS}, number BIGINT GENERATED ALWAYS AS IDENTITY UNIQUE, PRIMARY KEY (id))")
    destination = begun(place, rule, 1)
    load(place, destination, [Write(0, 0, 1, "a", 1), Write(0, 1, 2, "b", 1)], rule)
    place.sql("CREATE TABLE child (id BIGINT REFERENCES tweets ON DELETE CASCADE, number BIGINT REFERENCES tweets (number))")
    place.sql("INSERT INTO child SELECT id, number FROM tweets WHERE id = 1 UNION ALL SELECT 2, NULL")
    load(place, destination, [Write(0, 2, 1, "c", 1), Write(0, 3, 1, "d", 1), Write(0, 4, 2, None)], rule)
    assert [row["id"] for row in place.rows("child")] == [1] and contents(place)[1][0] == "d"
    assert proof(destination).ok


def test_texts_are_compared_as_the_column_does(place: PostgresPlace, postgres: PostgresServer) -> None:
    place.sql("CREATE COLLATION folded (provider = icu, locale = 'und-u-ks-level2', deterministic = false)")
    place.sql(f"""CREATE TABLE tweets ({COLUMNS.replace('"text" TEXT', '"text" TEXT COLLATE folded')}, PRIMARY KEY ("text"))""")
    rule = KeyRule(None, "replace")
    destination = begun(place, rule, 1)
    load(place, destination, [Write(0, 0, 1, "Ada"), Write(0, 1, 2, "ADA"), Write(0, 2, 3, "Bob")], rule)
    load(place, destination, [Write(0, 3, 4, "ada")], rule)
    assert {row["id"]: row["text"] for row in place.rows()} == {4: "ada", 3: "Bob"} and proof(destination).ok


def test_a_delete_of_a_key_beyond_the_columns_length_matches_no_row(place: PostgresPlace, postgres: PostgresServer) -> None:
    """PostgreSQL would cut "ab " to "ab", and reject "abc"."""
    place.sql("CREATE COLLATION folded (provider = icu, locale = 'und-u-ks-level2', deterministic = false)")
    text = '"text" VARCHAR(2) COLLATE folded PRIMARY KEY'
    place.sql(f"""CREATE TABLE tweets ({COLUMNS.replace('"text" TEXT', text)})""")
    rule = KeyRule(None, "replace", deletes=True)
    destination = begun(place, rule, 1)
    load(place, destination, [Write(0, 0, 1, "ab"), Write(0, 1, 2, "cd"), Write(0, 2, 3, "x")], rule)
    gone = [(3, "ab "), (4, "abc"), (5, "CD"), (6, "ef")]
    commit = commit_of(place, destination.ledger()[1], [Write(0, offset, 0, None) for offset, _ in gone], rule)
    keys = [{"text": key, "_kafka_partition": 0, "_kafka_offset": at, "_kafka_timestamp": at} for at, key in gone]
    file = place.file(keys, pa.schema([("text", pa.string()), *COORDINATES.items()]))
    done = destination.commit(commit.writing(deletes=(file,))).commit.totals
    assert (done.deletes, done.deleted) == (4, 1)
    assert {row["id"]: row["text"] for row in place.rows()} == {1: "ab", 3: "x"} and proof(destination).ok


def test_keys_that_differ_in_blanks_beyond_the_columns_length_do_not_merge(place: PostgresPlace) -> None:
    place.sql(f"""CREATE TABLE tweets ({COLUMNS.replace('"text" TEXT', '"text" VARCHAR(2)')}, PRIMARY KEY ("text"))""")
    rule = KeyRule(None, "replace")
    destination = begun(place, rule, 1)
    with pytest.raises(SchemaConflict, match="offset 1 has 3 characters"):
        load(place, destination, [Write(0, 0, 1, "ab"), Write(0, 1, 2, "ab ")], rule)
    assert place.rows() == []
    rule = KeyRule(("id",), "update", {"text": "text || ' '"})
    place.sql("ALTER TABLE tweets DROP CONSTRAINT tweets_pkey")
    destination = place.open(rule=rule)
    load(place, destination, [Write(0, 0, 1, "a"), Write(0, 1, 1, "b")], rule)
    with pytest.raises(SchemaConflict, match="a row has 3 characters"):
        load(place, destination, [Write(0, 2, 1, "c")], rule)
    assert {row["id"]: row["text"] for row in place.rows()} == {1: "a "}


@pytest.fixture
def few_digits(place: PostgresPlace) -> Iterator[None]:
    """The server shows numbers to the user with few digits."""
    place.sql("ALTER ROLE CURRENT_USER SET extra_float_digits = -10")
    yield
    place.sql("ALTER ROLE CURRENT_USER RESET extra_float_digits")


@pytest.mark.usefixtures("few_digits")
def test_numbers_go_through_an_expression_with_all_digits(place: PostgresPlace) -> None:
    place.sql(f"CREATE TABLE tweets ({COLUMNS}, x DOUBLE PRECISION)")
    rule = KeyRule(("id",), "update", {"x": "x"})
    destination = begun(place, rule, 1)
    load(place, destination, [Write(0, 0, 1, "a")], rule)
    place.sql("UPDATE tweets SET x = 0.1::double precision + 0.2::double precision")
    load(place, destination, [Write(0, 1, 1, "b"), Write(0, 2, 1, "c")], rule)
    same = "x = 0.1::double precision + 0.2::double precision"
    assert place.sql(f"SELECT _kafka_offset FROM tweets WHERE {same}") == [{"_kafka_offset": 2}]


def test_an_expression_over_a_nested_column_is_refused(place: PostgresPlace) -> None:
    """PostgreSQL keeps them as jsonb, whose numbers and bytes DuckDB would read otherwise."""
    place.sql(f"CREATE TABLE tweets ({COLUMNS}, l JSONB)")
    place.sql("COMMENT ON COLUMN tweets.l IS 'kpipe: BIGINT[]'")
    rule = KeyRule(("id",), "update", {"n": "len(l)"})
    destination = begun(place, rule, 1)
    with pytest.raises(NotAvailable, match=r"column l has type BIGINT\[\]"):
        load(place, destination, [Write(0, 0, 1, "a")], rule)


@pytest.mark.parametrize("when", ["0044-03-15 BC", "infinity", "-infinity"])
def test_days_that_python_does_not_have_go_through_an_expression(place: PostgresPlace, when: str) -> None:
    place.sql(f"CREATE TABLE tweets ({COLUMNS}, day DATE, at TIMESTAMP, moment TIMESTAMPTZ)")
    rule = KeyRule(("id",), "update", {name: name for name in ("day", "at", "moment")})
    destination = begun(place, rule, 1)
    load(place, destination, [Write(0, 0, 1, "a")], rule)
    place.sql(f"UPDATE tweets SET day = '{when}', at = '{when}', moment = '{when}'")
    load(place, destination, [Write(0, 1, 1, "b"), Write(0, 2, 1, "c")], rule)
    same = " AND ".join(f"{name} = '{when}'" for name in ("day", "at", "moment"))
    assert place.sql(f"SELECT _kafka_offset FROM tweets WHERE {same}") == [{"_kafka_offset": 2}]
