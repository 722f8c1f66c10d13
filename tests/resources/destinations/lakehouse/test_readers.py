"""Tables of a lake as others read them: rows of every type, columns that came later, dead letters left out."""

from __future__ import annotations

import json
import subprocess
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import polars
import pytest

from bench.peers import install
from kpipe.provenance.facts import Versioned
from kpipe.schema.columns import Columns
from resources.testing.lake import LakePlace
from resources.testing.place import COLUMNS, batch
from resources.testing.state import begun
from tests.resources.destinations.lake_place import DeltaPlace, IcebergPlace

MORE = Columns.of(
    {
        "flag": "BOOLEAN", "small": "SMALLINT", "exact": "DECIMAL(20,4)", "real": "DOUBLE", "raw": "BLOB", "day": "DATE",
        "moment": "TIMESTAMP WITH TIME ZONE", "items": "BIGINT[]", "who": "STRUCT(name VARCHAR, tags VARCHAR[])",
    }
)  # fmt: skip
VALUES: dict[str, Any] = {
    "id": 2**62, "text": "\u00e9\U0001f600'\"\\", "flag": True, "small": -32768, "exact": Decimal("1234567890123456.7891"),
    "real": 0.1, "raw": b"\x00\xff", "day": -1, "moment": 1_700_000_000_123_456,
    "items": [1, None], "who": {"name": None, "tags": ["a", ""]},
}  # fmt: skip
QUERY = """SELECT _kafka_offset AS o, id, text, flag, small, CAST(exact AS VARCHAR) AS exact, real, hex(raw) AS raw,
 CAST(day AS VARCHAR) AS day, epoch_us(moment) AS moment, CAST(items AS VARCHAR) AS items, who.name AS name, who.tags[1] AS tag
 FROM lake ORDER BY 1"""
PLAIN = (None,) * 10
EXPECTED = [
    (0, 0, "t0", *PLAIN),
    (2, 2, "t2", *PLAIN),
    *(
        (
            n, 2**62, VALUES["text"], True, -32768, "1234567890123456.7891", 0.1, "00FF", "1969-12-31", 1_700_000_000_123_456,
            "[1, NULL]", None, "a",
        )
        for n in (3, 4)
    ),
]  # fmt: skip


@pytest.fixture(params=["delta", "iceberg"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> LakePlace:
    """Two batches: the second brings columns; between them a dead letter."""
    place = {"delta": DeltaPlace, "iceberg": IcebergPlace}[request.param](tmp_path)
    destination = begun(place, 1)
    destination.commit(batch(place, destination.ledger()[1], {0: 3}, dead=[(0, 1)]))
    destination.commit(batch(place, destination.ledger()[1], {0: 5}, Columns((*COLUMNS, *MORE)), VALUES))
    return place


def asked(lake: Any) -> list[tuple[Any, ...]]:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("lake", lake)
        return connection.execute(QUERY).fetchall()


def test_polars_reads_it(place: LakePlace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")  # else a warning names a faster package
    if isinstance(place, DeltaPlace):
        frame = polars.scan_delta(place.delta())
    else:
        assert isinstance(place, IcebergPlace)
        frame = polars.scan_iceberg(place.iceberg())
    assert asked(frame.collect().to_arrow()) == EXPECTED
    assert frame.filter(polars.col("small") < 0).select("id").collect().to_series().to_list() == [2**62] * 2


def test_arrow_and_duckdb_read_it(place: LakePlace) -> None:
    if isinstance(place, DeltaPlace):
        assert asked(place.delta().to_pyarrow_dataset()) == EXPECTED
    else:
        assert isinstance(place, IcebergPlace)
        assert asked(place.iceberg().scan().to_arrow()) == EXPECTED


# In the Python of a Spark that both formats are published for; it is not the one that kpipe runs on.
SPARK = """
import json, sys
from pyspark.sql import SparkSession
jars, kind, folder, *queries = sys.argv[1:]
settings = {
    "spark.master": "local[1]", "spark.jars": jars, "spark.ui.enabled": "false", "spark.sql.session.timeZone": "UTC",
    "spark.driver.host": "127.0.0.1", "spark.log.level": "ERROR", "spark.sql.shuffle.partitions": "1",
    "spark.sql.catalog.kpipe": "org.apache.iceberg.spark.SparkCatalog", "spark.sql.catalog.kpipe.type": "jdbc",
    "spark.sql.catalog.kpipe.uri": f"jdbc:sqlite:{folder}/catalog.db", "spark.sql.catalog.kpipe.warehouse": folder,
} if kind == "iceberg" else {
    "spark.master": "local[1]", "spark.jars": jars, "spark.ui.enabled": "false", "spark.sql.session.timeZone": "UTC",
    "spark.driver.host": "127.0.0.1", "spark.log.level": "ERROR",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
builder = SparkSession.builder
for key, value in settings.items():
    builder = builder.config(key, value)
spark = builder.getOrCreate()
spark.table("kpipe.default.tweets").createTempView("t") if kind == "iceberg" else spark.read.format("delta").load(
    folder + "/tweets").createTempView("t")
rows = spark.sql(
    "SELECT _kafka_offset, id, text, flag, small, CAST(exact AS STRING), real, hex(raw), CAST(day AS STRING),"
    " unix_micros(moment), CAST(items AS STRING), who.name, who.tags[0] FROM t ORDER BY 1").collect()
print("rows", json.dumps([list(row) for row in rows]))
for query in queries:
    print("offsets", json.dumps(sorted(row["_kafka_offset"] for row in spark.sql(query).collect())))
"""


@pytest.mark.chaos
def test_spark_reads_it(place: LakePlace, tmp_path: Path) -> None:
    kind = "delta" if isinstance(place, DeltaPlace) else "iceberg"
    names = ("delta",) if kind == "delta" else ("spark-iceberg", "sqlite")
    destination = place.open()
    assert isinstance(destination, Versioned)
    snapshots = destination.snapshots([2, 3])  # the first commit has no rows
    queries = [
        next(query.text for query in destination.queries(snapshots[seq], condition) if query.engine == "Spark SQL")
        for seq, condition in ((2, ""), (3, ""), (3, "NOT (_kafka_partition = 0 AND _kafka_offset >= 4)"))
    ]
    peers = install(*names)
    jars = ",".join(map(str, peers.jars(*names)))
    done = subprocess.run(
        [str(peers.python), "-c", SPARK, jars, kind, str(place.folder), *queries],
        capture_output=True, text=True, env=peers.environment(), cwd=tmp_path, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("rows ")]
    assert [tuple(row) for row in json.loads(line.removeprefix("rows "))] == [
        tuple("[1, null]" if value == "[1, NULL]" else value for value in row) for row in EXPECTED
    ]
    offsets = [json.loads(line.removeprefix("offsets ")) for line in done.stdout.splitlines() if line.startswith("offsets ")]
    assert offsets == [[0, 2], [0, 2, 3, 4], [0, 2, 3]]
