"""Tables, views and growth of a DuckDB file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kpipe.definition.pipeline import Pipeline
from kpipe.errors import (
    DestinationError,
    InvalidPipeline,
    NotAvailable,
    SchemaConflict,
    StagingFailed,
)
from kpipe.schema.columns import Columns
from kpipe.verification.verify import audit
from resources.destinations import open_destination, summary
from resources.destinations.duckdb import DuckDBEngine
from resources.destinations.sql.destination import SqlDestination
from resources.destinations.sql.engine import TargetTable
from resources.home import Home
from resources.testing.place import COLUMNS, COORDINATES, arrow, batch, begin, source
from resources.testing.state import begun, loaded, proof
from tests.resources.destinations.place import DuckDBPlace


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
        ("id SMALLINT, text VARCHAR", "column id is SMALLINT in the table, the batch contains BIGINT"),
        ("id BIGINT, text BLOB", "column text is BLOB in the table, the batch contains VARCHAR"),
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
        ("id BIGINT CHECK (id <> 5), text VARCHAR", None, [5], "rejected by the table: CHECK"),
        ("id BIGINT CHECK (id < 7), text VARCHAR", None, [7, 8, 9], "rejected by the table: CHECK"),
        ("id BIGINT NOT NULL, text VARCHAR", {"id": None, "text": "x"}, [*range(10)], "id: NULL in a NOT NULL column"),
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
        destination.commit(commit.writing(columns=Columns((*COLUMNS.items, *Columns.of({"_Kafka_Offset": "BIGINT"}).items))))


def test_file_that_lacks_a_column_is_refused(place: DuckDBPlace) -> None:
    destination = begun(place)
    commit = batch(place, destination.ledger()[1], {0: 1})
    with pytest.raises(StagingFailed, match=r"column 'more' of batch .* is missing"):
        destination.commit(commit.writing(columns=Columns.of({"id": "BIGINT", "text": "VARCHAR", "more": "DATE"})))
    with pytest.raises(StagingFailed, match=r"column 'id' has type BIGINT, batch .* expects INTEGER"):
        destination.commit(commit.writing(columns=Columns.of({"id": "INTEGER", "text": "VARCHAR"})))


def test_coordinates_on_request(place: DuckDBPlace) -> None:
    import pyarrow as pa

    from resources.testing.place import HEADERS

    destination = loaded(place)
    commit = batch(place, destination.ledger()[1], {0: 11})
    fields = [(name, arrow(kind)) for name, kind in COLUMNS] + list(COORDINATES.items())
    fields += [("_kafka_topic", pa.string()), ("_kafka_key", pa.binary()), ("_kafka_headers", HEADERS)]
    row = {"id": 1, "_kafka_partition": 0, "_kafka_offset": 10, "_kafka_topic": "tweets", "_kafka_key": b"\x00"}
    row["_kafka_headers"] = [{"name": "h", "value": None}, {"name": "h", "value": b"2"}]
    destination.commit(commit.writing(files=(place.file([row], pa.schema(fields)),)))
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
    destination.commit(commit.writing(files=(file,)))
    assert proof(destination).ok
    place.sql("DELETE FROM tweets WHERE id = 1")
    assert proof(destination).problems == ["partition 0: expected 3 rows, found 2 in the table"]


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
    with pytest.raises(DestinationError, match="cannot write a log for a path with '\\?'"):
        SqlDestination(DuckDBEngine(tmp_path / "a?b.duckdb"), "p", [TargetTable("t")]).commit(begin("p", [0]))
    assert not list(tmp_path.iterdir())


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
    assert isinstance(found, SqlDestination) and isinstance(found.engine, DuckDBEngine)
    assert found.engine.database.path == tmp_path / "data" / "kpipe.duckdb"
    named = open_destination(pipeline(database=str(tmp_path / "x.db")), home)
    assert isinstance(named, SqlDestination) and isinstance(named.engine, DuckDBEngine)
    assert named.engine.database.path == tmp_path / "x.db"
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
    assert found.tables["tweets"].duplicates == {} and audit(ledger, history, found).ok and source(0) in ledger.sources()
