"""Statements in the forms that documentation and public scripts use, and what each one means."""

from __future__ import annotations

from typing import Any

import pytest

from kpipe.definition.pipeline import Pipeline, Timestamp
from kpipe.expressions.quoting import quoted
from kpipe.offsets import Range
from kpipe.sql import statements as s
from kpipe.sql.parser import is_complete, read, read_all
from kpipe.sql.renderer import to_sql, write

HEAD = "CREATE PIPELINE p AS LOAD DATA KAFKA 'kafka:9092/orders' "


def of(text: str) -> dict[str, Any]:
    """What a CREATE PIPELINE says beyond the defaults; proves on the way that writing and reading keep it."""
    statement = read(text)
    assert isinstance(statement, s.Create)
    assert read(write(statement)) == statement
    return statement.pipeline.to_dict()


def said(text: str) -> dict[str, Any]:
    """The same for clauses behind HEAD, without name, source and a bare table `t`."""
    fields = of(HEAD + text)
    assert fields.pop("name") == "p"
    source = fields.pop("source")
    assert (source.pop("brokers"), source.pop("topic")) == ("kafka:9092", "orders")
    into = fields.pop("into")
    assert into.pop("table") == "t"
    return {**fields, **({"source": source} if source else {}), **({"into": into} if into else {})}


CSV = {"format": {"type": "csv"}}


def counted(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields, with what a list of paths into JSON says beside them: `true` and `false` are 1 and 0."""
    made = dict(fields)
    for group in ("format", "key_format"):
        part = made.get(group)
        if isinstance(part, dict) and "mapping" in part and part.get("type", "json") == "json":
            made[group] = {**part, "booleans": "number"}
    return made


#: Clauses of CREATE PIPELINE, and what they say.
CLAUSES: list[tuple[str, dict[str, Any]]] = [
    # formats
    ("INTO TABLE t", CSV),
    ("INTO TABLE t FORMAT CSV", CSV),
    ("INTO TABLE t FORMAT JSON", {}),
    ("into table `t` format json;", {}),
    ("INTO TABLE t FORMAT RAW", {"format": {"type": "raw"}}),
    ("INTO TABLE t FIELDS TERMINATED BY ','", {"format": {"type": "csv", "delimiter": ","}}),
    (
        r"""INTO TABLE t FIELDS TERMINATED BY',' ENCLOSED BY'"' ESCAPED BY '\\' LINES TERMINATED BY '\r\n' STARTING BY ''""",
        {"format": {"type": "csv", "delimiter": ",", "quote": '"', "line_end": "\r\n"}},
    ),
    (
        r"INTO TABLE t FIELDS TERMINATED BY '\t' ENCLOSED BY '' ESCAPED BY '\\' LINES TERMINATED BY '\n' STARTING BY ''",
        CSV,
    ),
    (
        "INTO TABLE t COLUMNS TERMINATED BY '|' OPTIONALLY ENCLOSED BY '\\'' (id, @raw, name)",
        {"format": {"type": "csv", "delimiter": "|", "quote": "'", "fields": ["id", "@raw", "name"]}},
    ),
    (
        "INTO TABLE t(id, tweet)",
        {"format": {"type": "csv", "fields": ["id", "tweet"]}},
    ),
    (
        "INTO TABLE t CHARACTER SET utf8mb4 FORMAT CSV IGNORE 1 LINES NULL DEFINED BY 'null' OPTIONALLY ENCLOSED",
        {"format": {"type": "csv", "skip_lines": 1, "null": "null", "null_quoted": True}},
    ),
    (
        "INTO TABLE t FORMAT JSON (id <- id, name <- user::name, `t`.`at` <- %::`created at`, whole <- %, tag <- tags::0)",
        {"format": {"mapping": {
            "id": "id", "name": "user::name", "at": "`created at`", "whole": "%", "tag": "tags::0",
        }}},
    ),
    ("INTO TABLE t (doc <- %) FORMAT JSON", {"format": {"mapping": {"doc": "%"}}}),
    (
        "INTO TABLE t FORMAT JSON (a <- a DEFAULT NULL, b <- b DEFAULT 'x''y', c <- c DEFAULT -1.5, d <- d DEFAULT 7,"
        " e <- e DEFAULT true)",
        {"format": {"mapping": {
            "a": {"path": "a", "default": None}, "b": {"path": "b", "default": "x'y"}, "c": {"path": "c", "default": -1.5},
            "d": {"path": "d", "default": 7}, "e": {"path": "e", "default": True},
        }}},
    ),
    (
        """INTO TABLE t FORMAT AVRO (id <- Id, kind <- Event::Kind) SCHEMA '{"type": "record", "name": "r", "fields": []}'""",
        {"format": {"type": "avro", "mapping": {"id": "Id", "kind": "Event::Kind"},
                    "schema": '{"type": "record", "name": "r", "fields": []}'}},
    ),
    (
        "INTO TABLE t FORMAT AVRO SCHEMA REGISTRY 'registry:8081' (id <- id)",
        {"format": {"type": "avro", "registry": "registry:8081", "mapping": {"id": "id"}}},
    ),
    (
        "INTO TABLE t FORMAT JSON (id <- id) FORMAT CSV KAFKA KEY (k)",
        {"format": {"mapping": {"id": "id"}}, "key_format": {"type": "csv", "fields": ["k"]}},
    ),
    (
        "INTO TABLE t FORMAT AVRO SCHEMA REGISTRY 'r' FORMAT JSON KAFKA KEY (k <- %::id DEFAULT 0)",
        {"format": {"type": "avro", "registry": "r"}, "key_format": {"mapping": {"k": {"path": "id", "default": 0}}}},
    ),
    # as public scripts have them: the mapping behind the registry, texts in double quotes, in lower case
    (
        "BATCH_INTERVAL 2500 ENABLE OUT_OF_ORDER OPTIMIZATION SKIP CONSTRAINT ERRORS INTO TABLE t FORMAT AVRO\n"
        "SCHEMA REGISTRY 'r:8081' (`t`.`f1` <- `f1`, `t`.`f2` <- `f2`)",
        {"format": {"type": "avro", "registry": "r:8081", "mapping": {"f1": "f1", "f2": "f2"}},
         "errors": {"constraint": "dead_letter"}},
    ),
    (
        'WITH TRANSFORM ("file:///home/admin/transform.py", "", "") INTO TABLE t FIELDS TERMINATED BY "\\t" (a, b)',
        {"format": {"type": "csv", "fields": ["a", "b"]},
         "transform": {"program": "/home/admin/transform.py", "mode": "flatmap"}},
    ),
    ("into table t(id,tweet)", {"format": {"type": "csv", "fields": ["id", "tweet"]}}),
    ("SKIP ALL ERRORS INTO TABLE t(a) FIELDS TERMINATED BY',' ENCLOSED BY'\"'",
     {"format": {"type": "csv", "delimiter": ",", "quote": '"', "fields": ["a"]}, "errors": {"constraint": "dead_letter"},
      "into": {"on_conflict": "ignore"}}),
    ("INTO TABLE t FORMAT JSON (`t`.`id` <- payload::`meeting key`, doc <- %)",
     {"format": {"mapping": {"id": "payload::`meeting key`", "doc": "%"}}}),
    (
        "INTO TABLE t FORMAT JSON (a <- a, @ts <- ts) SET at = FROM_UNIXTIME(@ts DIV 1000), later ="
        " TIMESTAMPADD(HOUR, 1, NOW(6)), topic = get_kafka_pipeline_prop(\"prop_topicname\"),"
        " o = get_kafka_pipeline_prop('prop_offset') :> BIGINT",
        {"format": {"mapping": {"a": "a", "@ts": "ts"}},
         "set": {"at": "mysql: FROM_UNIXTIME(@ts DIV 1000)", "later": "mysql: TIMESTAMPADD(HOUR, 1, NOW(6))",
                 "topic": 'mysql: get_kafka_pipeline_prop("prop_topicname")',
                 "o": "mysql: get_kafka_pipeline_prop('prop_offset') :> BIGINT"}},
    ),
    # SET, WHERE
    (
        "INTO TABLE t FORMAT JSON (id <- id, @at <- at) SET at = STR_TO_DATE(@at, '%Y-%m-%dT%H:%i:%s.%f'), loaded = now()",
        {"format": {"mapping": {"id": "id", "@at": "at"}},
         "set": {"at": "mysql: STR_TO_DATE(@at, '%Y-%m-%dT%H:%i:%s.%f')", "loaded": "mysql: now()"}},
    ),
    (
        "INTO TABLE t FORMAT JSON (id <- id, @ms <- ms DEFAULT 0)\n"
        "SET `t`.`at` = FROM_UNIXTIME(@ms / 1000), -- milliseconds\n    day = DATE(FROM_UNIXTIME(@ms / 1000))\n"
        "WHERE id IS NOT NULL AND (id > 0 OR kind IN ('a', 'b'))",
        {"format": {"mapping": {"id": "id", "@ms": {"path": "ms", "default": 0}}},
         "set": {"at": "mysql: FROM_UNIXTIME(@ms / 1000)", "day": "mysql: DATE(FROM_UNIXTIME(@ms / 1000))"},
         "where": "mysql: id IS NOT NULL AND (id > 0 OR kind IN ('a', 'b'))"},
    ),
    (
        "INTO TABLE t FORMAT JSON SET o = get_kafka_pipeline_prop('prop_offset'), p = CAST(get_kafka_pipeline_prop("
        "'prop_partition') AS INT), tr = get_kafka_pipeline_prop('trace-id')",
        {"set": {"o": "mysql: get_kafka_pipeline_prop('prop_offset')",
                 "p": "mysql: CAST(get_kafka_pipeline_prop('prop_partition') AS INT)",
                 "tr": "mysql: get_kafka_pipeline_prop('trace-id')"}},
    ),
    (
        "INTO TABLE t FORMAT JSON WHERE COALESCE(city, '') <> '' SET a = IF(b > 1, 'x; y', NULL)",
        {"where": "mysql: COALESCE(city, '') <> ''", "set": {"a": "mysql: IF(b > 1, 'x; y', NULL)"}},
    ),
    # rows of the same key, records that do not fit
    ("REPLACE INTO TABLE t FORMAT JSON", {"into": {"on_conflict": "replace"}}),
    ("SKIP DUPLICATE KEY ERRORS INTO TABLE t KEY (id) FORMAT JSON", {"into": {"key": ["id"], "on_conflict": "ignore"}}),
    ("SKIP PARSER ERRORS INTO TABLE t FORMAT JSON", {}),
    ("SKIP CONSTRAINT ERRORS INTO TABLE t FORMAT JSON", {"errors": {"constraint": "dead_letter"}}),
    ("SKIP ALL ERRORS INTO TABLE t FORMAT JSON", {"errors": {"constraint": "dead_letter"}, "into": {"on_conflict": "ignore"}}),
    (
        "REPLACE SKIP ALL ERRORS INTO TABLE t FORMAT JSON",
        {"errors": {"constraint": "dead_letter"}, "into": {"on_conflict": "replace"}},
    ),
    (
        "INTO TABLE t KEY (id, day) FORMAT JSON (id <- id, n <- n) ON DUPLICATE KEY UPDATE n = VALUES(n), hits = hits + 1",
        {"format": {"mapping": {"id": "id", "n": "n"}},
         "into": {"key": ["id", "day"], "on_conflict": "update", "update": {"n": "mysql: VALUES(n)", "hits": "mysql: hits + 1"}}},
    ),
    ("INTO TABLE t FORMAT JSON ON DUPLICATE KEY UPDATE *", {"into": {"on_conflict": "update"}}),
    ("STOP_ON_ERROR OFF INTO TABLE t FORMAT JSON", {"errors": {"batch": "skip"}}),
    ("STOP_ON_ERROR ON INTO TABLE t FORMAT JSON", {}),
    # batches
    (
        "BATCH_INTERVAL 0 MAX_PARTITIONS_PER_BATCH 1 MAX_OFFSETS_PER_BATCH_PARTITION 5000 MAX_RETRIES_PER_BATCH_PARTITION 2"
        " MAX_BYTES_PER_BATCH_PARTITION 1000000 INTO TABLE t FORMAT JSON",
        {"batch": {"interval_ms": 0, "max_partitions": 1, "max_offsets_per_partition": 5000, "max_retries": 2,
                   "max_bytes_per_partition": 1000000}},
    ),
    (
        """MAX_RETRIES_PER_BATCH_PARTITION 1 RETRY_OPTIONS '{"exponential": false, "retry_interval": 500,"""
        """ "max_retry_interval": 900, "max_retries": 9}' INTO TABLE t FORMAT JSON""",
        {"batch": {"max_retries": 9, "retry_interval_ms": 500, "max_retry_interval_ms": 900, "exponential": False}},
    ),
    (
        "BATCH_INTERVAL 1000 MAX_PARTITIONS_PER_BATCH 1 DISABLE OUT_OF_ORDER OPTIMIZATION DISABLE OFFSETS METADATA GC"
        " REPLACE INTO TABLE t FORMAT JSON (`t`.`a` <- `A`) SET `loaded` = now()",
        {"batch": {"interval_ms": 1000, "max_partitions": 1}, "format": {"mapping": {"a": "A"}}, "set": {"loaded": "mysql: now()"},  # noqa: E501
         "into": {"on_conflict": "replace"}},
    ),
    # programs
    (
        "WITH TRANSFORM ('programs/clean.py') INTO TABLE t FORMAT JSON",
        {"transform": {"program": "programs/clean.py", "mode": "flatmap"}},
    ),
    (
        "WITH TRANSFORM ('file://localhost/opt/clean.py', '', '') INTO TABLE t FORMAT JSON",
        {"transform": {"program": "/opt/clean.py", "mode": "flatmap"}},
    ),
    (
        "WITH TRANSFORM ('file:///opt/clean.tar.gz', 'bin/clean', '-v --lang de') STDIN LENGTH_PREFIXED INTO TABLE t",
        {**CSV, "transform": {"program": "bin/clean", "archive": "/opt/clean.tar.gz", "args": ["-v", "--lang", "de"],
                              "stdin": "length-prefixed", "mode": "flatmap"}},
    ),
    ("WITH TRANSFORM ('p.py', 'p.py') MODE MAP INTO TABLE t FORMAT JSON", {"transform": {"program": "p.py"}}),
    # sources
    (
        """CONFIG '{"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-256", "sasl.username": "u",
            "ssl.ca.location": "/etc/ssl/ca.pem"}' CREDENTIALS '{"sasl.password": "${env:KAFKA_PASSWORD}"}'
            INTO TABLE t FORMAT JSON""",
        {"source": {
            "config": {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-256", "sasl.username": "u",
                       "ssl.ca.location": "/etc/ssl/ca.pem"},
            "credentials": {"sasl.password": "{{ env('KAFKA_PASSWORD') }}"},
        }},
    ),
    (
        r"""CONFIG '{\"client.id\": \"a\",\r\n \"fetch.min.bytes\": 5}' INTO TABLE t FORMAT JSON""",
        {"source": {"config": {"client.id": "a", "fetch.min.bytes": 5}}},
    ),
    ("OFFSETS LATEST INTO TABLE t FORMAT JSON", {"source": {"start": "latest"}}),
    (
        """OFFSETS '{"0": 120, "3": 7}' TO LATEST INTO TABLE t FORMAT JSON""",
        {"source": {"start": {"0": 120, "3": 7}, "end": "latest"}},
    ),
    (
        "OFFSETS TIMESTAMP '2026-11-20T00:00:00Z' INTO TABLE t FORMAT JSON",
        {"source": {"start": {"timestamp": "2026-11-20T00:00:00Z"}}},
    ),
    # what has no clause
    (
        """OPTIONS '{"schema": "fail", "columns": {"id": "BIGINT"}, "errors": {"parse": "fail"}, "asset": {"group": "sales"}}'
           INTO TABLE t FORMAT JSON""",
        {"schema": "fail", "columns": {"id": "BIGINT"}, "errors": {"parse": "fail"}, "asset": {"group": "sales"}},
    ),
    ("INTO TABLE t IN duckdb 'sales.duckdb' FORMAT JSON", {"into": {"database": "sales.duckdb"}}),
    ("INTO TABLE t IN delta FORMAT JSON", {"into": {"type": "delta"}}),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), CLAUSES, ids=[text[:70] for text, _ in CLAUSES])
def test_clauses_mean_what_they_say(text: str, expected: dict[str, Any]) -> None:
    assert said(text) == counted(expected)


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("KAFKA 'a,b:2/t'", {"brokers": "a,b:2", "topic": "t"}),
        ("KAFKA 'SSL://a:9093/t'", {"brokers": "SSL://a:9093", "topic": "t"}),
        ("KAFKA 'a/t1, t2'", {"brokers": "a", "topics": ["t1", "t2"]}),
        ("KAFKA 'a' TOPICS ('t1')", {"brokers": "a", "topics": ["t1"]}),
        ("KAFKA 'a' TOPIC PATTERN '^web\\\\.'", {"brokers": "a", "topic_pattern": "^web\\."}),
        ('KAFKA "a/t"', {"brokers": "a", "topic": "t"}),
        ("KAFKA 'a/${env:NOT_SET:-orders}'", {"brokers": "a", "topic": "orders"}),
    ],
)
def test_brokers_and_topics(text: str, source: dict[str, Any]) -> None:
    assert of(f"CREATE PIPELINE p AS LOAD DATA {text} INTO TABLE t FORMAT JSON")["source"] == source


@pytest.mark.parametrize(
    ("words", "flags"),
    [
        ("CREATE PIPELINE p", (False, False)),
        ("create or replace aggregator pipeline `p`", (True, False)),
        ("CREATE PIPELINE IF NOT EXISTS p", (False, True)),
        ("/* new */ CREATE -- x\n PIPELINE p", (False, False)),
    ],
)
def test_heads(words: str, flags: tuple[bool, bool]) -> None:
    found = read(f"{words} AS LOAD DATA KAFKA 'k/t' INTO TABLE t FORMAT JSON;")
    assert isinstance(found, s.Create)
    assert (found.pipeline.name, found.or_replace, found.if_not_exists) == ("p", *flags)


#: All other statements.
OTHERS: list[tuple[str, s.Statement]] = [
    ("DROP PIPELINE orders", s.Drop("orders")),
    ("DROP PIPELINE IF EXISTS `orders`;", s.Drop("orders", if_exists=True)),
    ("START PIPELINE orders", s.Start("orders")),
    ("start pipeline if not running orders", s.Start("orders", if_not_running=True)),
    ("START PIPELINE orders FOREGROUND", s.Start("orders", foreground=True)),
    ("START PIPELINE orders FOREGROUND LIMIT 1 BATCHES", s.Start("orders", foreground=True, limit=1)),
    ("START ALL PIPELINES", s.StartMany()),
    ("START ALL", s.StartMany()),
    ("START FAILED PIPELINES", s.StartMany(failed=True)),
    ("START ALL PIPELINES IF NOT RUNNING", s.StartMany()),
    (
        "ALTER PIPELINE orders SET RETRY_OPTIONS ::max_retries = '2' RETRY_OPTIONS ::exponential = 'false'",
        s.Alter("orders", (s.SetField(("batch", "max_retries"), 2), s.SetField(("batch", "exponential"), False))),
    ),
    ("STOP PIPELINE orders", s.Stop("orders")),
    ("STOP PIPELINE IF RUNNING orders CANCEL", s.Stop("orders", if_running=True, cancel=True)),
    ("STOP ALL PIPELINES", s.StopAll()),
    ("STOP PIPELINE orders DETACH", s.Detach("orders")),
    ("DETACH PIPELINE IF EXISTS orders", s.Detach("orders", if_exists=True)),
    ("TEST PIPELINE orders", s.Test("orders")),
    ("TEST PIPELINE orders LIMIT 1", s.Test("orders", 1)),
    ("SHOW PIPELINES", s.ShowPipelines()),
    ("SHOW CREATE PIPELINE orders", s.ShowCreate("orders")),
    ("SHOW CREATE PIPELINE orders EXTENDED", s.ShowCreate("orders", extended=True)),
    ("EXTRACT PIPELINE orders INTO OUTFILE 'sample'", s.Extract("orders", "sample")),
    ("EXTRACT PIPELINE orders FROM '3' INTO OUTFILE 'sample'", s.Extract("orders", "sample", 3)),
    ("EXTRACT PIPELINE orders FROM '3' OFFSETS 10 TO 20 INTO OUTFILE 's'", s.Extract("orders", "s", 3, Range(10, 20))),
    ("CLEAR PIPELINE ERRORS", s.ClearErrors()),
    ("CLEAR PIPELINE ERRORS FOR orders", s.ClearErrors("orders")),
    ("CLEAR ERRORS", s.ClearErrors()),
    ("REPLAY PIPELINE orders", s.Replay("orders")),
    ("TRUNCATE TABLE orders", s.Truncate("orders")),
    ("truncate `odd name`", s.Truncate("odd name")),
    ("DELETE FROM orders", s.Truncate("orders")),
    ("RESET PIPELINE orders", s.Reset(("orders",))),
    ("RESET PIPELINE orders, `late`", s.Reset(("orders", "late"))),
    ("BACKFILL PIPELINE orders", s.Backfill("orders")),
    ("BACKFILL PIPELINE orders PARTITION 2 FROM 100 TO 250", s.Backfill("orders", 2, Range(100, 250))),
    ("ALTER PIPELINE orders SET OFFSETS EARLIEST", s.Alter("orders", (s.SetOffsets("earliest"),))),
    ("ALTER PIPELINE orders SET OFFSETS LATEST", s.Alter("orders", (s.SetOffsets("latest"),))),
    ("ALTER PIPELINE orders SET OFFSETS '{\"0\":100,\"1\":5}' REREAD", s.Alter("orders", (s.SetOffsets({0: 100, 1: 5}, True),))),
    (
        "ALTER PIPELINE orders SET OFFSETS TIMESTAMP '2026-11-20 00:00:00'",
        s.Alter("orders", (s.SetOffsets(Timestamp.model_validate({"timestamp": "2026-11-20T00:00:00"})),)),
    ),
    (
        "ALTER PIPELINE orders SET BATCH_INTERVAL 500, MAX_PARTITIONS_PER_BATCH 2 STOP_ON_ERROR OFF",
        s.Alter("orders", (
            s.SetField(("batch", "interval_ms"), 500), s.SetField(("batch", "max_partitions"), 2),
            s.SetField(("errors", "batch"), "skip"),
        )),
    ),
    ("ALTER PIPELINE orders STOP_ON_ERROR NONE", s.Alter("orders", (s.SetField(("errors", "batch"), None),))),
    (
        "ALTER PIPELINE orders SET TRANSFORM ('p.py') RELOAD TRANSFORM",
        s.Alter("orders", (
            s.SetField(("transform",), {"program": "p.py", "stdin": "lines", "mode": "flatmap"}), s.ReloadTransform(),
        )),
    ),
    (
        """ALTER PIPELINE orders SET CONFIG '{"client.id": "x"}'""",
        s.Alter("orders", (s.SetField(("source", "config"), {"client.id": "x"}),)),
    ),
    (
        "ALTER PIPELINE orders SET CONFIG ::security.protocol = 'SSL' CREDENTIALS ::'ssl.key.password' = '${env:P}'",
        s.Alter("orders", (
            s.SetField(("source", "config", "security.protocol"), "SSL"),
            s.SetField(("source", "credentials", "ssl.key.password"), "{{ env('P') }}"),
        )),
    ),
    ("ALTER PIPELINE orders DROP PARTITION '3'", s.Alter("orders", (s.DropPartition(3),))),
    ("ALTER PIPELINE orders DROP PARTITION 3 REREAD", s.Alter("orders", (s.DropPartition(3, reread=True),))),
    ("ALTER PIPELINE orders DROP ORPHAN PARTITIONS", s.Alter("orders", (s.DropOrphans(),))),
    ("ALTER PIPELINE orders DISABLE OUT_OF_ORDER OPTIMIZATION", s.Alter("orders", ())),
    ("SELECT * FROM kpipe_pipelines WHERE state = 'error'", s.Query("SELECT * FROM kpipe_pipelines WHERE state = 'error'")),
    ("CREATE TABLE t (id BIGINT PRIMARY KEY)", s.Query("CREATE TABLE t (id BIGINT PRIMARY KEY)")),
    ("SHOW TABLES;", s.Query("SHOW TABLES")),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), OTHERS, ids=[text[:70] for text, _ in OTHERS])
def test_statements_mean_what_they_say(text: str, expected: s.Statement) -> None:
    assert read(text) == expected
    if expected != s.Alter("orders", ()):
        assert read(write(expected)) == expected


def test_there_are_enough() -> None:
    assert len(CLAUSES) + len(OTHERS) >= 80


def test_an_inferred_pipeline_is_called_as_its_topic() -> None:
    found = read("INFER PIPELINE AS LOAD DATA KAFKA 'k/web.orders-v2' FORMAT JSON")
    assert isinstance(found, s.Infer)
    assert (found.pipeline.name, found.pipeline.into.table) == ("web_orders_v2", "web_orders_v2")
    named = read("INFER PIPELINE AS LOAD DATA KAFKA 'k/7' INTO TABLE seven FORMAT JSON")
    assert isinstance(named, s.Infer)
    assert named.pipeline.name == "seven"


def test_words_of_the_grammar_are_names_where_names_stand() -> None:
    text = """CREATE PIPELINE start AS LOAD DATA KAFKA 'k/key' INTO TABLE set KEY (key, format) FORMAT JSON
              (key <- key, format <- format, `where` <- where::set, offset <- from) SET lines = key + lines, fields = x"""
    fields = of(text)
    assert (fields["name"], fields["into"]) == ("start", {"table": "set", "key": ["key", "format"]})
    assert fields["format"]["mapping"] == {"key": "key", "format": "format", "where": "where::set", "offset": "from"}
    assert fields["set"] == {"lines": "mysql: key + lines", "fields": "mysql: x"}


def test_duckdb_s_language_stands_in_quotes() -> None:
    """Statements are MySQL's, definitions DuckDB's; each can hold the other."""
    inner = "list_sum(a) || '" + chr(92) + "'"
    text = f"INTO TABLE t FORMAT JSON SET `b` = DUCKDB({quoted(inner)}), `c` = a + 1 WHERE DUCKDB('a IS NOT NULL')"
    fields = said(text)
    assert fields["set"] == {"b": inner, "c": "mysql: a + 1"}
    assert fields["where"] == "a IS NOT NULL"
    assert f"DUCKDB({quoted(inner)})" in to_sql(Pipeline.model_validate(of(HEAD + text)))


def test_a_script_of_statements() -> None:
    script = """
    -- a pipeline; and its start
    CREATE PIPELINE p AS LOAD DATA KAFKA 'k/t' INTO TABLE t FORMAT JSON SET a = ';';
    START PIPELINE p /* now; */ ; ;
    SELECT ';', "a;b" FROM t # the end;
    """
    assert [type(item) for item in read_all(script)] == [s.Create, s.Start, s.Query]


@pytest.mark.parametrize(
    ("text", "complete"),
    [
        ("", True),
        ("  -- nothing\n", True),
        ("SELECT 1", False),
        ("SELECT 1;", True),
        ("SELECT ';", False),
        ("SELECT ';'", False),
        ("SELECT 1; -- done;", True),
        ("SELECT 1 /* ;", False),
    ],
)
def test_when_a_line_ends_a_statement(text: str, complete: bool) -> None:
    assert is_complete(text) == complete


def test_true_and_false_are_numbers_in_statements_and_stay_what_they_are_in_files() -> None:
    assert said("INTO TABLE t FORMAT JSON (a <- a)") == {"format": {"mapping": {"a": "a"}, "booleans": "number"}}
    text = """OPTIONS '{"format": {"booleans": "json"}}' INTO TABLE t FORMAT JSON (a <- a)"""
    assert said(text) == {"format": {"mapping": {"a": "a"}}}
    assert said("INTO TABLE t FORMAT JSON") == {}
    fields = {
        "name": "p",
        "source": {"brokers": "b:9092", "topic": "t"},
        "into": {"table": "t"},
        "format": {"mapping": {"a": "a"}},
    }
    for format_ in ({"mapping": {"a": "a"}}, {"mapping": {"a": "a"}, "booleans": "number"}):
        pipeline = Pipeline.model_validate({**fields, "format": format_})
        statement = read(to_sql(pipeline))
        assert isinstance(statement, s.Create)
        assert statement.pipeline == pipeline
        assert ('"booleans"' in to_sql(pipeline)) == ("booleans" not in format_)
