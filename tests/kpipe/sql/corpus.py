"""Statements as SingleStore's documentation has them: the same clauses in the same places, names and brokers of our own.

Each names its page, by the last part of its address below https://docs.singlestore.com, and what it must do: the fields of the
definition (in YAML's names), the value of the statement, or the sentence by which it is refused and what is told instead.
Secrets are the one thing that had to change: they are names of variables here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["DEFINED", "REFUSED", "TABLES", "Published"]


@dataclass(frozen=True)
class Published:
    """A statement.

    Attributes:
        page: that it follows.
        text: of the statement.
        fields: of the definition, beside name, source and table `t` of topic `k:9092/t`, and CSV.
        said: what is said: words of the refusal, or the column names of a table.
        instead: words of the hint.
    """

    page: str
    text: str
    fields: dict[str, Any] = field(default_factory=dict)
    said: str = ""
    instead: str = ""


_QUICK = "load-data-from-kafka-using-a-pipeline"
_CREATE = "create-pipeline"
_MORE = "additional-create-pipeline-examples"
_JSON = "kafka-pipeline-using-json-format"
_AVRO = "kafka-pipeline-using-avro-format"
_PROPS = "retrieve-kafka-properties"
_SECURE = "load-data-from-kafka"
_SETTINGS = "configuration-options-for-different-sources"
_TRANSFORM = "create-pipeline-with-transform"
_WRITING = "writing-a-transform-to-use-with-a-pipeline"
_PROCEDURE = "create-pipeline-into-procedure"
_ALTER = "alter-pipeline"
_EVOLUTION = "avro-schema-evolution-with-pipelines"
_PATHS = "extracting-and-converting-json-values"
_AVRO_PATHS = "load-avro-files-examples"
_SHAPING = "data-shaping-with-pipelines"
_ORDER = "data-loading-for-kafka-pipelines"
_RETRIES = "pipeline-retry-options"
_DEBUG = "debugging-pipeline-errors"
_TUNING = "blog/pipeline-tuning-with-engine-variables"
_MEETUP = "github.com/memsql/pipelines-meetup-oct-2016"
_DEMO = "github.com/memsql/pipelines-twitter-demo"
_WORKSHOP = "github.com/singlestore-labs, workshop of real-time dashboards"

_P = "CREATE PIPELINE p AS LOAD DATA KAFKA 'k:9092/t' "
_SCHEMA = '{"type": "record", "name": "data", "fields": [{"name": "id", "type": "long"}]}'
_SKIPS: dict[str, Any] = {"errors": {"parse": "dead_letter", "constraint": "dead_letter"}, "into": {"on_conflict": "ignore"}}
_KAFKA_PROPS = {
    "offset": 'get_kafka_pipeline_prop("prop_offset")', "partition": 'get_kafka_pipeline_prop("prop_partition")',
    "timestamp": 'get_kafka_pipeline_prop("prop_timestamp")', "topicname": 'get_kafka_pipeline_prop("prop_topicname")',
}  # fmt: skip

#: CREATE PIPELINE, and the definition that it gives.
DEFINED = (
    Published(_QUICK, "CREATE PIPELINE p AS LOAD DATA KAFKA '192.0.2.1/t' INTO TABLE t;", {"source": {"brokers": "192.0.2.1"}}),
    Published(_QUICK, """CREATE PIPELINE `p` AS LOAD DATA KAFKA 'k:9092/t'
        CONFIG '{"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "ssl.ca.location": "/etc/pki/ca.pem"}'
        CREDENTIALS '{"sasl.username": "loader", "sasl.password": "${env:SECRET}"}' INTO TABLE `t`;""",
        {"source": {
            "config": {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "ssl.ca.location": "/etc/pki/ca.pem"},
            "credentials": {"sasl.username": "loader", "sasl.password": "{{ env('SECRET') }}"}}}),
    Published(_CREATE, _P + "INTO TABLE t FIELDS TERMINATED BY ','", {"format": {"delimiter": ","}}),
    Published(_CREATE, _P + """INTO TABLE t FORMAT CSV FIELDS TERMINATED BY ',' OPTIONALLY ENCLOSED BY '"' ESCAPED BY '\\\\'
        LINES STARTING BY '' TERMINATED BY '\\r\\n' NULL DEFINED BY 'NULL' OPTIONALLY ENCLOSED IGNORE 1 LINES""",
        {"format": {"delimiter": ",", "quote": '"', "escape": "\\", "line_start": "", "line_end": "\r\n", "null": "NULL",
                    "null_quoted": True, "skip_lines": 1}}),
    Published(_CREATE, "CREATE OR REPLACE PIPELINE p AS LOAD DATA KAFKA 'k:9092/t' INTO TABLE t COLUMNS TERMINATED BY '\\t'",
              {"format": {"delimiter": "\t"}}),
    Published(_CREATE, "CREATE PIPELINE IF NOT EXISTS p AS LOAD DATA KAFKA 'k:9092/t'INTO TABLE t"),
    Published(_CREATE, "CREATE AGGREGATOR PIPELINE p AS LOAD DATA KAFKA 'k:9092/t' INTO TABLE t"),
    Published(_CREATE, _P + "BATCH_INTERVAL 0 MAX_PARTITIONS_PER_BATCH 4 MAX_RETRIES_PER_BATCH_PARTITION 3"
              " MAX_OFFSETS_PER_BATCH_PARTITION 100000 INTO TABLE t",
              {"batch": {"interval_ms": 0, "max_partitions": 4, "max_retries": 3, "max_offsets_per_partition": 100_000}}),
    Published(_CREATE, _P + "STOP_ON_ERROR OFF REPLACE INTO TABLE t",
              {"errors": {"batch": "skip"}, "into": {"on_conflict": "replace"}}),
    Published(_CREATE, _P + "REPLACE STOP_ON_ERROR ON INTO TABLE t",
              {"errors": {"batch": "fail"}, "into": {"on_conflict": "replace"}}),
    Published(_CREATE, _P + "DISABLE OFFSETS METADATA GC ENABLE OUT_OF_ORDER OPTIMIZATION INTO TABLE t"),
    Published(_CREATE, _P + "INTO TABLE t (a, @b, c) SET b = @b + 1 WHERE c > 0 ON DUPLICATE KEY UPDATE c = VALUES(c)",
              {"format": {"fields": ["a", "@b", "c"]}, "set": {"b": "@b + 1"}, "where": "c > 0",
               "into": {"on_conflict": "update", "update": {"c": "VALUES(c)"}}}),
    Published("load-data", _P + "INTO TABLE t (@dummy, a, @Dummy, @dummy, b)",
              {"format": {"fields": ["@dummy_1", "a", "@Dummy_2", "@dummy", "b"]}}),
    Published("show-create-pipeline", "CREATE PIPELINE `p`\nAS LOAD DATA KAFKA 'k:9092/t'\nBATCH_INTERVAL 2500\n"
              "DISABLE OUT_OF_ORDER OPTIMIZATION\nDISABLE OFFSETS METADATA GC\nINTO TABLE `t`\n"
              "FIELDS TERMINATED BY '\\t' ENCLOSED BY '' ESCAPED BY '\\\\'\nLINES TERMINATED BY '\\n' STARTING BY ''\n"
              "(\n    `t`.`id`,\n    @v\n)",
              {"batch": {"interval_ms": 2500}, "format": {"delimiter": "\t", "quote": "", "escape": "\\", "line_end": "\n",
                                                          "line_start": "", "fields": ["id", "@v"]}}),
    Published(_CREATE, _P + "INTO TABLE t FORMAT JSON (a <- %::a, b <- b::c DEFAULT NULL) KAFKA KEY (device <- %::device)",
              {"format": {"type": "json", "mapping": {"a": "%::a", "b": {"path": "b::c", "default": None}}},
               "key_format": {"type": "json", "mapping": {"device": "%::device"}}}),
    Published(_CREATE, _P + "INTO TABLE t FORMAT AVRO SCHEMA REGISTRY 'r:8081' (a <- %::a) KAFKA KEY (k <- %::id)",
              {"format": {"type": "avro", "registry": "r:8081", "mapping": {"a": "%::a"}},
               "key_format": {"type": "avro", "registry": "r:8081", "mapping": {"k": "%::id"}}}),
    Published(_CREATE, _P + "INTO TABLE t FORMAT CSV FIELDS TERMINATED BY ',' (a, b) KAFKA KEY (k)",
              {"format": {"delimiter": ",", "fields": ["a", "b"]},
               "key_format": {"type": "csv", "delimiter": ",", "fields": ["k"]}}),
    Published(_CREATE, "create pipeline p as load data kafka 'k1:9092,k2:9093/t' into table t format json",
              {"source": {"brokers": "k1:9092,k2:9093"}, "format": {"type": "json"}}),
    Published(_MORE, _P + "SKIP DUPLICATE KEY ERRORS INTO TABLE t", {"into": {"on_conflict": "ignore"}}),
    Published(_MORE, _P + "SKIP CONSTRAINT ERRORS INTO TABLE t", {"errors": {"constraint": "dead_letter"}}),
    Published(_MORE, _P + "SKIP ALL ERRORS INTO TABLE t", _SKIPS),
    Published(_MORE, _P + "SKIP PARSER ERRORS REPLACE INTO TABLE t FIELDS TERMINATED BY ','",
              {"errors": {"parse": "dead_letter"}, "into": {"on_conflict": "replace"}, "format": {"delimiter": ","}}),
    Published(_JSON, _P + "INTO TABLE t FORMAT JSON", {"format": {"type": "json"}}),
    Published(_JSON, _P + "INTO TABLE t SKIP PARSER ERRORS FORMAT JSON",
              {"errors": {"parse": "dead_letter"}, "format": {"type": "json"}}),
    Published(_JSON, _P + "INTO TABLE t SKIP ALL ERRORS FORMAT JSON", {**_SKIPS, "format": {"type": "json"}}),
    Published(_AVRO, _P + "INTO TABLE t SKIP PARSER ERRORS FORMAT AVRO SCHEMA REGISTRY 'r:8081'",
              {"errors": {"parse": "dead_letter"}, "format": {"type": "avro", "registry": "r:8081"}}),
    Published(_AVRO, _P + "INTO TABLE t SKIP ALL ERRORS FORMAT AVRO SCHEMA REGISTRY 'r:8081'",
              {**_SKIPS, "format": {"type": "avro", "registry": "r:8081"}}),
    Published(_AVRO, _P + f"INTO TABLE t FORMAT AVRO (id <- %::id, doc <- %) SCHEMA '{_SCHEMA}'",
              {"format": {"type": "avro", "schema": _SCHEMA, "mapping": {"id": "%::id", "doc": "%"}}}),
    Published(_AVRO, _P + f"INTO TABLE t FORMAT AVRO SCHEMA '{_SCHEMA}' (id <- %::id)",
              {"format": {"type": "avro", "schema": _SCHEMA, "mapping": {"id": "%::id"}}}),
    Published(_AVRO, _P + f"INTO TABLE t (id <- %::id) FORMAT AVRO SCHEMA '{_SCHEMA}'",
              {"format": {"type": "avro", "schema": _SCHEMA, "mapping": {"id": "%::id"}}}),
    Published(_AVRO_PATHS, _P + "INTO TABLE t FORMAT AVRO SCHEMA REGISTRY 'r:8081'"
              " (payload <- %::payload::string, kind <- %::`com.example.event`::kind, input_record <- %)",
              {"format": {"type": "avro", "registry": "r:8081", "mapping": {
                  "payload": "%::payload::string", "kind": "%::`com.example.event`::kind", "input_record": "%"}}}),
    Published(_EVOLUTION, _P + 'INTO TABLE t FORMAT AVRO SCHEMA REGISTRY "r:8081" (id <- %::id, color <- %::color)',
              {"format": {"type": "avro", "registry": "r:8081", "mapping": {"id": "%::id", "color": "%::color"}}}),
    Published(_AVRO, _P + """INTO TABLE t FORMAT AVRO SCHEMA REGISTRY 'https://r:8081'
        CONFIG '{"schema.registry.ssl.ca.location": "/ca.pem", "schema.registry.username": "u"}'
        CREDENTIALS '{"schema.registry.password": "${env:SECRET}"}' (id <- %::id)""",
        {"source": {"config": {"schema.registry.ssl.ca.location": "/ca.pem", "schema.registry.username": "u"},
                    "credentials": {"schema.registry.password": "{{ env('SECRET') }}"}},
         "format": {"type": "avro", "registry": "https://r:8081", "mapping": {"id": "%::id"}}}),
    Published(_SETTINGS, _P + """CONFIG '{
            "schema.registry.ssl.certificate.location": "/c.pem", "schema.registry.ssl.key.location": "/c.key",
            "schema.registry.ssl.ca.location": "/ca.pem"}'
        INTO TABLE t FORMAT AVRO SCHEMA REGISTRY 'https://r:8081'""",
        {"source": {"config": {"schema.registry.ssl.certificate.location": "/c.pem",
                               "schema.registry.ssl.key.location": "/c.key", "schema.registry.ssl.ca.location": "/ca.pem"}},
         "format": {"type": "avro", "registry": "https://r:8081"}}),
    Published(_SETTINGS, _P + """CONFIG '{"fetch.max.bytes": 52428800, "topic.metadata.refresh.interval.ms": 300000}'
        INTO TABLE t""", {"source": {"config": {"fetch.max.bytes": 52_428_800, "topic.metadata.refresh.interval.ms": 300_000}}}),
    Published(_SECURE, "CREATE PIPELINE `p` AS LOAD DATA KAFKA 'k:9092/t'" + """
        CONFIG '{"security.protocol": "ssl", "ssl.certificate.location": "/var/private/ssl/client.pem",
            "ssl.key.location": "/var/private/ssl/client.key", "ssl.ca.location": "/var/private/ssl/ca-cert.pem"}'
        CREDENTIALS '{"ssl.key.password": "${env:SECRET}"}' INTO table t;""",
        {"source": {"config": {"security.protocol": "ssl", "ssl.certificate.location": "/var/private/ssl/client.pem",
                               "ssl.key.location": "/var/private/ssl/client.key",
                               "ssl.ca.location": "/var/private/ssl/ca-cert.pem"},
                    "credentials": {"ssl.key.password": "{{ env('SECRET') }}"}}}),
    Published(_SECURE, _P + """CONFIG '{"security.protocol": "sasl_ssl", "sasl.mechanism": "GSSAPI",
            "sasl.kerberos.service.name": "kafka", "sasl.kerberos.principal": "loader/h@EXAMPLE.COM",
            "sasl.kerberos.keytab": "/etc/krb5.keytab"}' INTO TABLE t""",
        {"source": {"config": {"security.protocol": "sasl_ssl", "sasl.mechanism": "GSSAPI",
                               "sasl.kerberos.service.name": "kafka", "sasl.kerberos.principal": "loader/h@EXAMPLE.COM",
                               "sasl.kerberos.keytab": "/etc/krb5.keytab"}}}),
    Published(_SECURE, _P + """CONFIG '{"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512",
            "ssl.ca.location": "/ca.pem", "sasl.username": "loader"}'
        CREDENTIALS '{"sasl.password": "${env:SECRET}"}' INTO TABLE t""",
        {"source": {"config": {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512", "ssl.ca.location": "/ca.pem",
                               "sasl.username": "loader"}, "credentials": {"sasl.password": "{{ env('SECRET') }}"}}}),
    Published(_PROPS, "CREATE OR REPLACE PIPELINE p AS LOAD DATA kafka 'k:9092/t' INTO TABLE t"
              " FORMAT JSON (a <- json_a, b <- json_b, c <- json_c) SET "
              + ", ".join(f"{name} = {value}" for name, value in _KAFKA_PROPS.items()),
              {"format": {"type": "json", "mapping": {"a": "json_a", "b": "json_b", "c": "json_c"}}, "set": _KAFKA_PROPS}),
    Published(_PROPS, _P + "INTO TABLE t FIELDS TERMINATED BY ',' (a, b, c)"
              " SET offset = get_kafka_pipeline_prop(\"prop_offset\")",
              {"format": {"delimiter": ",", "fields": ["a", "b", "c"]}, "set": {"offset": _KAFKA_PROPS["offset"]}}),
    Published(_PATHS, _P + "INTO TABLE t FORMAT JSON (a <- a DEFAULT 1, b <- `b c`::`d.e` DEFAULT 'x', @arr <- arr, whole <- %)",
              {"format": {"type": "json", "mapping": {
                  "a": {"path": "a", "default": 1}, "b": {"path": "`b c`::`d.e`", "default": "x"}, "@arr": "arr",
                  "whole": "%"}}}),
    Published(_PATHS, _P + "INTO TABLE t FORMAT JSON (@avar <- %::a) SET a = IFNULL(@avar, 'none') WHERE @avar <> ''",
              {"format": {"type": "json", "mapping": {"@avar": "%::a"}}, "set": {"a": "IFNULL(@avar, 'none')"},
               "where": "@avar <> ''"}),
    Published(_SHAPING, _P + "INTO TABLE t (`a`, @seen) SET seen = STR_TO_DATE(@seen, '%m/%d/%Y'), loaded = NOW()",
              {"format": {"fields": ["a", "@seen"]},
               "set": {"seen": "STR_TO_DATE(@seen, '%m/%d/%Y')", "loaded": "NOW()"}}),
    Published(_ORDER, _P + "DISABLE OUT_OF_ORDER OPTIMIZATION INTO TABLE t ON DUPLICATE KEY UPDATE a = VALUES(a), b = b + 1",
              {"into": {"on_conflict": "update", "update": {"a": "VALUES(a)", "b": "b + 1"}}}),
    Published(_RETRIES, _P + "retry_options '{\"exponential\": true, \"retry_interval\": 1000, \"max_retry_interval\": 5000,"
              " \"max_retries\": 6}' INTO TABLE t",
              {"batch": {"exponential": True, "retry_interval_ms": 1000, "max_retry_interval_ms": 5000, "max_retries": 6}}),
    Published(_TRANSFORM, _P + "WITH TRANSFORM ('file:///opt/clean.py', '', '') INTO TABLE t",
              {"transform": {"program": "/opt/clean.py", "stdin": "lines", "mode": "flatmap"}}),
    Published(_TRANSFORM, _P + "WITH TRANSFORM ('file://localhost/opt/clean.tar.gz', 'bin/clean.py', '-r 4 --all') INTO TABLE t",
              {"transform": {"archive": "/opt/clean.tar.gz", "program": "bin/clean.py", "args": ["-r", "4", "--all"],
                             "stdin": "lines", "mode": "flatmap"}}),
    Published(_MEETUP, 'CREATE PIPELINE p AS LOAD DATA KAFKA "k:9092/t" INTO TABLE t FIELDS TERMINATED BY "\\t"'
              " (id, ts, retweet_count, favorite_count, username, body)",
              {"format": {"delimiter": "\t", "fields": ["id", "ts", "retweet_count", "favorite_count", "username", "body"]}}),
    Published(_MEETUP, 'CREATE PIPELINE p AS LOAD DATA KAFKA "k:9092/t" WITH TRANSFORM ("file:///home/admin/transform.py", "",'
              ' "") INTO TABLE t FIELDS TERMINATED BY "\\t" (a, b)',
              {"transform": {"program": "/home/admin/transform.py", "stdin": "lines", "mode": "flatmap"},
               "format": {"delimiter": "\t", "fields": ["a", "b"]}}),
    Published(_DEMO, 'CREATE PIPELINE `p` AS -- a comment\n LOAD DATA KAFKA "k:9092/t" REPLACE INTO TABLE `t`\n'
              'FIELDS TERMINATED BY "\\t" (`id`, `tweet`)',
              {"format": {"delimiter": "\t", "fields": ["id", "tweet"]}, "into": {"on_conflict": "replace"}}),
    Published(_WORKSHOP, """CREATE PIPELINE p AS LOAD DATA KAFKA 'k:9092/t' SKIP DUPLICATE KEY ERRORS INTO TABLE t FORMAT JSON (
            @unix_timestamp <- unix_timestamp, path <- path, referrer <- referrer DEFAULT NULL,
            page_time_s <- page_time_seconds DEFAULT 0)
        SET ts = FROM_UNIXTIME(@unix_timestamp)""",
        {"into": {"on_conflict": "ignore"}, "set": {"ts": "FROM_UNIXTIME(@unix_timestamp)"},
         "format": {"type": "json", "mapping": {
             "@unix_timestamp": "unix_timestamp", "path": "path", "referrer": {"path": "referrer", "default": None},
             "page_time_s": {"path": "page_time_seconds", "default": 0}}}}),
    Published("load-data", _P + "INTO TABLE t FIELDS TERMINATED BY ',' ENCLOSED BY '\"' LINES TERMINATED BY '\\n' IGNORE 1 ROWS",
              {"format": {"delimiter": ",", "quote": '"', "line_end": "\n", "skip_lines": 1}}),
    Published(_CREATE, _P + "INTO TABLE t FORMAT CSV FIELDS TERMINATED BY '|' NULL DEFINED BY ''",
              {"format": {"delimiter": "|", "null": ""}}),
    Published(_CREATE, _P + "INTO TABLE t FORMAT CSV NULL DEFINED BY 'NA' OPTIONALLY ENCLOSED FIELDS TERMINATED BY ','",
              {"format": {"delimiter": ",", "null": "NA", "null_quoted": True}}),
    Published(_SHAPING, _P + "INTO TABLE t FORMAT CSV (@a, @b) SET a = TRIM(BOTH ' ' FROM @a), b = NULLIF(@b, '')",
              {"format": {"fields": ["@a", "@b"]}, "set": {"a": "TRIM(BOTH ' ' FROM @a)", "b": "NULLIF(@b, '')"}}),
    Published(_SHAPING, _P + "INTO TABLE t FORMAT CSV (@a, b) SET a = TRIM(@a)",
              {"format": {"fields": ["@a", "b"]}, "set": {"a": "TRIM(@a)"}}),
    Published("load-data", _P + "INTO TABLE t CHARACTER SET utf8mb4 FORMAT CSV"),
    Published(_PATHS, _P + "INTO TABLE t FORMAT JSON (a <- %::a, b <- %::b::c) WHERE a > 1 AND b IN ('x', 'y')",
              {"format": {"type": "json", "mapping": {"a": "%::a", "b": "%::b::c"}}, "where": "a > 1 AND b IN ('x', 'y')"}),
    Published(_JSON, _P + "INTO TABLE t (a <- a, b <- b) FORMAT JSON",
              {"format": {"type": "json", "mapping": {"a": "a", "b": "b"}}}),
    Published(_PATHS, _P + "INTO TABLE t FORMAT JSON (a <- `a`, @b <- b DEFAULT '{}') SET b = @b::c::$d",
              {"format": {"type": "json", "mapping": {"a": "`a`", "@b": {"path": "b", "default": "{}"}}},
               "set": {"b": "@b::c::$d"}}),
    Published(_ORDER, _P + "INTO TABLE t ON DUPLICATE KEY UPDATE a = a + VALUES(a), b = IF(VALUES(b) > b, VALUES(b), b)",
              {"into": {"on_conflict": "update",
                        "update": {"a": "a + VALUES(a)", "b": "IF(VALUES(b) > b, VALUES(b), b)"}}}),
    Published(_AVRO, _P + "INTO TABLE t FORMAT AVRO SCHEMA REGISTRY 'r:8081' SCHEMA '\"long\"'",
              {"format": {"type": "avro", "registry": "r:8081", "schema": '"long"'}}),
)  # fmt: skip

#: Statements that are refused, by what sentence, and what is told instead.
REFUSED = (
    Published(_PROCEDURE, "CREATE PIPELINE p AS LOAD DATA KAFKA 'k:9092/t' INTO PROCEDURE f FORMAT JSON (a <- a)",
              said="kpipe has no stored procedures", instead="SET, WHERE or a program (WITH TRANSFORM)"),
    Published(_JSON, "CREATE PIPELINE p AS LOAD DATA KAFKA 'k:9092/t' INTO PROCEDURE f SKIP PARSER ERRORS FORMAT JSON (a <- a)",
              said="kpipe has no stored procedures", instead="ALSO INTO TABLE"),
    Published(_PROCEDURE, "CREATE PROCEDURE f (batch QUERY(a INT, b TEXT)) AS BEGIN INSERT INTO t SELECT a, b FROM batch; END",
              said="kpipe has no stored procedures", instead="SET, WHERE"),
    Published(_PROCEDURE, "DELIMITER //", said="kpipe has no stored procedures", instead="SET, WHERE"),
    Published("create-link", "CREATE LINK l AS KAFKA CONFIG '{\"security.protocol\": \"plaintext\"}' CREDENTIALS '{}'",
              said="kpipe stores no connections apart from pipelines", instead="CONFIG and CREDENTIALS"),
    Published("create-link", "SHOW LINKS ON shop", said="kpipe stores no connections", instead="CONFIG and CREDENTIALS"),
    Published(_CREATE, "CREATE PIPELINE p AS LOAD DATA LINK shop.l 't' INTO TABLE t", said="LINK is not supported",
              instead="write KAFKA 'host:port/topic'"),
    Published(_CREATE, _P + "RESOURCE POOL loads INTO TABLE t", said="kpipe has no resource pools", instead="remove it"),
    Published("create-resource-pool", "CREATE RESOURCE POOL loads WITH MEMORY_PERCENTAGE = 60",
              said="kpipe has no resource pools", instead="remove it"),
    Published(_CREATE, _P + "IGNORE INTO TABLE t", said="it would silently change invalid values", instead="SKIP ALL ERRORS"),
    Published(_MORE, "CREATE PIPELINE p AS LOAD DATA FS '/data/*.csv' INTO TABLE t", said="paths name their store",
              instead="LOAD DATA FILES"),
    Published("kafka-connect-pipelines", "CREATE PIPELINE p AS LOAD DATA KAFKACONNECT 'c' CONFIG '{}' INTO TABLE t",
              said="kpipe runs no source connectors", instead="read its topic"),
    Published(_TRANSFORM, _P + "WITH TRANSFORM ('http://host/clean.tar.gz', 'clean.py', '') INTO TABLE t",
              said="kpipe does not download programs", instead="download it"),
    Published(_WORKSHOP, _P + "WITH TRANSFORM ('memsql://json', '', '-r \".a\"') INTO TABLE t (a)",
              said="it is a program inside SingleStore", instead="FORMAT JSON (column <- member::member)"),
    Published(_SECURE, _P + "CREDENTIALS '{\"sasl.username\": \"u\", \"sasl.password\": \"metamorphosis\"}' INTO TABLE t",
              said="is a literal, which would be stored with the definition", instead="${env:NAME}"),
    Published(_SECURE, _P + "CONFIG '{\"security.protocol\": \"SASL_SSL\", \"sasl.mechanism\": \"OAUTHBEARER\"}' INTO TABLE t",
              said="sasl.oauthbearer.token is missing", instead="sasl.oauthbearer.client.id"),
    Published(_SETTINGS, _P + "CONFIG '{\"spoof.dns\": {\"a:9092\": \"b:9092\"}}' INTO TABLE t",
              said="CONFIG: spoof.dns: expected a text or a number", instead="let this machine resolve the brokers' names"),
    Published(_SECURE, _P + "CONFIG '{\"security.protocol\": \"sasl_plaintext\", \"sasl.mechanism\": \"GSSAPI\"}' INTO TABLE t",
              said="SASL_PLAINTEXT sends credentials and records over the network unencrypted",
              instead="add allow.plaintext.credentials: true"),
    Published(_AVRO, _P + "INTO TABLE t FORMAT AVRO", said="avro without a schema"),
    Published(_ALTER, "ALTER PIPELINE p DROP FILE 'a.csv'", said="a file that was read is never read again",
              instead="DROP ORPHAN PARTITIONS"),
    Published(_ALTER, "ALTER PIPELINE p FIELDS TERMINATED BY ','", said="a format is replaced as a whole",
              instead="CREATE OR REPLACE PIPELINE"),
    Published(_ALTER, "ALTER PIPELINE p SET RESOURCE POOL loads", said="kpipe has no resource pools", instead="remove it"),
    Published(_ALTER, "ALTER PIPELINE p SET OFFSETS '{\"/data/a.csv\": 1}'", said="expected offsets by partition number",
              instead="write '{\"0\": 120"),
    Published("create-inferred-pipeline", "CREATE INFERRED PIPELINE p AS LOAD DATA KAFKA 'k:9092/t' FORMAT AVRO",
              said="review it before it loads data", instead="run INFER PIPELINE to print the statements"),
    Published("infer-table", "INFER TABLE AS LOAD DATA KAFKA 'k:9092/t' FORMAT JSON", said="it is part of INFER PIPELINE",
              instead="prints the table"),
    Published("profile-pipeline", "PROFILE PIPELINE p", said="kpipe has no query plans to show", instead="TEST PIPELINE"),
    Published("show-profile-pipeline", "SHOW PROFILE UI PIPELINE p ON NODE 2", said="kpipe has no query plans to show",
              instead="TEST PIPELINE"),
    Published("select", "SELECT * FROM t INTO KAFKA 'k:9092/copy'", said="a query cannot write",
              instead="INTO TABLE name IN kafka"),
    Published("select", "SELECT a FROM t ORDER BY 1 INTO KAFKA 'k:9092/copy' CONFIG '{}' CREDENTIALS '{}'"
              " FIELDS TERMINATED BY ','",
              said="a query cannot write", instead="INTO TABLE name IN kafka"),
    Published("grant", "GRANT CREATE PIPELINE, ALTER PIPELINE, START PIPELINE ON shop.* TO 'loader'@'%'",
              said="kpipe has no users", instead="permissions are those of the folder"),
    Published("create-user", "CREATE USER loader IDENTIFIED BY 'x'", said="kpipe has no users", instead="permissions"),
    Published("load-data", _P + "SKIP ALL ERRORS ERRORS HANDLE 'h' INTO TABLE t", said="errors are stored by pipeline",
              instead="SELECT * FROM kpipe_errors"),
    Published("load-avro-files-with-load-data", _P + "INTO TABLE t MAX_ERRORS 5", said="the limit is errors.max_dead_letters",
              instead="max_dead_letters"),
    Published("start-pipeline", "START PIPELINE shop.p", said="found .", instead="write the pipeline's name alone"),
    Published("show-create-pipeline", "SHOW CREATE PIPELINE p\\G", said="found \\", instead="end the statement with ;"),
    Published(_DEBUG, "SELECT * FROM kpipe_errors\\G", said="\\G is a command of MySQL's client",
              instead="end the statement with ;"),
    Published("show-create-table", "SHOW CREATE TABLE t", said="found TABLE", instead="write DESCRIBE name to show a table"),
    Published("show-columns", "SHOW COLUMNS FROM t", said="kpipe shows a table with DESCRIBE", instead="DESCRIBE name"),
    Published("create-function", "CREATE FUNCTION f (a INT) RETURNS INT AS BEGIN RETURN a; END", said="no stored procedures",
              instead="SET, WHERE"),
    Published(_TUNING, "SET GLOBAL pipelines_stop_on_error = OFF", said="kpipe has no engine variables",
              instead="ALTER PIPELINE name SET"),
    Published(_TUNING, "SHOW VARIABLES LIKE 'pipelines%'", said="kpipe has no engine variables", instead="ALTER PIPELINE"),
    Published(_DEBUG, "FLUSH EXTRACTOR POOLS", said="it manages SingleStore's nodes", instead="remove it"),
    Published(_EVOLUTION, "ALTER TABLE t ADD COLUMN color TEXT", said="adds new columns of records automatically",
              instead="DETACH PIPELINE"),
    Published(_QUICK, "DROP DATABASE quickstart", said="a home has one database", instead="remove the folder"),
    Published("load-data", "LOAD DATA KAFKA 'k:9092/t' INTO TABLE t", said="records are loaded by pipelines",
              instead="START PIPELINE name FOREGROUND"),
    Published(_CREATE, "CREATE OR REPLACE PIPELINE IF NOT EXISTS p AS LOAD DATA KAFKA 'k:9092/t' INTO TABLE t",
              said="OR REPLACE and IF NOT EXISTS exclude each other", instead="one of"),
    Published(_QUICK, "CREATE PIPELINE p AS LOAD DATA KAFKA '<Kafka-cluster-location>/t' INTO TABLE t",
              said="is not a broker's address: expected host:port", instead="host:port/topic"),
    Published(_QUICK, "CREATE PIPELINE p AS LOAD DATA KAFKA 'k:<port>/t' INTO TABLE t",
              said="is not a broker's address: expected host:port", instead="host:port/topic"),
    Published(_QUICK, "CREATE PIPELINE p AS LOAD DATA KAFKA 'kafka://k:9092/t' INTO TABLE t",
              said="is not a broker's address: expected host:port", instead="host:port/topic"),
    Published(_CREATE, "CREATE PIPELINE p AS LOAD DATA KAFKA 'k:9092' INTO TABLE t", said="KAFKA: the topic is missing",
              instead="write 'host:port/topic'"),
    Published(_SETTINGS, _P + "CONFIG '{\"group.id\": \"x\"}' INTO TABLE t", said="group.id cannot be set", instead="remove it"),
    Published(_SECURE, _P + "CONFIG '{\"sasl.mechanism\": \"AWS_MSK_IAM\"}' INTO TABLE t",
              said="sasl.mechanism is not supported", instead="PLAIN"),
    Published("load-data", _P + "INTO TABLE t CHARACTER SET latin1 FORMAT CSV", said="kpipe reads UTF-8", instead="FORMAT RAW"),
    Published("start-pipeline", "START PIPELINE p LIMIT 5 BATCHES", said="found LIMIT",
              instead="write LIMIT n BATCHES after FOREGROUND"),
    Published("start-pipeline", "START PIPELINES", said="found PIPELINES", instead="did you mean PIPELINE?"),
    Published("start-pipeline", "START PIPELINE p FOREGROUND LIMIT 1 BATCH", said="found BATCH", instead="did you mean BATCHES?"),
    Published("profile-pipeline", "PROFILE PIPELINE p LIMIT 5", said="kpipe has no query plans to show", instead="TEST PIPELINE"),
    Published(_ALTER, "ALTER PIPELINE p BATCH_INTERVAL 1", said="found BATCH_INTERVAL", instead="write SET BATCH_INTERVAL"),
    Published(_ALTER, "ALTER PIPELINE p RESOURCE POOL loads", said="found RESOURCE", instead="no resource pools"),
    Published(_ALTER, "ALTER PIPELINE p SET OFFSETS CURSOR", said="OFFSET CURSOR is not supported",
              instead="SET OFFSETS EARLIEST"),
    Published(_ALTER, "ALTER PIPELINE p SET CREDENTIALS '{\"sasl.password\": \"x\"}'",
              said="is a literal, which would be stored with the definition", instead="${env:NAME}"),
    *(Published("pipelines-commands", text, said="no pipeline 'nope' in", instead="CREATE PIPELINE nope") for text in (
        "START PIPELINE nope", "STOP PIPELINE nope", "DETACH PIPELINE nope", "TEST PIPELINE nope LIMIT 1", "DROP PIPELINE nope",
        "SHOW CREATE PIPELINE nope", "ALTER PIPELINE nope SET BATCH_INTERVAL 1", "EXTRACT PIPELINE nope INTO OUTFILE 'x'",
        "CLEAR PIPELINE ERRORS FOR nope", "START PIPELINE nope FOREGROUND LIMIT 1 BATCHES")),
)  # fmt: skip

#: CREATE TABLE, and the columns with their types (primary keys with !).
TABLES = (
    Published(_QUICK, "CREATE TABLE messages (id text)", said="id VARCHAR"),
    Published(_PROPS, "CREATE TABLE t(a INT, b JSON, c INT, offset Text, partition Text, timestamp Text, topicname Text)",
              said="a INTEGER, b JSON, c INTEGER, offset VARCHAR, partition VARCHAR, timestamp VARCHAR, topicname VARCHAR"),
    Published(_MEETUP, "CREATE TABLE tweets (id TEXT, ts TIMESTAMP, retweet_count INT, username TEXT,"
              " SHARD KEY (username) USING CLUSTERED COLUMNSTORE)",
              said="id VARCHAR, ts TIMESTAMP, retweet_count INTEGER, username VARCHAR"),
    Published(_DEMO, "CREATE TABLE `tweets` (`id` BIGINT PRIMARY KEY, `tweet` JSON, `text` AS `tweet`::$text PERSISTED TEXT,"
              " `retweet_count` AS `tweet`::%retweet_count PERSISTED INT)",
              said="id! BIGINT, tweet JSON, text VARCHAR, retweet_count INTEGER"),
    Published(_DEMO, "CREATE TABLE `tweet_sentiment` (`id` BIGINT PRIMARY KEY, `compound` FLOAT, `positive` FLOAT)",
              said="id! BIGINT, compound FLOAT, positive FLOAT"),
    Published(_WORKSHOP, "CREATE TABLE events (ts DATETIME NOT NULL, path TEXT NOT NULL, page_time_s DOUBLE NOT NULL DEFAULT 0,"
              " SORT KEY (ts), SHARD KEY (path), KEY (path))", said="ts TIMESTAMP, path VARCHAR, page_time_s DOUBLE"),
    Published("create-table", "CREATE ROWSTORE REFERENCE TABLE IF NOT EXISTS r (id INT(11) UNSIGNED NOT NULL COMMENT 'x',"
              " PRIMARY KEY r_key (id) USING HASH) AUTOSTATS_ENABLED=TRUE", said="id! UINTEGER"),
)  # fmt: skip
