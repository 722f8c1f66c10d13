"""Tables with a key as others read them: replaced and deleted rows are in no reader's answer."""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path
from typing import Any

import polars
import pytest

from bench.peers import install
from resources.testing.kept_values import RULE, Change, changed
from resources.testing.keyed import COLUMNS, RULES, Write, begun, commit_of
from resources.testing.place import Place
from tests.resources.destinations.lake_place import DeltaPlace, IcebergPlace

Rows = list[list[Any]]


def filled(place: Place) -> None:
    """Six batches of writes of 30 keys: a fifth of them are deletes, some keep the row's text, and one deletes all rows."""
    chance, there = random.Random(3), set[int]()
    destination = begun(place, RULE, 1)
    for first in range(0, 120, 20):
        writes: list[Change] = []
        for at in range(first, first + 20):
            key = chance.randint(0, 30)
            if at == 50:
                there.clear()
                writes.append((0, at, -1, None, set()))
            elif chance.random() < 0.2:
                there.discard(key)
                writes.append((0, at, key, None, set()))
            else:
                kept = {"text"} if key in there and chance.random() < 0.4 else set[str]()
                there.add(key)
                writes.append((0, at, key, {"text": f"t{at}", "n": at}, kept))
        destination.commit(changed(place, destination.ledger()[1], writes, columns=COLUMNS))


@pytest.fixture
def place(tmp_path: Path) -> IcebergPlace:
    place = IcebergPlace(tmp_path)
    filled(place)
    return place


def expected(place: Place) -> Rows:
    rows = sorted([row["id"], row["text"]] for row in place.rows())
    assert len(rows) == 23
    return rows


def test_polars_reads_it(place: IcebergPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")  # else a warning names a faster package
    frame = polars.scan_iceberg(place.iceberg())
    assert sorted(map(list, frame.select("id", "text").collect().rows())) == expected(place)
    some = frame.filter(polars.col("id") < 10).select("id").collect().to_series().to_list()
    assert sorted(some) == [key for key, _ in expected(place) if key < 10]


SPARK = """
import json, sys
from pyspark.sql import SparkSession
jars, folder = sys.argv[1:]
settings = {
    "spark.master": "local[1]", "spark.jars": jars, "spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1",
    "spark.log.level": "ERROR", "spark.sql.shuffle.partitions": "1",
    "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    "spark.sql.catalog.kpipe": "org.apache.iceberg.spark.SparkCatalog", "spark.sql.catalog.kpipe.type": "jdbc",
    "spark.sql.catalog.kpipe.uri": f"jdbc:sqlite:{folder}/catalog.db", "spark.sql.catalog.kpipe.warehouse": folder,
}
builder = SparkSession.builder
for key, value in settings.items():
    builder = builder.config(key, value)
spark = builder.getOrCreate()
read = lambda: sorted(list(row) for row in spark.sql("SELECT id, text FROM kpipe.default.tweets").collect())
print("rows", json.dumps(read()))
spark.sql("CALL kpipe.system.rewrite_data_files(table => 'default.tweets', options => map('rewrite-all', 'true'))").collect()
print("rows", json.dumps(read()))
"""


@pytest.mark.chaos
def test_spark_reads_and_compacts_it(place: IcebergPlace, tmp_path: Path) -> None:
    """Then the next batch finds the rows in the files that Spark has written."""
    names = ("spark-iceberg", "sqlite")
    peers = install(*names)
    jars = ",".join(map(str, peers.jars(*names)))
    before = expected(place)
    done = subprocess.run(
        [str(peers.python), "-c", SPARK, jars, str(place.folder)],
        capture_output=True, text=True, env=peers.environment(), cwd=tmp_path, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    found = [json.loads(line.removeprefix("rows ")) for line in done.stdout.splitlines() if line.startswith("rows ")]
    assert found == [before, before]
    destination = place.open(rule=RULES["replace"])
    key = before[3][0]
    destination.commit(commit_of(place, destination.ledger()[1], [Write(0, 120, key, "new")], RULES["replace"]))
    assert sorted([row["id"], row["text"]] for row in place.rows()) == [[k, "new" if k == key else t] for k, t in before]


DELTA = """
import json, sys
from pyspark.sql import SparkSession
jars, folder = sys.argv[1:]
settings = {
    "spark.master": "local[1]", "spark.jars": jars, "spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1",
    "spark.log.level": "ERROR", "spark.sql.shuffle.partitions": "1",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
builder = SparkSession.builder
for key, value in settings.items():
    builder = builder.config(key, value)
spark = builder.getOrCreate()
read = lambda: sorted(list(row) for row in spark.sql(f"SELECT id, text FROM delta.`{folder}/tweets`").collect())
print("rows", json.dumps(read()))
spark.sql(f"DELETE FROM delta.`{folder}/tweets` WHERE id = 5")
print("rows", json.dumps(read()))
"""


@pytest.mark.chaos
def test_spark_reads_vectors_and_writes_its_own(tmp_path: Path) -> None:
    """Spark extends the vectors by a row that it deletes; the next batch inserts that key."""
    place = DeltaPlace(tmp_path)
    filled(place)
    peers = install("delta")
    before = expected(place)
    assert 5 in dict(before)
    done = subprocess.run(
        [str(peers.python), "-c", DELTA, ",".join(map(str, peers.jars("delta"))), str(place.folder)],
        capture_output=True, text=True, env=peers.environment(), cwd=tmp_path, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    found = [json.loads(line.removeprefix("rows ")) for line in done.stdout.splitlines() if line.startswith("rows ")]
    after = [row for row in before if row[0] != 5]
    assert found == [before, after]
    destination = place.open(rule=RULES["replace"])
    landed = destination.commit(commit_of(place, destination.ledger()[1], [Write(0, 120, 5, "new")], RULES["replace"]))
    assert landed.commit.totals.inserted == 1
    assert sorted([row["id"], row["text"]] for row in place.rows()) == sorted([*after, [5, "new"]])
