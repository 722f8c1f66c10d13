"""PostgreSQL as a destination: values, tables, secrets and addresses."""

from __future__ import annotations

import json
import sys
import uuid
from dataclasses import replace
from datetime import date, datetime, time, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from kpipe import failpoints
from kpipe.definition.pipeline import Pipeline
from kpipe.errors import (
    DestinationError,
    InvalidPipeline,
    LedgerMismatch,
    NotAvailable,
    SchemaConflict,
    StagingFailed,
)
from kpipe.schema.columns import Columns
from resources.destinations import open_destination
from resources.destinations.postgres.connection import Server
from resources.home import Home
from resources.testing.place import COORDINATES, DEAD_LETTERS, batch, begin
from resources.testing.state import begun, loaded, positions, proof
from tests.resources.destinations.postgres_place import PostgresPlace
from tests.servers.postgres import PASSWORD

# -- values
VALUES: list[tuple[str, Any, Any, Any]] = [  # type, Arrow's type, what is staged, what PostgreSQL's client gives
    ("TINYINT", pa.int8(), -128, -128),
    ("UTINYINT", pa.uint8(), 255, 255),
    ("USMALLINT", pa.uint16(), 65535, 65535),
    ("UINTEGER", pa.uint32(), 2**32 - 1, 2**32 - 1),
    ("UBIGINT", pa.uint64(), 2**64 - 1, Decimal(2**64 - 1)),
    ("HUGEINT", pa.string(), str(-(2**127) + 1), Decimal(-(2**127) + 1)),
    ("DECIMAL(38,10)", pa.decimal128(38, 10), Decimal("-1234567890123456789012345678.0123456789"), None),
    ("FLOAT", pa.float32(), 0.10000000149011612, 0.1),
    ("DOUBLE", pa.float64(), 5e-324, 5e-324),
    ("DOUBLE", pa.float64(), float("inf"), float("inf")),
    ("DOUBLE", pa.float64(), -1.7976931348623157e308, None),
    ("VARCHAR", pa.string(), "", ""),
    ("VARCHAR", pa.string(), "\\.", None),
    ("VARCHAR", pa.string(), 'a\r\n\\.\n"b",\tc\\N\u2028🎉\ufeff', None),
    ("VARCHAR", pa.string(), "\\N", None),
    ("BLOB", pa.binary(), bytes(range(256)), None),
    ("BLOB", pa.binary(), b"", None),
    ("DATE", pa.date32(), date(1, 1, 1), None),
    ("TIME", pa.time64("us"), time(23, 59, 59, 999999), None),
    ("TIMESTAMP", pa.timestamp("us"), datetime(9999, 12, 31, 23, 59, 59, 999999), None),
    ("TIMESTAMP WITH TIME ZONE", pa.timestamp("us", "UTC"), datetime(1, 1, 1, tzinfo=timezone.utc), None),
    ("UUID", pa.string(), "12345678-1234-5678-1234-567812345678", uuid.UUID("12345678-1234-5678-1234-567812345678")),
    ("JSON", pa.string(), '{"b":[1,null,"\\"x"],"a":12345678901234567890.123456789}', ...),
    ("VARCHAR[]", pa.list_(pa.string()), ["a", None, '"', "\\"], None),
    ("BLOB[]", pa.list_(pa.binary()), [b"\x00\xff", None], ["AP8=", None]),
    ("BIGINT[][]", pa.list_(pa.list_(pa.int64())), [[1, None], [], None], None),
    (
        'STRUCT("q""\'" JSON, t TIMESTAMP WITH TIME ZONE, n DECIMAL(30,20), b BLOB)',
        pa.struct([('q"\'', pa.string()), ("t", pa.timestamp("us", "UTC")), ("n", pa.decimal128(30, 20)), ("b", pa.binary())]),
        {'q"\'': "[123456789012345678901234567890.5]", "t": datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc),
         "n": Decimal("1.00000000000000000001"), "b": b"\x00"},
        {'q"\'': [Decimal("123456789012345678901234567890.5")], "t": "2026-01-02 03:04:05+00",
         "n": Decimal("1.00000000000000000001"), "b": "AA=="},
    ),
]  # fmt: skip


def test_values_are_exact(place: PostgresPlace) -> None:
    for number, (kind, stored, value, expected) in enumerate(VALUES):
        destination = begun(place, 1, pipeline=f"p{number}", table=f"t{number}")
        base = batch(place, destination.ledger()[1], {0: 2}, Columns(), {})
        rows = [
            {"v": item, "_kafka_partition": 0, "_kafka_offset": n, "_kafka_timestamp": n} for n, item in enumerate((value, None))
        ]
        file = place.file(rows, pa.schema([("v", stored), *COORDINATES.items()]))
        destination.commit(base.writing(files=(file,), columns=Columns.of({"v": kind})))
        with place.connect() as connection:
            psycopg.types.json.set_json_loads(lambda text: json.loads(text, parse_float=Decimal), connection)
            found = connection.execute(f'SELECT v FROM "t{number}" ORDER BY _kafka_offset').fetchall()
        if expected is ...:
            expected = json.loads(value, parse_float=Decimal)
        assert [row["v"] for row in found] == [value if expected is None else expected, None], kind
        assert destination.columns() == Columns.of({"v": kind}) and proof(destination).ok


def test_a_value_that_postgresql_cannot_hold_is_named(place: PostgresPlace) -> None:
    destination = begun(place)
    ledger = destination.ledger()[1]
    columns = Columns.of({"id": "BIGINT", "text": "VARCHAR", "s": "STRUCT(a VARCHAR)"})
    for values in ({"id": 1, "text": "a\x00b", "s": None}, {"id": 1, "text": "", "s": {"a": "\x00"}}):
        with pytest.raises(SchemaConflict, match=r"record at partition 0, offset 0 contains the character NUL") as caught:
            destination.commit(batch(place, ledger, {0: 3}, columns, values))
        assert ("'s'" if values["s"] else "'text'") in str(caught.value)
    assert destination.ledger()[1] == ledger and destination.columns() is None
    # A dead letter is kept, whatever it is made of.
    base = batch(place, ledger, {0: 1}, dead=[(0, 0)])
    letter = place.dead(base.steps[0].source, 0, b"\x00\xff", "odd: \x00")
    letter["headers"] = [{"name": "n\x00", "value": b"\x00"}, {"name": "n\x00", "value": None}]

    destination.commit(replace(base, dead_letters=(place.file([letter], DEAD_LETTERS),)))
    row = destination.view("errors")[0]
    assert (row["error_message"], row["load_data_line"], row["key"]) == ("odd: \\x00", b"\x00\xff", b"k")
    assert row["headers"] == [{"name": "n\x00", "value": "AA=="}, {"name": "n\x00", "value": None}]
    destination.record_state("error", "it broke: \x00", "TransformFailed")
    assert destination.view("errors", limit=1)[0]["error_message"] == "it broke: \\x00"


def test_a_table_that_was_there(place: PostgresPlace) -> None:
    place.sql(
        "CREATE TABLE tweets (twice bigint GENERATED ALWAYS AS (id * 2) STORED, text varchar(5), number serial,"
        " id bigint NOT NULL, n bigint GENERATED ALWAYS AS IDENTITY, _kafka_offset bigint, _kafka_partition int,"
        " _kafka_timestamp timestamptz, j json)"
    )
    place.sql("ALTER TABLE tweets DROP COLUMN number")
    destination = begun(place)
    assert destination.columns() == Columns.of({"text": "VARCHAR", "id": "BIGINT", "j": "JSON"})
    assert destination.required() == ["id"]
    destination.commit(batch(place, destination.ledger()[1], {0: 2}, Columns.of({"id": "BIGINT"}), {"id": 7}))
    assert [(row["twice"], row["id"], row["n"]) for row in place.sql("SELECT * FROM tweets")] == [(14, 7, 1), (14, 7, 2)]
    ledger = destination.ledger()[1]
    for values in ({"id": 1, "text": "too long"}, {"id": None, "text": ""}):
        with pytest.raises(SchemaConflict, match="nothing was written"):
            destination.commit(batch(place, ledger, {0: 3}, values=values))
    assert destination.ledger()[1] == ledger and proof(destination).ok


def test_null_in_a_column_that_the_database_numbers_is_named(place: PostgresPlace) -> None:
    """COPY of NULL does not take the next number."""
    coordinates = "_kafka_offset bigint, _kafka_partition int, _kafka_timestamp timestamptz"
    place.sql(f"CREATE TABLE tweets (id bigint, n bigint GENERATED BY DEFAULT AS IDENTITY, {coordinates})")
    destination, needed = begun(place), Columns.of({"id": "BIGINT", "n": "BIGINT"})
    assert destination.required() == ["n"]
    with pytest.raises(SchemaConflict, match="n: NULL in a NOT NULL column") as caught:
        destination.commit(batch(place, destination.ledger()[1], {0: 2}, needed, {"id": 1, "n": None}))
    assert [set(offsets) for offsets in caught.value.refused.values()] == [{0, 1}] and place.rows() == []


DEFERRED = [
    "ALTER TABLE tweets ADD UNIQUE (id) DEFERRABLE INITIALLY DEFERRED",
    "ALTER TABLE tweets ADD FOREIGN KEY (id) REFERENCES parents DEFERRABLE INITIALLY DEFERRED",
    "CREATE CONSTRAINT TRIGGER t AFTER INSERT ON tweets DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse()",
]


@pytest.fixture
def attempts() -> list[str]:
    """The first step of each attempt to commit."""
    found: list[str] = []
    failpoints.arm(lambda point: found.append(point) if point == "commit.verify" else None)
    return found


@pytest.mark.parametrize("constraint", DEFERRED, ids=["unique", "foreign key", "trigger"])
def test_a_deferred_constraint_rejects_rows_before_the_commit(place: PostgresPlace, attempts: list[str], constraint: str) -> None:
    destination = loaded(place, {0: 1})
    place.sql("CREATE TABLE parents (id BIGINT PRIMARY KEY)")
    place.sql("INSERT INTO parents SELECT id FROM tweets")
    place.sql("CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''no''; END'")
    place.sql(constraint)
    ledger = destination.ledger()[1]
    attempts.clear()
    with pytest.raises(SchemaConflict, match=r"(?s)step data: .*change the table or the records; nothing was written") as caught:
        destination.commit(batch(place, ledger, {0: 3}, values={"id": 7, "text": "a"}))
    assert attempts == ["commit.verify"] and caught.value.by_rows
    assert destination.ledger()[1] == ledger and len(place.rows()) == 1


def test_blanks_beyond_the_length_of_a_column_are_not_cut_off(place: PostgresPlace) -> None:
    """PostgreSQL does so without an error."""
    columns = "_kafka_offset bigint, _kafka_partition int, _kafka_timestamp timestamptz"
    place.sql(f'CREATE TABLE tweets (id bigint, "Text" varchar(2), wide varchar, {columns})')
    destination, needed = begun(place), Columns.of({"id": "BIGINT", "text": "VARCHAR", "wide": "VARCHAR"})
    ledger = destination.ledger()[1]
    for text in ("ab ", "abc"):
        with pytest.raises(
            SchemaConflict, match=r"'Text'.* partition 0, offset 0 has 3 characters.*nothing was written"
        ) as caught:
            destination.commit(batch(place, ledger, {0: 2}, needed, {"id": 1, "text": text, "wide": text}))
        assert [set(offsets) for offsets in caught.value.refused.values()] == [{0, 1}]
    assert destination.ledger()[1] == ledger and place.rows() == []
    destination.commit(batch(place, ledger, {0: 1}, needed, {"id": 1, "text": "\U0001f600 ", "wide": "ab  "}))
    assert [(row["Text"], row["wide"]) for row in place.rows()] == [("\U0001f600 ", "ab  ")]


@pytest.mark.parametrize(
    ("made", "message"),
    [
        ("CREATE VIEW tweets AS SELECT 1 AS id", "tweets: not a table: found a view"),
        ("CREATE UNLOGGED TABLE tweets (id bigint)", "UNLOGGED"),
        (
            "CREATE TABLE tweets (id bigint) PARTITION BY LIST (id);"
            " CREATE UNLOGGED TABLE part PARTITION OF tweets FOR VALUES IN (1)",
            "table tweets: partition part is UNLOGGED or a foreign table",
        ),
        ("CREATE TABLE tweets (id char(3))", r"has type character\(3\), which kpipe cannot write"),
        ("CREATE TABLE tweets (id numeric)", "has type numeric"),
        ("CREATE TABLE tweets (id timestamp(0))", "which kpipe cannot write"),
    ],
)
def test_a_table_that_would_not_keep_its_rows_is_refused(place: PostgresPlace, made: str, message: str) -> None:
    destination = begun(place)
    commit = batch(place, destination.ledger()[1], {0: 2})
    place.sql(made)
    for act in (destination.columns, lambda: destination.commit(commit)):
        with pytest.raises(SchemaConflict, match=message):
            act()
    assert positions(destination) == {0: 0, 1: 0}


def test_names_that_postgresql_would_cut_are_refused(place: PostgresPlace) -> None:
    destination = begun(place)
    with pytest.raises(SchemaConflict, match="63 bytes"):
        destination.commit(batch(place, destination.ledger()[1], {0: 1}, Columns.of({"é" * 32: "BIGINT"}), {"é" * 32: 1}))


def test_a_trigger_that_takes_rows_away_is_noticed(place: PostgresPlace) -> None:
    destination = loaded(place)
    place.sql("CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'")
    place.sql("CREATE TRIGGER t BEFORE INSERT ON tweets FOR EACH ROW EXECUTE FUNCTION nothing()")
    ledger = destination.ledger()[1]
    with pytest.raises(StagingFailed, match="expected 2 inserted rows, found 0"):
        destination.commit(batch(place, ledger, {0: 12}))
    assert destination.ledger()[1] == ledger and proof(destination).ok


def test_damage_is_named(place: PostgresPlace) -> None:
    destination = loaded(place)
    place.sql("DROP TABLE kpipe_ledger CASCADE")
    with pytest.raises(LedgerMismatch, match="changed by hand"):
        destination.ledger()
    place.sql("DROP TABLE kpipe_pipelines CASCADE")
    with pytest.raises(LedgerMismatch, match="kpipe_pipelines is missing"):
        destination.ledger()


def definition(**into: Any) -> Pipeline:
    return Pipeline.model_validate(
        {"name": "p", "source": {"brokers": "b:1", "topic": "t"}, "into": {"type": "postgres", "table": "t", **into}}
    )


def test_secrets_stay_where_they_belong(
    place: PostgresPlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PG_CANARY", PASSWORD)
    home = Home.at(tmp_path / "home")
    address = place.server.address(place.schema)
    for text in (address.replace("loader@", f"loader:{PASSWORD}@"), f"host=h password={PASSWORD}", f"postgresql://a:{PASSWORD}"):
        with pytest.raises(InvalidPipeline) as caught:
            open_destination(definition(database=text), home)
        assert PASSWORD not in repr(caught.value) + str(caught.value.__cause__) + str(caught.value.__context__)
    with pytest.raises(InvalidPipeline, match="not a credential"):
        open_destination(definition(database=address, credentials={"passwort": "x"}), home)
    pipeline = definition(database=address, credentials={"password": "{{ env('PG_CANARY') }}"})
    destination = open_destination(pipeline, home)
    destination.commit(begin("p", [0]))
    assert PASSWORD not in destination.describe() + str(destination.view("pipelines"))
    assert PASSWORD not in str(vars(destination)) + str(vars(destination.engine))
    wrong = open_destination(definition(database=address, credentials={"password": f"x{PASSWORD}"}), home)
    with pytest.raises(DestinationError, match=r"rejects the connection: .*password authentication failed") as refused:
        wrong.ledger()
    assert PASSWORD not in repr(refused.value)
    activity = place.server.sql("SELECT application_name, query FROM pg_stat_activity")
    assert PASSWORD not in str(activity) + "".join(capfd.readouterr())


def test_who_is_far_away_must_prove_who_it_is() -> None:
    def mode(text: str) -> object:
        return Server(text, {}, "t")._parameters.get("sslmode")

    assert mode("postgresql://db.example.com/d") == mode("host=10.0.0.1") == "verify-full"
    assert mode("postgresql://db.example.com/d?sslmode=require") == "require"
    assert mode("postgresql://localhost/d") is mode("host=/run/postgresql") is mode("host=127.0.0.1") is mode("dbname=d") is None


def test_without_psycopg_the_message_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("resources.destinations.postgres")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(NotAvailable, match=r"kpipe\[postgres\]"):
        open_destination(definition(database="postgresql://h/d"), Home.at(tmp_path))
