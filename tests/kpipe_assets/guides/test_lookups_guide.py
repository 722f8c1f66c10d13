"""The guide to lookups: its example, and further ones in the same form, give the rows that follow."""

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
from kpipe.definition.lookups import Version
from kpipe.definition.pipeline import Pipeline
from kpipe.ingest.staging import wanted
from kpipe.offsets import Range
from kpipe.sql.parser import read
from kpipe.sql.renderer import write
from kpipe.topics import PartitionId, TopicId
from kpipe_assets.validation import Needs, validate
from resources.decode.block import Payloads
from resources.decode.factory import sampled
from resources.home import Home
from resources.kafka.record_block import RecordBlock
from resources.lookups.table_source import asking
from resources.spark.driver.sample_stager import LocalStager
from resources.spark.task.range_writer import RangeOutput

GUIDE = (Path(__file__).parents[3] / "docs" / "how-to" / "lookups.md").read_text(encoding="utf-8")
#: A query with a key of two columns, a key that must be there, and a statement: the page only names them.
MORE = """
```sql
CREATE TABLE rates (currency VARCHAR, day DATE, rate DECIMAL(10,4));
INSERT INTO rates VALUES ('USD', '2026-11-21', 0.9), ('USD', '2026-11-22', 0.91),
    ('GBP', '2026-11-21', 1.15), ('GBP', '2026-11-21', 1.17);
```

```yaml
lookups:
  rates:
    query: SELECT currency, day, max(rate) AS rate FROM rates GROUP BY ALL
    key: [currency, day]
select: |
  SELECT id, CAST(amount AS DECIMAL(10,2)) * rates(currency, "at"[:10]).rate AS euros FROM records
```

```json
{"id": 1, "amount": "10.00", "currency": "USD", "at": "2026-11-21T10:00:00Z"}
{"id": 2, "amount": "10.00", "currency": "USD", "at": "2026-11-22T10:00:00Z"}
{"id": 3, "amount": "10.00", "currency": "GBP", "at": "2026-11-21T10:00:00Z"}
{"id": 4, "amount": "10.00", "currency": "CHF", "at": "2026-11-21T10:00:00Z"}
```

```json
{"id": 1, "euros": "9.000000"}
{"id": 2, "euros": "9.100000"}
{"id": 3, "euros": "11.700000"}
{"id": 4, "euros": null}
```

File `products.jsonl`:

```jsonl
{"sku": 17, "name": "chair", "size": {"height": 90}}
{"sku": 18, "name": "table", "size": {"height": 75}}
```

```yaml
lookups:
  products: {path: products.jsonl, key: sku, required: true}
set:
  product: products(sku).name
  height: products(sku).size.height
errors: {constraint: dead_letter}
```

```json
{"id": 1, "sku": 18}
{"id": 2, "sku": 99}
{"id": 3}
```

```json
{"id": 1, "sku": 18, "product": "table", "height": 75}
```

```text
products(sku): the lookup has no row for 99
products(sku): the lookup has no row for NULL
```

```text
CREATE PIPELINE orders AS LOAD DATA KAFKA 'localhost:9092/orders'
LOOKUP countries KEY (code) FROM 'countries.csv' SETTINGS '{"required": true}'
LOOKUP rates KEY (currency, day) FROM QUERY 'SELECT * FROM rates'
LOOKUP products KEY (sku) FROM TABLE products
LOOKUP stock KEY (sku) FROM URL 'https://stock.example.com/all.json' SETTINGS '{"credentials": {"token": "${env:STOCK_TOKEN}"}}'
INTO TABLE orders FORMAT JSON
SET country = countries(country_code).name;
```
"""
_BLOCK = re.compile(r"(?:^File `([^`]+)`:\n\n)?^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
SOURCE = PartitionId(TopicId("c", "t", "orders"), 3)


def examples() -> list[list[tuple[str, str]]]:
    """A definition, records, rows, and perhaps reasons."""
    found: list[list[tuple[str, str]]] = []
    for _, kind, text in _BLOCK.findall(GUIDE + MORE):
        if kind == "yaml":
            found.append([])
        if found and len(found[-1]) < 4 and (kind in ("yaml", "json") or (kind == "text" and len(found[-1]) == 3)):
            found[-1].append((kind, text))
    return found


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """The files and tables of the guide."""
    home = Home(tmp_path / "home").make()
    for name, kind, text in _BLOCK.findall(GUIDE + MORE):
        if name:
            (tmp_path / name).write_text(text)
        elif kind == "sql":
            with duckdb.connect(str(home.data / "kpipe.duckdb")) as connection:
                connection.execute(text)
    monkeypatch.chdir(tmp_path)
    return home


@pytest.mark.parametrize("blocks", examples(), ids=lambda blocks: blocks[0][1].split("\n")[1].strip()[:40])
def test_an_example_gives_the_rows_that_stand_there(blocks: list[tuple[str, str]], home: Home) -> None:
    (_, definition), (_, records), (_, rows), *more = blocks
    base = {"name": "p", "source": {"brokers": "b:9092", "topic": "orders"}, "into": {"table": "t"}}
    pipeline = Pipeline.model_validate({**base, **yaml.safe_load(definition)})
    validate(pipeline, home, Needs.FIELDS)
    values = [line.encode() for line in records.splitlines()]
    stager = LocalStager(pipeline, home, ask=asking(pipeline, home))
    stager._seen[""] = "", sampled(pipeline.format, values)
    batch = Batch("b", "p", ())
    job = stager._shaped(batch, [wanted(pipeline, None, lambda: stager.columns(batch, 0))], None)
    output = RangeOutput(job, Piece(SOURCE, Range(0, len(values))))
    held = RecordBlock.of(range(len(values)), [0] * len(values), values)
    output.decoded([reads.decode(Payloads.of_array(held.column("line"))) for reads in job.decoders], held)
    report = output.finish(len(values), 0, 0)
    assert found(*report.tables[0].files) == [json.loads(line) for line in rows.splitlines()]
    reasons = [row["reason"] for row in found(report.dead_letters)]
    assert reasons == [line for kind, text in more if "the lookup has no row" in text for line in text.splitlines()]
    (version,) = report.lookups.values()
    assert isinstance(version, Version) and version.rows > 1


def found(*files: Any) -> list[dict[str, Any]]:
    rows = [row for file in files if file is not None for row in pq.read_table(file.path).to_pylist()]
    shown = [{k: v for k, v in row.items() if not k.startswith("_kafka_")} for row in rows]
    return [{k: v if isinstance(v, int | float | str | None) else str(v) for k, v in row.items()} for row in shown]


def test_there_are_examples() -> None:
    assert [len(blocks) >= 3 for blocks in examples()] == [True] * 3


def test_definitions_and_a_statement_can_be_read() -> None:
    statements = [text for _, kind, text in _BLOCK.findall(MORE) if kind == "text" and text.startswith("CREATE PIPELINE")]
    fields = [text for _, kind, text in _BLOCK.findall(GUIDE) if kind == "text" and text.startswith("lookups:")]
    assert len(statements) == len(fields) == 1
    statement: Any = read(statements[0])
    assert read(write(statement)) == statement
    assert [lookup.kind for lookup in statement.pipeline.lookups.values()] == ["path", "query", "table", "url"]
    base = {"name": "p", "source": {"brokers": "b:9092", "topic": "orders"}, "into": {"table": "t"}}
    for text in fields:
        Pipeline.model_validate({**base, **yaml.safe_load(text)})
