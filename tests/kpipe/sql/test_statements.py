"""Statements in the forms that documentation and public scripts use, and their values."""

from __future__ import annotations

from kpipe.definition.pipeline import Pipeline, Timestamp
from kpipe.expressions.quoting import quoted
from kpipe.offsets import Range
from kpipe.sql import statements as s
from kpipe.sql.parser import is_complete, read, read_all
from kpipe.sql.renderer import to_sql, write
from tests.cases import each_case
from tests.kpipe.sql.clauses import CLAUSES, HEAD, of, said

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


@each_case(("text", "expected"), OTHERS, ids=[text[:70] for text, _ in OTHERS])
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


@each_case(
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
