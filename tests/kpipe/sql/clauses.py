"""Clauses of CREATE PIPELINE, and the fields that they set."""

from __future__ import annotations

from typing import Any

from kpipe.sql import statements as s
from kpipe.sql.parser import read
from kpipe.sql.renderer import write

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
