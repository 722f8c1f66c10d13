"""MariaDB as a destination: values, tables, secrets, and what processes, a network and a server can do to a commit."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kpipe import failpoints
from kpipe.batch.batch import Commit
from kpipe.definition.pipeline import Pipeline
from kpipe.errors import DestinationError, InvalidPipeline, NotAvailable, SchemaConflict
from kpipe.schema.columns import Columns
from kpipe.tables.upsert import KeyRule
from resources.destinations import open_destination
from resources.destinations.mysql import engine as mysql
from resources.destinations.mysql.connection import Server
from resources.destinations.mysql.constraint_violations import checks
from resources.destinations.mysql.session import Session
from resources.destinations.mysql.target_table import is_computed
from resources.destinations.sql.ledger import ledger_table
from resources.destinations.value_limits import limits_of
from resources.home import Home
from resources.testing import keyed
from resources.testing.place import COORDINATES, batch, begin
from resources.testing.state import begun, loaded, positions, proof
from tests.faults.proxy import Proxy, drop_response
from tests.resources.destinations.mysql_place import MySQLPlace
from tests.servers.mariadb import PASSWORD, ROLE, MariaServer

# Each step in `make chaos`; those where something else is true in every run.
OFTEN = ("commit.begin", "commit.before", "commit.after")
STEPS = [
    pytest.param(point, marks=() if point in OFTEN else pytest.mark.chaos)
    for point in failpoints.POINTS
    if point.startswith("commit.") or point == "readback"
]


@pytest.fixture
def place(mariadb: MariaServer, tmp_path: Path) -> MySQLPlace:
    return MySQLPlace(tmp_path, mariadb)


VALUES: list[tuple[str, Any, Any, Any]] = [  # type, Arrow's type, what is staged, what the client gives
    ("UTINYINT", pa.uint8(), 255, 255),
    ("UBIGINT", pa.uint64(), 2**64 - 1, 2**64 - 1),
    ("HUGEINT", pa.string(), str(-(2**127) + 1), Decimal(-(2**127) + 1)),
    ("DECIMAL(38,10)", pa.decimal128(38, 10), Decimal("-1234567890123456789012345678.0123456789"), None),
    ("DOUBLE", pa.float64(), -1.7976931348623157e308, None),
    ("VARCHAR", pa.string(), "a\\' \\\\ \x00 \r\n '' \" 🎉 $1 %s ", None),
    ("BLOB", pa.binary(), bytes(range(256)), None),
    ("UUID", pa.string(), "12345678-1234-5678-1234-567812345678", None),
    ("JSON", pa.string(), '{"b":[1,null,"\\"x"],"a":12345678901234567890.123456789}', None),
]


def test_values_are_exact(place: MySQLPlace) -> None:
    destination = begun(place, 1)
    columns = Columns.of({f"v{number}": kind for number, (kind, *_) in enumerate(VALUES)})
    base = batch(place, destination.ledger()[1], {0: 2}, Columns(), {})
    full = {f"v{number}": value for number, (_, _, value, _) in enumerate(VALUES)}
    rows = [{**item, "_kafka_partition": 0, "_kafka_offset": n, "_kafka_timestamp": n} for n, item in enumerate((full, {}))]
    fields = [(f"v{number}", stored) for number, (_, stored, *_) in enumerate(VALUES)]
    file = place.file(rows, pa.schema([*fields, *COORDINATES.items()]))
    destination.commit(base.writing(files=(file,), columns=columns))
    found, empty = place.sql("SELECT * FROM tweets ORDER BY _kafka_offset")
    for number, (kind, _, value, expected) in enumerate(VALUES):
        assert found[f"v{number}"] == (value if expected is None else expected), kind
        assert empty[f"v{number}"] is None
    assert destination.columns() == columns and proof(destination).ok


def test_the_first_and_the_last_times_are_exact(place: MySQLPlace) -> None:
    """Tasks set aside what lies beyond (`resources/destinations/value_limits.py`)."""
    columns = Columns.of({"at": "TIMESTAMP WITH TIME ZONE", "local": "TIMESTAMP", "day": "DATE"})
    into = {"type": "mysql", "table": "t", "database": "mysql://u@h/d"}
    limits = limits_of(Pipeline.model_validate({"name": "p", "source": {"brokers": "b", "topic": "t"}, "into": into}))
    assert limits is not None
    destination = begun(place, 1)
    for end in (0, 1):
        values = {"at": limits.instants[end], "local": limits.instants[end], "day": limits.days[end]}
        destination.commit(batch(place, destination.ledger()[1], {0: end + 1}, columns, values))
    first, last = place.sql("SELECT `at`, local, day FROM tweets ORDER BY _kafka_offset")
    assert first == {"at": datetime(1, 1, 1), "local": datetime(1, 1, 1), "day": date(1, 1, 1)}
    assert last == {"at": datetime.max, "local": datetime.max, "day": date.max} and proof(place.open()).ok


@pytest.mark.parametrize(
    ("made", "message"),
    [
        ("CREATE VIEW tweets AS SELECT 1 AS id", "tweets: not a table: found view"),
        ("CREATE TABLE tweets (id bigint) ENGINE=Aria", "engine Aria"),
        ("CREATE TABLE tweets (id datetime(3))", "which kpipe cannot write"),
    ],
)
def test_a_table_that_would_not_keep_its_rows_is_refused(place: MySQLPlace, made: str, message: str) -> None:
    destination = begun(place)
    commit = batch(place, destination.ledger()[1], {0: 2})
    place.sql(made)
    with pytest.raises(SchemaConflict, match=message):
        destination.commit(commit)
    assert positions(destination) == {0: 0, 1: 0}


@pytest.fixture
def quiet(mariadb: MariaServer) -> Iterator[None]:
    """A server that counts no notes, unless a session demands it, and keeps no messages."""
    names = ("sql_notes", "max_error_count")
    values = mariadb.sql(f"SELECT {', '.join(f'@@GLOBAL.{name}' for name in names)}")[0]
    mariadb.sql("SET GLOBAL sql_notes = 0, GLOBAL max_error_count = 0")
    yield
    mariadb.sql(f"SET {', '.join(f'GLOBAL {name} = {value}' for name, value in zip(names, values, strict=True))}")


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize(("text", "message"), [("too long", "Data too long"), ("12345 ", "would change a value; nothing")])
def test_values_that_do_not_fit_are_not_changed(place: MySQLPlace, text: str, message: str) -> None:
    place.sql(
        "CREATE TABLE tweets (id bigint, text varchar(5), _kafka_partition int, _kafka_offset bigint,"
        " _kafka_timestamp datetime(6))"
    )
    destination = begun(place)
    ledger = destination.ledger()[1]
    with pytest.raises(SchemaConflict, match=message) as caught:
        destination.commit(batch(place, ledger, {0: 3}, values={"id": 1, "text": text}))
    assert [set(offsets) for offsets in caught.value.refused.values()] == [{0, 1, 2}]
    assert destination.ledger()[1] == ledger and place.rows() == [] and proof(destination).ok


def test_zero_is_a_value_of_an_auto_increment_column(place: MySQLPlace) -> None:
    place.sql(
        "CREATE TABLE tweets (id bigint auto_increment primary key, text text, _kafka_partition int, _kafka_offset bigint,"
        " _kafka_timestamp datetime(6))"
    )
    destination = begun(place)
    destination.commit(batch(place, destination.ledger()[1], {0: 1}, values={"id": 0, "text": "zero"}))
    assert [row["id"] for row in place.rows()] == [0]


MADE_AT = Columns.of({"id": "BIGINT", "made": "TIMESTAMP WITH TIME ZONE"})
TIMED = (
    "CREATE TABLE tweets (id bigint PRIMARY KEY, made timestamp(6) NOT NULL DEFAULT current_timestamp(6), Seen timestamp(6) NULL,"
    " _kafka_partition int, _kafka_offset bigint, _kafka_timestamp datetime(6))"
)
NOON = datetime(2026, 1, 2, 12, tzinfo=timezone.utc)


@pytest.fixture(params=["ON", "OFF"])
def defaults(request: pytest.FixtureRequest, mariadb: MariaServer) -> Iterator[None]:
    mariadb.sql(f"SET GLOBAL explicit_defaults_for_timestamp = {request.param}")
    yield
    mariadb.sql("SET GLOBAL explicit_defaults_for_timestamp = DEFAULT")


@pytest.mark.usefixtures("defaults")
def test_null_does_not_become_the_time_of_the_commit(place: MySQLPlace) -> None:
    """MariaDB stores the current time in a NOT NULL column of type TIMESTAMP, without a warning."""
    place.sql(TIMED.replace(" PRIMARY KEY", ""))
    destination = begun(place)
    ledger = destination.ledger()[1]
    with pytest.raises(SchemaConflict, match=r"column 'made'.*offset 0 has NULL.*nothing was.*format\.fields") as caught:
        destination.commit(batch(place, ledger, {0: 3}, MADE_AT, {"id": 1, "made": None}))
    assert [set(offsets) for offsets in caught.value.refused.values()] == [{0, 1, 2}]
    assert destination.ledger()[1] == ledger and place.rows() == []
    seen = Columns.of({"id": "BIGINT", "seen": "TIMESTAMP WITH TIME ZONE"})
    destination.commit(batch(place, ledger, {0: 1}, seen, {"id": 1, "seen": None}))
    (row,) = place.rows()  # no record gives `made` a value: the default does
    assert row["made"] is not None and row["Seen"] is None and proof(destination).ok


@pytest.mark.parametrize("name", ["replace", "update", "ignore"])
def test_null_does_not_become_the_time_of_the_merge(place: MySQLPlace, name: str) -> None:
    place.sql(TIMED)
    rule = KeyRule(("id",), name)  # type: ignore[arg-type]
    destination = keyed.begun(place, rule, 1)

    def load(*writes: tuple[int, int, datetime | None]) -> None:
        commit = keyed.commit_of(place, destination.ledger()[1], [keyed.Write(0, at, id, "") for at, id, _ in writes], rule)
        rows = [
            {"id": id, "made": made, "_kafka_partition": 0, "_kafka_offset": at, "_kafka_timestamp": at}
            for at, id, made in writes
        ]
        destination.commit(commit.writing(files=(place.staged(rows, MADE_AT),), columns=MADE_AT))

    def check(at: int, id: int) -> None:
        message = f"partition 0 offset {at}: table tweets, column 'made': NULL.*format.fields"
        with pytest.raises(SchemaConflict, match=message) as caught:
            load((at, id, None))
        assert [set(offsets) for offsets in caught.value.refused.values()] == [{at}]

    check(0, 1)
    load((0, 1, NOON), (1, 2, NOON))
    if name == "ignore":
        load((2, 1, None))
    else:
        check(2, 1)
        load((2, 1, None), (3, 1, NOON))
    check(4, 3)
    assert {row["id"]: row["made"] for row in place.rows()} == {1: NOON, 2: NOON} and proof(destination).ok


OWN = (
    "CREATE TABLE tweets (id bigint PRIMARY KEY, text varchar(9){}, n bigint, _kafka_partition int, _kafka_offset bigint,"
    " _kafka_timestamp datetime(6))"
)
AB = [keyed.Write(0, 0, 1, "a"), keyed.Write(0, 1, 2, "b")]


@pytest.fixture
def hidden(place: MySQLPlace, mariadb: MariaServer) -> Iterator[str]:
    """A table of another database, without any right on it."""
    mariadb.sql(f"CREATE DATABASE {place.database}_other")
    yield f"{place.database}_other.child"
    mariadb.sql(f"DROP DATABASE {place.database}_other")


@pytest.fixture
def sees_foreign_keys(mariadb: MariaServer) -> Iterator[None]:
    """The right to see all foreign keys; it is that of new connections."""
    mariadb.sql(f"GRANT PROCESS ON *.* TO {ROLE}@'%'")
    yield
    mariadb.sql(f"REVOKE PROCESS ON *.* FROM {ROLE}@'%'")


@pytest.mark.parametrize("index", ["", " UNIQUE"])
def test_rows_that_refer_to_a_replaced_row_stay(place: MySQLPlace, mariadb: MariaServer, hidden: str, index: str) -> None:
    rule = KeyRule(("id",), "replace")
    place.sql(OWN.format(index))
    refers = f"FOREIGN KEY (id) REFERENCES {place.database}.tweets (id) ON DELETE CASCADE"
    mariadb.sql(f"CREATE TABLE {hidden} (id bigint, {refers})")
    destination = keyed.begun(place, rule, 1)
    destination.commit(keyed.commit_of(place, destination.ledger()[1], AB, rule))
    mariadb.sql(f"INSERT INTO {hidden} VALUES (1)")
    destination.commit(keyed.commit_of(place, destination.ledger()[1], [keyed.Write(0, 2, 1, "c")], rule))
    assert mariadb.sql(f"SELECT id FROM {hidden}") == ((1,),)
    assert {row["id"]: row["text"] for row in place.rows()} == {1: "c", 2: "b"} and proof(destination).ok


def exchanged(place: MySQLPlace, table: str = "tweets", child: str = "") -> dict[int, str]:
    """Rows of the table after the values of a UNIQUE column have moved between two of them; a child refers to the table."""
    rule = KeyRule(("id",), "replace")
    place.sql(OWN.replace("tweets", f"`{table}`").format(" UNIQUE"))
    if child:
        place.server.sql(f"CREATE TABLE {child} (id bigint, FOREIGN KEY (id) REFERENCES `{place.database}`.`{table}` (id))")
    destination = place.open(table=table, rule=rule)
    destination.commit(begin("tweets", range(1)))
    for writes in (AB, [keyed.Write(0, 2, 1, "b"), keyed.Write(0, 3, 2, "a")]):
        destination.commit(keyed.commit_of(place, destination.ledger()[1], writes, rule))
    assert proof(destination).ok
    return {row["id"]: row["text"] for row in place.rows(table)}


def test_values_of_a_unique_column_do_not_move_if_references_cannot_be_seen(place: MySQLPlace) -> None:
    with pytest.raises(SchemaConflict, match=r"Duplicate entry .*nothing was written.*GRANT PROCESS"):
        exchanged(place)


@pytest.mark.usefixtures("sees_foreign_keys")
@pytest.mark.parametrize("table", ["tweets", "mÉ Ы-$"])
def test_values_of_a_unique_column_move_if_no_table_refers_to_the_rows(place: MySQLPlace, hidden: str, table: str) -> None:
    assert exchanged(place, table) == {1: "b", 2: "a"}
    other = MySQLPlace(place.staging, place.server)
    with pytest.raises(SchemaConflict, match="Duplicate entry") as caught:
        exchanged(other, table, hidden)
    assert "PROCESS" not in str(caught.value)


@pytest.mark.parametrize(("name", "index"), [("replace", "KEY (n)"), ("replace", "UNIQUE (n)"), ("update", "KEY (n)")])
def test_a_row_keeps_its_number_of_auto_increment_where_records_have_none(place: MySQLPlace, name: str, index: str) -> None:
    rule = KeyRule(("id",), name)  # type: ignore[arg-type]
    place.sql(OWN.format("").replace(" n bigint,", f" n bigint AUTO_INCREMENT, {index},"))
    destination = keyed.begun(place, rule, 1)
    for at, n in enumerate((None, None, 7, None)):
        destination.commit(keyed.commit_of(place, destination.ledger()[1], [keyed.Write(0, at, 1, f"t{at}", n)], rule))
        assert [(row["text"], row["n"]) for row in place.rows()] == [(f"t{at}", 1 if at < 2 else 7)]
    assert proof(destination).ok


@pytest.mark.usefixtures("sees_foreign_keys")
def test_a_default_that_reads_a_column_is_that_of_the_new_row(place: MySQLPlace) -> None:
    rule = KeyRule(("id",), "replace")
    place.sql(OWN.format("").replace(" n bigint,", " n bigint, twice bigint DEFAULT (n * 2),"))
    destination = keyed.begun(place, rule, 1)
    for at, n in enumerate((1, 5)):
        destination.commit(keyed.commit_of(place, destination.ledger()[1], [keyed.Write(0, at, 1, "a", n)], rule))
    assert [(row["n"], row["twice"]) for row in place.rows()] == [(5, 10)] and proof(destination).ok


@pytest.fixture
def plain_names(mariadb: MariaServer) -> Iterator[None]:
    """A server that shows names without quotes, unless a session sets another mode."""
    mariadb.sql("SET GLOBAL sql_quote_show_create = OFF")
    yield
    mariadb.sql("SET GLOBAL sql_quote_show_create = DEFAULT")


@pytest.mark.usefixtures("plain_names")
def test_an_update_applies_defaults_that_read_no_column_and_keeps_numbers_of_a_sequence(place: MySQLPlace) -> None:
    rule = KeyRule(("id",), "replace")
    place.sql("CREATE SEQUENCE numbers")
    more = "e varchar(9) DEFAULT (concat('\"`\\\\', upper('x'))), number bigint DEFAULT nextval(numbers),"
    place.sql(OWN.format("").replace(" n bigint,", f" n bigint, {more}"))
    destination = keyed.begun(place, rule, 1)

    def load(at: int) -> list[tuple[Any, ...]]:
        destination.commit(keyed.commit_of(place, destination.ledger()[1], [keyed.Write(0, at, 1, f"t{at}", at)], rule))
        return [(row["text"], row["e"], row["number"]) for row in place.rows()]

    assert load(0) == [("t0", '"`\\X', 1)]
    place.sql("UPDATE tweets SET e = 'other'")
    assert load(1) == [("t1", '"`\\X', 1)]
    place.sql("ALTER TABLE tweets ADD COLUMN twice bigint DEFAULT (n * 2)")
    with pytest.raises(SchemaConflict, match=r"column 'twice'.*expression.*GRANT PROCESS"):
        load(2)
    assert proof(destination).ok


@pytest.mark.parametrize(
    ("collation", "rest"), [("utf8mb4_general_nopad_ci", {1: "ab", 3: "x"}), ("utf8mb4_general_ci", {3: "x"})]
)
def test_a_delete_of_a_key_beyond_the_columns_length_matches_no_row(
    place: MySQLPlace, collation: str, rest: dict[int, str]
) -> None:
    """Blanks at the end count if they do in the column's collation."""
    text = f"text varchar(2) CHARACTER SET utf8mb4 COLLATE {collation} PRIMARY KEY"
    place.sql(OWN.replace(" PRIMARY KEY", "").replace("text varchar(9){}", text))
    rule = KeyRule(None, "replace", deletes=True)
    destination = keyed.begun(place, rule, 1)
    writes = [keyed.Write(0, at, at + 1, text) for at, text in enumerate(("ab", "cd", "x"))]
    destination.commit(keyed.commit_of(place, destination.ledger()[1], writes, rule))
    gone = [(3, "ab "), (4, "abc"), (5, "CD"), (6, "ef"), (7, "x" * 70_000)]
    commit = keyed.commit_of(place, destination.ledger()[1], [keyed.Write(0, at, 0, None) for at, _ in gone], rule)
    keys = [{"text": key, "_kafka_partition": 0, "_kafka_offset": at, "_kafka_timestamp": at} for at, key in gone]
    file = place.file(keys, pa.schema([("text", pa.string()), *COORDINATES.items()]))
    done = destination.commit(commit.writing(deletes=(file,))).commit.totals
    assert (done.deletes, done.deleted) == (5, 3 - len(rest))
    assert {row["id"]: row["text"] for row in place.rows()} == rest and proof(destination).ok
    for at, key in ((8, "abc"), (8, "ab ")):  # rows do not lose the rest of their key
        with pytest.raises(SchemaConflict, match=r"record at partition 0, offset 8 has 3 characters.*nothing was written"):
            destination.commit(keyed.commit_of(place, destination.ledger()[1], [keyed.Write(0, at, 9, key)], rule))
    assert {row["id"]: row["text"] for row in place.rows()} == rest


def test_a_row_that_the_server_does_not_take_is_named(place: MySQLPlace) -> None:
    destination = begun(place)
    ledger = destination.ledger()[1]
    with pytest.raises(SchemaConflict, match=r"record at partition 0, offset 0 is \d+ bytes long.*max_allowed_packet"):
        destination.commit(batch(place, ledger, {0: 1}, values={"id": 1, "text": "x" * (17 << 20)}))
    assert destination.ledger()[1] == ledger


def definition(**into: Any) -> Pipeline:
    return Pipeline.model_validate(
        {"name": "p", "source": {"brokers": "b:1", "topic": "t"}, "into": {"type": "mysql", "table": "t", **into}}
    )


def test_secrets_stay_where_they_belong(place: MySQLPlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_CANARY", f"x{PASSWORD}")
    home, address = Home.at(tmp_path / "home"), place.server.address(place.database)
    for text in (address.replace("loader@", f"loader:{PASSWORD}@"), f"mysql://a:{PASSWORD}", f"{address}?password={PASSWORD}"):
        with pytest.raises(InvalidPipeline) as caught:
            open_destination(definition(database=text), home)
        assert PASSWORD not in repr(caught.value) + str(caught.value.__cause__) + str(caught.value.__context__)
    wrong = open_destination(definition(database=address, credentials={"password": "{{ env('MY_CANARY') }}"}), home)
    with pytest.raises(DestinationError, match="rejects the connection: Access denied") as refused:
        wrong.ledger()
    assert PASSWORD not in repr(refused.value) + wrong.describe() + str(vars(wrong))


def test_who_is_far_away_must_prove_who_it_is() -> None:
    assert Server("mysql://u@db.example.com/d", {}, "t").mode == "VERIFY_IDENTITY"
    assert Server("mysql://u@db.example.com/d?ssl-mode=REQUIRED", {}, "t").mode == "REQUIRED"
    assert Server("mysql://u@127.0.0.1/d", {}, "t").mode == "DISABLED"


def test_without_pymysql_the_message_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("resources.destinations.mysql")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pymysql", None)
    with pytest.raises(NotAvailable, match=r"kpipe\[mysql\]"):
        open_destination(definition(database="mysql://u@h/d"), Home.at(tmp_path))


COMMIT = """
import pickle, sys
from pathlib import Path
from resources.destinations.mysql import MySQLEngine
from resources.destinations.sql.destination import SqlDestination
from resources.destinations.sql.engine import TargetTable
from resources.destinations.mysql.connection import Server
from resources.destinations.mysql.session import Session
from resources.destinations.mysql.constraint_violations import checks
from resources.secrets import Secret
address, password, staging, recorded = sys.argv[1:]
server = Server(address, {"password": Secret(password)}, "kpipe tests", 20)
destination = SqlDestination(MySQLEngine(server, (Path(staging),)), "tweets", [TargetTable("tweets")])
destination.commit(pickle.loads(Path(recorded).read_bytes()))
"""


def process(place: MySQLPlace, commit: Commit, fault: str) -> subprocess.Popen[str]:
    recorded = place.staging / f"{uuid.uuid4().hex}.pickle"
    recorded.write_bytes(pickle.dumps(commit))
    arguments = [place.server.address(place.database), PASSWORD, str(place.staging), str(recorded)]
    environment = {**os.environ, failpoints.VARIABLE: fault}
    return subprocess.Popen([sys.executable, "-c", COMMIT, *arguments], env=environment, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("step", STEPS)
def test_killed_in_the_middle_of_a_commit(place: MySQLPlace, step: str) -> None:
    destination = loaded(place)
    ledger, rows = destination.ledger()[1], place.rows()
    commit = batch(place, ledger, {0: 12, 1: 7}, dead=[(0, 11)])
    killed = process(place, commit, f"{step}:1:kill")
    killed.communicate()
    assert killed.returncode == -signal.SIGKILL
    landed = step in ("commit.after", "readback")
    with destination.engine.server.session() as session:  # the server may still be at it
        destination.engine.await_commits(session, "tweets")
    assert (len(place.rows()), destination.ledger()[1].seq) == (len(rows) + 3 * landed, ledger.seq + landed)
    assert destination.commit(commit).seq == ledger.seq + 1
    assert len(place.rows()) == len(rows) + 3 and place.dead_letters() == 1 and proof(destination).ok


def test_the_answer_to_commit_is_lost(mariadb: MariaServer, tmp_path: Path) -> None:
    with Proxy(mariadb.port) as proxy:
        place = MySQLPlace(tmp_path, mariadb, proxy.port)
        destination = loaded(place)  # the table is there: making it has a COMMIT of its own
        proxy.now(drop_response(marker=b"\x03COMMIT"))
        assert destination.commit(batch(place, destination.ledger()[1], {0: 12}, dead=[(0, 11)])).seq == 3
        assert proxy.struck == 1 and len(place.rows()) == 16 and proof(destination).ok


def test_keys_that_differ_in_case_space_or_behind_a_kilobyte(place: MySQLPlace) -> None:
    from resources.testing.keyed import Write, commit_of, contents

    rule = KeyRule(("text",), "replace")
    destination = place.open(rule=rule)
    destination.commit(begin("tweets", [0]))
    texts = ["a", "A", "a ", "ä", "x" * 5000 + "1", "x" * 5000 + "2", "a"]
    writes = [Write(0, at, at, text) for at, text in enumerate(texts)]
    destination.commit(commit_of(place, destination.ledger()[1], writes, rule))
    assert {row[0] for row in contents(place).values()} == set(texts) and proof(destination).ok


def test_the_ledger_is_read_as_one_state(place: MySQLPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit lands between the pipeline's row and its lanes."""
    destination = loaded(place)
    before = destination.ledger()
    read, left = ledger_table.lanes, [batch(place, before[1], {0: 12})]

    def late(*asked: Any) -> Any:
        while left:
            place.open().commit(left.pop())
        return read(*asked)

    monkeypatch.setattr(ledger_table, "lanes", late)
    assert destination.ledger() == before and left == []
    assert positions(destination) == {0: 12, 1: 5}


# As MySQL 8 shows it (the manual's chapter on CHECK), with a name that has a quote, one that is not enforced, and texts.
MADE = """CREATE TABLE `t1` (
  `c1` int DEFAULT NULL COMMENT 'CONSTRAINT `x` CHECK ((`c1` = 1))',
  `state` varchar(9) DEFAULT NULL,
  CONSTRAINT `c1_nonzero` CHECK ((`c1` <> 0)),
  CONSTRAINT `odd ``name``` CHECK ((`state` in (_utf8mb4'a)',_utf8mb4'it''s'))),
  CONSTRAINT `t1_chk_1` CHECK ((`c1` > 10)) /*!80016 NOT ENFORCED */,
  CONSTRAINT `f` FOREIGN KEY (`c1`) REFERENCES `t2` (`c1`),
  CONSTRAINT `t1_chk_2` CHECK (regexp_like(`state`,_utf8mb4'^[a-z]\\\\\\\\.'))
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci"""


def test_a_default_of_mysql_8_is_no_computed_column() -> None:
    """It shows DEFAULT CURRENT_TIMESTAMP as DEFAULT_GENERATED, and such a column is written."""
    for extra in ("", "auto_increment", "DEFAULT_GENERATED", "DEFAULT_GENERATED on update CURRENT_TIMESTAMP", "INVISIBLE"):
        assert not is_computed(extra)
    for extra in ("VIRTUAL GENERATED", "STORED GENERATED", "STORED GENERATED INVISIBLE"):
        assert is_computed(extra)


def test_checks_are_read_as_mysql_8_shows_them() -> None:
    """From its manual: there is no MySQL 8 here to ask."""
    assert checks(MADE) == [
        ("c1_nonzero", "(`c1` <> 0)"),
        ("odd `name`", "(`state` in (_utf8mb4'a)',_utf8mb4'it''s'))"),
        ("t1_chk_2", r"regexp_like(`state`,_utf8mb4'^[a-z]\\\\.')"),
    ]
    assert checks('CREATE TABLE "t" (\n  "a" int,\n  CONSTRAINT "t_chk_1" CHECK (("a" > 0))\n)') == [("t_chk_1", '("a" > 0)')]


def test_records_that_a_check_of_mysql_8_refuses_are_named(place: MySQLPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    """MariaDB answers as MySQL 8 does: with its error 3819 and that error's words, by a trigger, before its own check comes."""
    place.sql(
        "CREATE TABLE tweets (id BIGINT, text VARCHAR(99), _kafka_partition INTEGER, _kafka_offset BIGINT,"
        " _kafka_timestamp DATETIME(6), CONSTRAINT `odd ones` CHECK (_kafka_offset <> 3 AND text <> 'it''s t5'),"
        " CONSTRAINT loose CHECK (id >= 0))"
    )
    place.sql(
        "CREATE TRIGGER as_mysql BEFORE INSERT ON tweets FOR EACH ROW IF NEW._kafka_offset = 3 THEN SIGNAL SQLSTATE 'HY000'"
        " SET MYSQL_ERRNO = 3819, MESSAGE_TEXT = 'Check constraint ''odd ones'' is violated.'; END IF"
    )
    destination = begun(place)
    commit = batch(place, destination.ledger()[1], {0: 6})
    real = mysql.violations

    def asked(*arguments: Any) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Session, "maria", False)
            return real(*arguments)

    monkeypatch.setattr(mysql, "violations", asked)
    with pytest.raises(SchemaConflict, match="Check constraint 'odd ones' is violated") as caught:
        destination.commit(commit)
    (found,) = caught.value.refused.values()
    assert list(found) == [3] and found[3].startswith("rejected by the table: odd ones CHECK ")
    assert destination.ledger()[1].positions() == dict.fromkeys(destination.ledger()[1].positions(), 0) and place.rows() == []
