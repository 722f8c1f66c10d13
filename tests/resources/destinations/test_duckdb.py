"""What only a DuckDB file can get wrong: locks, WAL, settings, a COMMIT that lies, a full disk, kill -9."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest

from kpipe import failpoints
from kpipe.batch.batch import Commit
from kpipe.definition.pipeline import Pipeline
from kpipe.errors import (
    DestinationBusy,
    DestinationError,
    InvalidPipeline,
    NotAvailable,
    OutcomeUnknown,
    SchemaConflict,
    StagingFailed,
)
from kpipe.schema.columns import Columns
from kpipe.verification.verify import audit
from resources.destinations import open_destination, summary
from resources.destinations.duckdb import DuckDBDestination
from resources.destinations.sql import history_tables
from resources.duckdb_engine.file_connection import Database
from resources.home import Home
from resources.testing.place import COLUMNS, COORDINATES, arrow, batch, begin, source
from resources.testing.state import begun, loaded, positions, proof
from tests.resources.destinations.place import DuckDBPlace

HOLD = """
import duckdb, sys, time
connection = duckdb.connect(sys.argv[1], read_only=sys.argv[2] == "read")
print("held", flush=True)
time.sleep(3600)
"""


@pytest.fixture
def place(tmp_path: Path) -> DuckDBPlace:
    return DuckDBPlace(tmp_path)


@contextmanager
def held(path: Path, mode: str = "write") -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen([sys.executable, "-c", HOLD, str(path), mode], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        try:
            yield holder
        finally:
            holder.kill()


# -- the lock


@pytest.mark.parametrize("mode", ["write", "read"])
def test_held_lock_is_waited_for_then_names_its_holder(place: DuckDBPlace, mode: str) -> None:
    destination = loaded(place)
    commit = batch(place, destination.ledger()[1], {0: 12})
    destination.database.lock_timeout_s = 0.3
    with held(place.path, mode) as holder:
        with pytest.raises(DestinationBusy, match=rf"python.*\(PID {holder.pid}\); waited 0.3 s") as caught:
            destination.commit(commit)
        assert caught.value.retriable
        if mode == "write":
            with pytest.raises(DestinationBusy, match=str(holder.pid)):
                destination.ledger()
        else:
            assert positions(destination) == {0: 10, 1: 5}
    destination.commit(commit)
    assert proof(destination).ok


def test_lock_that_is_let_go_in_time_is_no_error(place: DuckDBPlace) -> None:
    destination = loaded(place)
    with held(place.path) as holder:
        timer = subprocess.Popen(["sh", "-c", f"sleep 0.5; kill -9 {holder.pid}"])
        destination.database.lock_timeout_s = 300
        destination.commit(batch(place, destination.ledger()[1], {0: 12}))
        timer.wait()
    assert positions(destination)[0] == 12


def test_connection_of_the_same_process_is_busy_too_and_keeps_its_settings(place: DuckDBPlace) -> None:
    destination = loaded(place)
    destination.database.lock_timeout_s = 0.1
    with duckdb.connect(str(place.path)) as mine:
        with pytest.raises(DestinationBusy, match="this process"):
            destination.ledger()
        assert mine.execute("SELECT current_setting('lock_configuration')").fetchone() == (False,)
    assert destination.ledger()[1].seq == 2


def test_file_is_free_between_calls(place: DuckDBPlace) -> None:
    destination = begun(place)
    for end in (1, 2, 3):
        destination.commit(batch(place, destination.ledger()[1], {0: end}))
        code = f"import duckdb; print(duckdb.connect({str(place.path)!r}).execute('SELECT count(*) FROM tweets').fetchone()[0])"
        assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == str(end)


def test_reading_back_that_is_kept_out_is_unknown(place: DuckDBPlace) -> None:
    """The answer of COMMIT is never believed, also when it is yes."""
    destination = begun(place)
    commit = batch(place, destination.ledger()[1], {0: 10})
    destination.database.lock_timeout_s = 0.2
    holders = []

    def reached(point: str) -> None:
        if point == "readback":
            holders.append(
                subprocess.Popen([sys.executable, "-c", HOLD, str(place.path), "write"], stdout=subprocess.PIPE, text=True)
            )
            holders[0].stdout.readline()

    failpoints.arm(reached)
    try:
        with pytest.raises(OutcomeUnknown, match="cannot be read back"):
            destination.commit(commit)
    finally:
        failpoints.arm(None)
        for holder in holders:
            holder.kill()
            holder.communicate()
    assert place.open().commit(commit).seq == 2 and len(place.rows()) == 10


# -- COMMIT, WAL


def test_commit_of_an_aborted_transaction_is_not_believed(place: DuckDBPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    destination = loaded(place)
    ledger, rows = destination.ledger()[1], place.rows()

    def swallowing(connection: duckdb.DuckDBPyConnection, *_: object) -> None:
        with suppress(duckdb.Error):
            connection.execute("SELECT error('boom')").fetchall()
        with pytest.raises(duckdb.Error, match="aborted"):
            connection.execute("SELECT 1")

    monkeypatch.setattr(history_tables, "history", swallowing)
    with pytest.raises(DestinationError, match="answered as committed and is not there"):
        destination.commit(batch(place, ledger, {0: 12}))
    assert (destination.ledger()[1], place.rows()) == (ledger, rows)


CRASH = """
import sys
from pathlib import Path
from typing import Any
from kpipe.batch.batch import Commit
from resources.destinations.duckdb import DuckDBDestination
import pickle
path, staging, recorded = sys.argv[1:]
commit = pickle.loads(Path(recorded).read_bytes())
DuckDBDestination(Path(path), "tweets", "tweets", {}, (Path(staging),)).commit(commit)
"""
STEPS = [point for point in failpoints.POINTS if point.startswith("commit.") or point == "readback"]


def crash(place: DuckDBPlace, commit: Commit, step: str) -> None:
    import pickle

    recorded = place.staging / "commit.pickle"
    recorded.write_bytes(pickle.dumps(commit))
    arguments = [str(place.path), str(place.staging), str(recorded)]
    environment = {**os.environ, failpoints.VARIABLE: f"{step}:1:kill"}
    done = subprocess.run([sys.executable, "-c", CRASH, *arguments], env=environment, check=False)
    assert done.returncode == -signal.SIGKILL


@pytest.mark.parametrize("first", [True, False])
def test_killed_at_every_step(place: DuckDBPlace, first: bool) -> None:
    destination = place.open()
    if not first:
        destination = loaded(place)
    for step in STEPS:
        seq, ledger = destination.ledger()[1].seq, destination.ledger()[1]
        if first and not ledger.lanes:
            commit = replace(begin("tweets", [0, 1]), columns=COLUMNS)
        else:
            start = positions(destination)[0]
            commit = batch(place, ledger, {0: start + 4}, dead=[(0, start)])
        crash(place, commit, step)
        landed = step in ("commit.after", "readback")
        assert destination.ledger()[1].seq == seq + landed, step
        assert proof(destination).ok, step
        assert destination.commit(commit).seq == seq + 1, step
        assert proof(destination).ok, step
    assert len(place.rows()) == destination.recount().rows[0] + destination.recount().rows.get(1, 0)


def test_wal_that_was_left_is_replayed(place: DuckDBPlace) -> None:
    destination = loaded(place)
    wal = Path(f"{place.path}.wal")
    crash(place, batch(place, destination.ledger()[1], {0: 12}), "commit.after")
    assert wal.exists()
    assert positions(destination)[0] == 12 and proof(destination).ok


def test_wal_that_cannot_be_replayed_is_kept_and_explained(place: DuckDBPlace) -> None:
    destination = loaded(place)
    commit = batch(place, destination.ledger()[1], {0: 12})
    crash(place, commit, "commit.after")
    wal = Path(f"{place.path}.wal")
    good = wal.read_bytes()
    bad = bytearray(good)
    bad[len(bad) // 2] ^= 0xFF
    wal.write_bytes(bad)
    for act in (destination.ledger, lambda: destination.commit(commit), destination.history):
        with pytest.raises(DestinationError, match=r"write-ahead log cannot be replayed.*keep kpipe\.duckdb\.wal"):
            act()
        assert wal.read_bytes() == bad
    wal.write_bytes(good)
    assert positions(destination)[0] == 12


def test_file_that_is_no_database_is_left_alone(place: DuckDBPlace) -> None:
    place.path.write_bytes(b"something else" * 1000)
    for act in (place.open().ledger, lambda: place.open().commit(begin("tweets", [0]))):
        with pytest.raises(DestinationError, match=r"cannot open .*kpipe\.duckdb"):
            act()
    assert place.path.read_bytes() == b"something else" * 1000


# -- settings


def test_connections_are_closed_to_the_rest_of_the_machine(place: DuckDBPlace, tmp_path: Path) -> None:
    outside, inside = tmp_path / "outside.parquet", place.staging / "inside.parquet"
    for path in (outside, inside):
        duckdb.sql("SELECT 1 AS a").write_parquet(str(path))
    unseen = [1]  # noqa: F841 - what a replacement scan would find
    loaded(place)
    database = Database(place.path, (place.staging,))
    for connect in (database.write, database.read):
        with connect() as connection:
            settings = dict(connection.execute("SELECT name, value FROM duckdb_settings()").fetchall())
            assert {settings[name] for name in ("autoinstall_known_extensions", "autoload_known_extensions")} == {"false"}
            assert (settings["enable_external_access"], settings["lock_configuration"]) == ("false", "true")
            assert settings["allow_community_extensions"] == settings["python_enable_replacements"] == "false"
            assert connection.execute("SELECT * FROM read_parquet(?)", [str(inside)]).fetchall() == [(1,)]
            for statement in (
                f"SELECT * FROM read_parquet('{outside}')",
                f'SELECT * FROM "{outside}"',
                f"SELECT * FROM read_parquet('{place.staging}/../outside.parquet')",
                "SELECT * FROM unseen",
                f"COPY (SELECT 1) TO '{tmp_path}/new.csv'",
                f"ATTACH '{tmp_path}/other.duckdb'",
                "SELECT * FROM read_text('/etc/passwd')",
                "INSTALL httpfs",
                "LOAD httpfs",
                "SET enable_external_access = true",
                "SET lock_configuration = false",
                "SELECT getenv('HOME')",
            ):
                with pytest.raises(duckdb.Error):
                    connection.execute(statement).fetchall()


def test_staged_file_outside_or_behind_a_link_is_refused(place: DuckDBPlace, tmp_path: Path) -> None:
    destination = begun(place)
    commit = batch(place, destination.ledger()[1], {0: 3})
    file = Path(commit.files[0].path)
    outside = tmp_path / "outside.parquet"
    outside.write_bytes(file.read_bytes())
    link, folder = place.staging / "link.parquet", place.staging / "folder"
    link.symlink_to(file)
    folder.symlink_to(tmp_path)
    for path in (
        outside,
        link,
        folder / "outside.parquet",
        place.staging / ".." / "outside.parquet",
        Path("x.parquet"),
        place.staging,
    ):
        with pytest.raises(StagingFailed):
            destination.commit(replace(commit, files=(replace(commit.files[0], path=str(path)),)))
    assert destination.commit(commit).seq == 2


def test_staging_folder_with_odd_names(tmp_path: Path) -> None:
    folder = tmp_path / "a [b] *' {c} year=2026"
    folder.mkdir()
    place = DuckDBPlace(folder)
    destination = loaded(place)
    assert len(place.rows()) == 15 and "year" not in place.rows()[0] and proof(destination).ok


def test_staging_root_that_is_itself_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert proof(loaded(DuckDBPlace(tmp_path / "link"))).ok


# -- the table


def test_types_of_a_foreign_table(place: DuckDBPlace) -> None:
    begun(place)
    place.sql("CREATE TABLE tweets (id BIGINT, odd INTERVAL)")
    with pytest.raises(SchemaConflict, match="column 'odd' has type INTERVAL"):
        place.open().columns()


def test_lossless_types_are_cast(place: DuckDBPlace) -> None:
    destination = begun(place)
    place.sql("CREATE TABLE tweets (id HUGEINT, text VARCHAR, n DOUBLE, j JSON, s STRUCT(b JSON, a HUGEINT), u UUID)")
    columns = Columns.of({"id": "BIGINT", "n": "INTEGER", "j": "JSON", "s": "STRUCT(a INTEGER, b JSON)", "u": "UUID"})
    uid = "5f0c1a6e-0000-4000-8000-000000000001"
    values = {"id": 7, "n": 3, "j": "[1]", "s": {"a": 5, "b": '{"k":1}'}, "u": uid}
    destination.commit(batch(place, destination.ledger()[1], {0: 1}, columns, values))
    assert place.sql("SELECT id, text, n, j->>0, s.a, s.b->>'k', u::VARCHAR FROM tweets") == [(7, None, 3.0, "1", 5, "1", uid)]
    assert place.sql("SELECT _kafka_partition, _kafka_offset, epoch_us(_kafka_timestamp) FROM tweets") == [(0, 0, 0)]


@pytest.mark.parametrize(
    ("ddl", "words"),
    [
        ("id BIGINT, text VARCHAR, must INTEGER NOT NULL", "NOT NULL constraint failed: tweets.must"),
        ("id BIGINT CHECK (id < 5), text VARCHAR", "CHECK constraint failed"),
        ("id BIGINT, text VARCHAR UNIQUE", "Duplicate key"),
        ("id SMALLINT, text VARCHAR", "column id is SMALLINT in the table, the batch holds BIGINT"),
        ("id BIGINT, text BLOB", "column text is BLOB in the table, the batch holds VARCHAR"),
    ],
)
def test_table_that_refuses_rows(place: DuckDBPlace, ddl: str, words: str) -> None:
    destination = begun(place)
    place.sql(f"CREATE TABLE tweets ({ddl})")
    place.sql("INSERT INTO tweets (id, text) VALUES (1, 't9')") if "NOT NULL" not in ddl and "BLOB" not in ddl else None
    ledger, rows = destination.ledger()[1], place.rows()
    with pytest.raises(SchemaConflict, match="(?i)" + words):
        destination.commit(batch(place, ledger, {0: 10}))
    assert (destination.ledger()[1], place.rows()) == (ledger, rows)


@pytest.mark.parametrize(
    ("ddl", "values", "offsets", "reason"),
    [
        ("id BIGINT CHECK (id <> 5), text VARCHAR", None, [5], "the table refuses it: CHECK"),
        ("id BIGINT CHECK (id < 7), text VARCHAR", None, [7, 8, 9], "the table refuses it: CHECK"),
        ("id BIGINT NOT NULL, text VARCHAR", {"id": None, "text": "x"}, [*range(10)], "id: NULL, and the column takes none"),
    ],
)
def test_the_records_that_a_constraint_refuses_are_named(
    place: DuckDBPlace, ddl: str, values: dict[str, Any] | None, offsets: list[int], reason: str
) -> None:
    destination = begun(place)
    place.sql(f"CREATE TABLE tweets ({ddl})")
    with pytest.raises(SchemaConflict) as caught:
        destination.commit(batch(place, destination.ledger()[1], {0: 10}, values=values))
    error = caught.value
    assert error.what.startswith(f"{source(0)} offset {offsets[0]}: {reason}")
    assert (f"{len(offsets) - 1} more record" in error.what) == (len(offsets) > 1)
    assert list(error.refused[source(0)]) == offsets and error.record == (source(0), offsets[0])
    assert "errors.constraint: dead_letter" in error.hint


def test_json_that_is_none(place: DuckDBPlace) -> None:
    destination = begun(place)
    columns = Columns.of({"j": "JSON"})
    with pytest.raises(SchemaConflict, match="Malformed JSON"):
        destination.commit(batch(place, destination.ledger()[1], {0: 1}, columns, {"j": "{x"}))
    assert destination.columns() is None


def test_payload_cannot_shadow_a_coordinate(place: DuckDBPlace) -> None:
    destination = begun(place)
    commit = batch(place, destination.ledger()[1], {0: 1})
    with pytest.raises(SchemaConflict, match="_Kafka_Offset"):
        destination.commit(replace(commit, columns=Columns((*COLUMNS.items, *Columns.of({"_Kafka_Offset": "BIGINT"}).items))))


def test_file_that_lacks_a_column_is_refused(place: DuckDBPlace) -> None:
    destination = begun(place)
    commit = batch(place, destination.ledger()[1], {0: 1})
    with pytest.raises(StagingFailed, match="lacks column 'more'"):
        destination.commit(replace(commit, columns=Columns.of({"id": "BIGINT", "text": "VARCHAR", "more": "DATE"})))
    with pytest.raises(StagingFailed, match=r"holds column 'id' as BIGINT, batch .* says INTEGER"):
        destination.commit(replace(commit, columns=Columns.of({"id": "INTEGER", "text": "VARCHAR"})))


def test_coordinates_on_request(place: DuckDBPlace) -> None:
    import pyarrow as pa

    from resources.testing.place import HEADERS

    destination = loaded(place)
    commit = batch(place, destination.ledger()[1], {0: 11})
    fields = [(name, arrow(kind)) for name, kind in COLUMNS] + list(COORDINATES.items())
    fields += [("_kafka_topic", pa.string()), ("_kafka_key", pa.binary()), ("_kafka_headers", HEADERS)]
    row = {"id": 1, "_kafka_partition": 0, "_kafka_offset": 10, "_kafka_topic": "tweets", "_kafka_key": b"\x00"}
    row["_kafka_headers"] = [{"name": "h", "value": None}, {"name": "h", "value": b"2"}]
    destination.commit(replace(commit, files=(place.file([row], pa.schema(fields)),)))
    found = place.sql(
        "SELECT _kafka_topic, _kafka_key, _kafka_headers FROM tweets WHERE _kafka_offset = 10 AND _kafka_partition = 0"
    )
    assert found == [("tweets", b"\x00", row["_kafka_headers"])]
    assert destination.columns() == COLUMNS and proof(destination).ok


def test_dead_letters_are_whole(place: DuckDBPlace) -> None:
    loaded(place, dead=[(0, 4)])
    found = place.sql(
        'SELECT pipeline_name, error_type, error_message, load_data_line, error_id, batch_source_partition_id, "offset", "key",'
        " batch_earliest_offset, batch_latest_offset, headers, stage, topic, epoch_us(kafka_timestamp), version FROM kpipe_errors"
    )
    assert found == [
        ("tweets", "Warning", "not JSON", b"{broken", 1, 0, 4, b"k", 0, 10, [{"name": "h", "value": b"\x00"}], "parse", "tweets",
         1_700_000_000_000_000, "v1"),
    ]  # fmt: skip


def test_table_without_coordinates_is_counted_as_a_whole(place: DuckDBPlace) -> None:
    import pyarrow as pa

    destination = begun(place)
    commit = batch(place, destination.ledger()[1], {0: 3})
    file = place.file([{"id": n, "text": "x"} for n in range(3)], pa.schema([("id", pa.int64()), ("text", pa.string())]))
    destination.commit(replace(commit, files=(file,)))
    assert proof(destination).ok
    place.sql("DELETE FROM tweets WHERE id = 1")
    assert proof(destination).problems == ["partition 0: the table holds 2 rows, the ledger says 3"]


# -- views


def test_views_have_the_names_of_singlestore_and_need_no_settings(place: DuckDBPlace) -> None:
    destination = loaded(place, dead=[(0, 4)])
    destination.record_state("error", "boom", "BrokerUnreachable")
    wanted = {
        "pipelines": "database_name pipeline_name pipeline_id config_json state skipped_batches",
        "batches": "database_name pipeline_name batch_id batch_state batch_rows_written batch_time batch_start_unix_timestamp"
        " batch_partition_state batch_partition_parsed_rows batch_source_partition_id batch_earliest_offset batch_latest_offset"
        " batch_partition_time batch_partition_extracted_bytes batch_partition_extracted_rows",
        "batches_summary": "database_name pipeline_name batch_id batch_state start_time batch_time rows_per_sec rows_streamed"
        " num_partitions num_partitions_finished mb_streamed mb_per_sec rows_inserted rows_updated rows_deleted",
        "errors": "database_name pipeline_name error_unix_timestamp error_type error_code error_message error_kind std_error"
        " load_data_line load_data_line_number batch_id error_id batch_source_partition_id batch_earliest_offset"
        " batch_latest_offset",
        "cursors": "database_name pipeline_name source_type source_partition_id earliest_offset latest_offset cursor_offset"
        " successful_cursor_offset updated_unix_timestamp",
    }
    for name, columns in wanted.items():
        found = [row[0] for row in place.sql(f"DESCRIBE kpipe_{name}")]
        assert set(columns.split()) <= set(found), name
        assert destination.view(name) and list(destination.view(name)[0]) == found
    assert place.sql(
        "SELECT batch_state, rows_streamed, rows_per_sec, num_partitions, rows_inserted, dead_letters FROM kpipe_batches_summary"
    ) == [("Succeeded", 15, 30.0, 2, 14, 1)]
    assert place.sql("SELECT sum(latest_offset - cursor_offset) FROM kpipe_cursors") == [(14,)]
    assert str(destination.view("batches_summary")[0]["start_time"]) == "2023-11-14 22:13:20.123000+00:00"
    assert [row["error_kind"] for row in destination.view("errors")] == ["External", "External"]


# -- how it grows


def test_a_commit_touches_what_it_changes(place: DuckDBPlace) -> None:
    """The tables that commits update hold one row for each thing; what grows is only ever appended to."""
    destination = begun(place, 1)
    for end in range(1, 31):
        destination.commit(batch(place, destination.ledger()[1], {0: end}))
    sizes = {
        name: place.sql(f"SELECT count(*) FROM kpipe_{name}")[0][0] for name in ("ledger", "pipelines", "partitions", "batches")
    }
    assert sizes == {"ledger": 1, "pipelines": 1, "partitions": 1, "batches": 30}
    assert destination.ledger()[1].seq == 31 and proof(destination).ok


def test_a_path_that_duckdb_cannot_keep(tmp_path: Path) -> None:
    with pytest.raises(DestinationError, match="has a '\\?'"):
        DuckDBDestination(tmp_path / "a?b.duckdb", "t", "p").commit(begin("p", [0]))
    assert not list(tmp_path.iterdir())


# -- a full disk


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
def test_full_disk(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", str(data)], check=False, capture_output=True).returncode:
        pytest.skip("a tmpfs cannot be mounted here")
    try:
        place = DuckDBPlace(tmp_path)
        destination = begun(place, 1)
        columns = Columns.of({"text": "VARCHAR"})
        done = 0
        with pytest.raises(DestinationError, match=r"(?i)space"):
            for end in range(20, 4000, 20):
                values = {"text": os.urandom(8000).hex()}
                destination.commit(batch(place, destination.ledger()[1], {0: end}, columns, values))
                done = end
        assert done
        assert positions(destination) == {0: done} and proof(destination).ok
        subprocess.run(["mount", "-o", "remount,size=40m", str(data)], check=True)
        destination.commit(batch(place, destination.ledger()[1], {0: done + 20}, columns, {"text": "x"}))
        assert positions(destination) == {0: done + 20} and proof(destination).ok
    finally:
        subprocess.run(["umount", str(data)], check=True)


# -- opening by definition


def pipeline(**into: object) -> Pipeline:
    return Pipeline.model_validate(
        {
            "name": "tweets",
            "source": {"brokers": "a,b:1", "topic": "tweets", "credentials": {"sasl.password": "{{ env('SECRET') }}"}},
            "into": {"table": "tweets", **into},
        }
    )


def test_open_destination(tmp_path: Path) -> None:
    home = Home.at(tmp_path)
    found = open_destination(pipeline(), home)
    assert isinstance(found, DuckDBDestination) and found.database.path == tmp_path / "data" / "kpipe.duckdb"
    named = open_destination(pipeline(database=str(tmp_path / "x.db")), home)
    assert isinstance(named, DuckDBDestination) and named.database.path == tmp_path / "x.db"
    found.commit(begin("tweets", [0]))
    config = found.view("pipelines")[0]["config_json"]
    assert '"connection_string": "a:9092,b:1/tweets"' in config and "SECRET" not in config and "***" in config
    assert summary(pipeline())["source_type"] == "KAFKA"
    with pytest.raises(NotAvailable, match=r"'paper' is not available.*use one of: .*duckdb"):
        open_destination(pipeline(type="paper"), home)
    with pytest.raises(InvalidPipeline, match="forget"):
        open_destination(pipeline(database=":memory:"), home)


def test_recount_does_not_mix_topics(place: DuckDBPlace) -> None:
    """Two topics with the same partition numbers and offsets in one table: totals are proven, ranges cannot be."""
    from kpipe.topics import TopicId

    other = TopicId("cluster-1", "topic-id-2", "other")
    destination = loaded(place)
    destination.commit(begin("tweets", [0], topic=other))
    destination.commit(batch(place, destination.ledger()[1], {0: 10}, topic=other))
    assert proof(destination).ok
    ledger, history, found = destination.ledger()[1], destination.history(), destination.recount()
    assert found.duplicates == {} and audit(ledger, history, found).ok and source(0) in ledger.sources()
