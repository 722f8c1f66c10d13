"""The guides for those who come from elsewhere: what their tables and examples say is what the code does."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest
import yaml

from kpipe.batch.batch import Batch, Piece
from kpipe.definition.pipeline import Pipeline
from kpipe.definition.yaml_codec import from_yaml
from kpipe.errors import KpipeError
from kpipe.ingest.staging import wanted
from kpipe.offsets import Range
from kpipe.sql.create_table import made
from kpipe.sql.parser import read
from kpipe.sql.statements import Create
from kpipe.topics import PartitionId, TopicId
from kpipe_assets.validation import Needs, validate
from resources.decode.block import Payloads
from resources.decode.factory import sampled
from resources.destinations import open_destination
from resources.home import Home
from resources.kafka.record_block import RecordBlock
from resources.spark.driver.sample_stager import LocalStager
from resources.spark.task.range_writer import RangeOutput
from tests.commandline import Kpipe

FOLDER = Path(__file__).parents[3] / "docs" / "how-to"
SINGLESTORE = (FOLDER / "coming-from-singlestore.md").read_text(encoding="utf-8")
CONNECT = (FOLDER / "coming-from-kafka-connect.md").read_text(encoding="utf-8")
#: What the definition of each example does: records, their rows, and the reasons of dead letters.
TRIPS = """
```yaml
type: kpipe_assets.KafkaPipeline
attributes:
  name: trips
  source:
    brokers: "broker-1:9093,broker-2:9093"
    topic: trips
    config: {security.protocol: SASL_SSL, sasl.mechanism: SCRAM-SHA-512}
    credentials:
      sasl.username: "{{ env('KAFKA_USER') }}"
      sasl.password: "{{ env('KAFKA_PASSWORD') }}"
  batch: {interval_ms: 1000}
  format:
    mapping:
      id: id
      rider: {path: rider::name, default: nobody}
      "@requested": requested_at
    booleans: number
  set:
    requested_at: "mysql: STR_TO_DATE(@requested, '%Y-%m-%d %H:%i:%s')"
    source: "mysql: CONCAT(get_kafka_pipeline_prop('prop_topicname'), '/', get_kafka_pipeline_prop('prop_partition'))"
  where: "mysql: @requested <> ''"
  errors: {constraint: dead_letter}
  into: {table: trips, key: [id], on_conflict: replace}
```

```json
{"id": 1, "rider": {"name": "Ada"}, "requested_at": "2026-11-21 08:30:00"}
{"id": 2, "requested_at": "2026-11-21 08:31:00"}
{"id": 3, "requested_at": ""}
{"id": 4}
```

```json
{"id": 1, "rider": "Ada", "requested_at": "2026-11-21 08:30:00", "source": "trips/3"}
{"id": 2, "rider": "nobody", "requested_at": "2026-11-21 08:31:00", "source": "trips/3"}
```

```text
@requested: the record has no requested_at (DEFAULT NULL makes that NULL)
```
"""
VISITS = """
```sql
CREATE ROWSTORE TABLE visits (
    `id` bigint(20) unsigned NOT NULL,
    `offset` text CHARACTER SET utf8 COLLATE utf8_general_ci DEFAULT NULL,
    `seen` datetime(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
    `tags` json,
    `first` AS `tags`::$first PERSISTED text,
    PRIMARY KEY visits_key (`id`) USING HASH,
    SHARD KEY (`id`),
    KEY (`seen`) USING CLUSTERED COLUMNSTORE
);
```

```text
note: ignored, because it has no effect: ROWSTORE, SHARD KEY, KEY
note: COLLATE utf8_general_ci is ignored: texts are compared by their bytes, 'A' is not 'a'
```
"""
RECORDS = {
    "trips": TRIPS,
    "orders": """
```json
{"order_id": 7, "amount": "19.90", "at": 1795219200000, "email": "a@example.com", "status": "new"}
{"order_id": 8, "amount": "5", "at": 1795219260000, "email": "b@example.com", "status": "test"}
{"order_id": "x", "amount": "5", "at": 1795219260000, "email": null, "status": "new"}
```

```json
{"id": 7, "amount": "19.90", "origin": "web", "ordered_at": "2026-11-21 00:00:00", "email": "08168cd80dfd534ab0f10af10f1303fe00af2d43ab5c1432360d137f8197e17a"}
```

```text
id: Could not convert string 'x' to INT64 when casting from source column order_id
```
""",  # noqa: E501
    "customers": """
```json
{"op": "c", "before": null, "after": {"id": 1, "city": "Köln"}}
{"op": "u", "before": {"id": 1, "city": "Köln"}, "after": {"id": 1, "city": "Bonn"}}
{"op": "d", "before": {"id": 1, "city": "Bonn"}, "after": null}
```

```json
{"id": 1, "city": "Köln"}
{"id": 1, "city": "Bonn"}
```
""",
}
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
BASE = {
    "name": "p",
    "source": {"brokers": "b:9092", "topic": "orders"},
    "format": {"type": "json"},
    "into": {"table": "orders"},
}


def tables(page: str, mark: str) -> list[list[str]]:
    """Cells of every table behind that mark."""
    found = []
    for part in page.split(f"<!-- {mark}")[1:]:
        lines = part.splitlines()[3:]
        end = next(at for at, line in enumerate(lines) if not line.startswith("|"))
        found += [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[:end]]
    assert found, f"there is no table {mark}"
    return found


@pytest.fixture(autouse=True)
def variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that the pages name."""
    monkeypatch.setenv("KAFKA_USER", "u")
    monkeypatch.setenv("KAFKA_PASSWORD", "p")


def code(cell: str) -> str:
    found = re.match(r"`([^`]+)`", cell.strip())
    assert found, cell
    return found[1]


def merged(base: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    both = {key: value for key, value in base.items() if more.get(key, value) is not None}
    for key, value in more.items():
        inner = both.get(key)
        both[key] = merged(inner, value) if isinstance(inner, dict) and isinstance(value, dict) else value
    return both


def statement(clause: str) -> str:
    """A whole statement that has the clause where it belongs."""
    first = clause.split()[0]
    if first in ("PROFILE", "ALTER") or clause.startswith("CREATE INFERRED"):
        return clause
    source = clause if first in ("LINK", "S3") else "KAFKA 'b:9092/orders'"
    source = source if first != "TOPICS" else "KAFKA 'b:9092'"
    into = clause if first == "INTO" else "INTO TABLE orders"
    rows = first in ("FORMAT", "SET", "WHERE", "ON", "CHARACTER")
    before = "" if rows or first in ("INTO", "LINK", "S3") else clause
    behind = clause if rows else ""
    own = "FORMAT" in clause and not clause.endswith("KAFKA KEY (device)")
    return f"CREATE PIPELINE p AS LOAD DATA {source} {before} {into} {'' if own else 'FORMAT JSON'} {behind}"


def refusal(text: str, page: str, tmp_path: Path) -> str:
    """What is said against a statement, or fields of a definition."""
    with pytest.raises(KpipeError) as caught:
        if page == SINGLESTORE:
            found = read(statement(text))
            assert isinstance(found, Create)
            pipeline = found.pipeline
        else:
            pipeline = Pipeline.model_validate(merged(BASE, yaml.safe_load(text)))
        validate(pipeline, Home(tmp_path), Needs.FILES)
        open_destination(pipeline, Home(tmp_path))
        pytest.fail(f"the page says that it is refused: {text}")
    return str(caught.value)


@pytest.mark.parametrize(
    "cells",
    tables(SINGLESTORE, "clauses of the source") + tables(SINGLESTORE, "clauses of the rows"),
    ids=lambda cells: cells[0][:40],
)
def test_a_clause_becomes_what_the_page_says(cells: list[str]) -> None:
    found = read(statement(code(cells[0])))
    assert isinstance(found, Create)
    assert found.pipeline == Pipeline.model_validate(merged(BASE, yaml.safe_load(code(cells[1]))))


@pytest.mark.parametrize(
    ("page", "cells"),
    [(page, cells) for page in (SINGLESTORE, CONNECT) for mark in ("refused", "later") for cells in tables(page, mark)],
    ids=lambda value: value[0][:60] if isinstance(value, list) else "",
)
def test_what_the_pages_call_refused_is_refused_with_that_reason(page: str, cells: list[str], tmp_path: Path) -> None:
    assert code(cells[1]) in refusal(code(cells[0]), page, tmp_path)


@pytest.mark.parametrize("cells", tables(CONNECT, "settings"), ids=lambda cells: cells[0][:40])
def test_fields_for_settings_are_taken(cells: list[str], tmp_path: Path) -> None:
    if re.match(r"`[{a-z_]+: ", cells[1]):
        pipeline = Pipeline.model_validate(merged(BASE, yaml.safe_load(code(cells[1]))))
        validate(pipeline, Home(tmp_path), Needs.FILES)
        open_destination(pipeline, Home(tmp_path))


def test_every_setting_of_the_connector_is_in_a_table() -> None:
    connector = json.loads(next(text for kind, text in _BLOCK.findall(CONNECT) if kind == "json"))
    told = {name for cells in tables(CONNECT, "settings") for name in re.findall(r"`([^`]+)`", cells[0])}
    assert {"name", *connector["config"]} - told == {"value.converter", "pk.fields"}, (
        "converters and keys have tables of their own"
    )


def test_the_statement_is_the_file() -> None:
    blocks = _BLOCK.findall(SINGLESTORE + TRIPS)
    text, file = (next(text for kind, text in blocks if kind == wanted) for wanted in ("sql", "yaml"))
    found = read(text)
    assert isinstance(found, Create)
    assert found.pipeline == from_yaml(file)


def test_a_table_is_made_with_notes() -> None:
    (_, text), (_, notes) = _BLOCK.findall(VISITS)
    found = made(text.strip().rstrip(";"))
    assert [f"note: {note}" for note in found.notes] == notes.splitlines()
    with duckdb.connect() as connection:
        connection.execute(found.statements[0])
        kinds = {row[0]: row[1] for row in connection.execute("DESCRIBE visits").fetchall()}
    assert kinds == {"id": "UBIGINT", "offset": "VARCHAR", "seen": "TIMESTAMP", "tags": "JSON", "first": "VARCHAR"}


def examples() -> list[list[tuple[str, str]]]:
    """Each definition with its records, rows and reasons."""
    definitions = [text for kind, text in _BLOCK.findall(TRIPS + CONNECT) if kind == "yaml"]
    records = [(text, _BLOCK.findall(RECORDS[from_yaml(text).name])) for text in definitions]
    return [[("yaml", text), *(block for block in blocks if block[0] != "yaml")] for text, blocks in records]


def test_there_are_examples() -> None:
    assert len(examples()) == 3


@pytest.mark.parametrize("blocks", examples(), ids=lambda blocks: blocks[0][1].splitlines()[2].strip())
def test_an_example_gives_the_rows_that_stand_there(blocks: list[tuple[str, str]], tmp_path: Path) -> None:
    (_, definition), (_, records), (_, rows), *more = blocks
    pipeline = from_yaml(definition)
    validate(pipeline, Home(tmp_path), Needs.FILES)
    values = [line.encode() for line in records.splitlines()]
    stager = LocalStager(pipeline, Home(tmp_path).make())
    stager._seen[""] = "", sampled(pipeline.format, values)
    batch = Batch("b", "p", ())
    job = stager._shaped(batch, [wanted(pipeline, None, lambda: stager.columns(batch, 0))], None)
    topic = PartitionId(TopicId("c", "t", pipeline.source.topic or ""), 3)
    output = RangeOutput(job, Piece(topic, Range(0, len(values))))
    keyed = pipeline.key_format is not None
    held = RecordBlock.of(range(len(values)), [0] * len(values), values, [b'{"id": 1}'] * len(values) if keyed else None)
    payloads = Payloads.of_array(held.column("line"))
    output.decoded([reads.decode(payloads, *([held.column("key")] if keyed else [])) for reads in job.decoders], held)
    report = output.finish(len(values), 0, 0)
    assert shown(*report.tables[0].files) == [json.loads(line) for line in rows.splitlines()]
    assert [row["reason"] for row in shown(report.dead_letters)] == [line for _, text in more for line in text.splitlines()]


def shown(*files: Any) -> list[dict[str, Any]]:
    rows = [row for file in files if file is not None for row in pq.read_table(file.path).to_pylist()]
    kept = [{k: v for k, v in row.items() if not k.startswith("_kafka_")} for row in rows]
    return [{k: v if isinstance(v, int | float | str | None) else str(v) for k, v in row.items()} for row in kept]


@pytest.mark.broker
@pytest.mark.spark
def test_the_connector_that_was_taken_over_loads_its_topic(kpipe: Kpipe, topic: Any, write: Any) -> None:
    """The example on a real Kafka and a real Spark: its rows, its dead letter, and a row that takes the place of another."""
    blocks = next(blocks for blocks in examples() if "name: orders" in blocks[0][1])
    (_, definition), (_, records), (_, rows), (_, reasons) = blocks
    name = topic(1)
    first, *others = records.splitlines()
    write(name, [first.replace("19.90", "1.00"), *others, first])
    fields = yaml.safe_load(definition)["attributes"]
    source = {"brokers": kpipe.brokers, "topic": name}
    (kpipe.home / "pipelines").mkdir(parents=True, exist_ok=True)
    file = {"type": "kpipe_assets.KafkaPipeline", "attributes": {**fields, "source": source}}
    (kpipe.home / "pipelines" / "orders.yaml").write_text(yaml.safe_dump(file))
    line = kpipe.json("run", "orders")[0]
    assert [line[key] for key in ("messages", "rows", "inserted", "updated", "dead_letters", "filtered")] == [4, 2, 1, 1, 1, 1]
    (expected,) = (json.loads(row) for row in rows.splitlines())
    found = kpipe.sql("SELECT id, amount::VARCHAR, origin, ordered_at::VARCHAR, email FROM orders")
    assert found == [tuple(expected[key] for key in ("id", "amount", "origin", "ordered_at", "email"))]
    assert [error["error_message"] for error in kpipe.json("errors", "orders")] == reasons.splitlines()
    assert kpipe.json("verify", "orders")[0]["ok"]
