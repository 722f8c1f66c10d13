"""The model: every default of design.md 4.2, every limit, YAML there and back, and errors that say where."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import ValidationError

from kpipe.definition.pipeline import Pipeline, Source
from kpipe.definition.yaml_codec import COMPONENT, from_yaml, resolve, to_yaml
from kpipe.errors import InvalidPipeline
from kpipe.expressions.quoting import quoted
from tests.cases import each_case

SMALLEST = {"name": "tweets", "source": {"brokers": "localhost:9092", "topic": "tweets"}, "into": {"table": "tweets"}}


def document(**attributes: Any) -> str:
    return yaml.safe_dump({"type": COMPONENT, "attributes": {**SMALLEST, **attributes}}, sort_keys=False)


def refused(text: str, **environ: str) -> str:
    with pytest.raises(InvalidPipeline) as raised:
        from_yaml(text, "tweets.yaml", environ)
    assert raised.value.exit_status == 2
    return str(raised.value)


def test_the_defaults_are_those_of_the_contract() -> None:
    assert Pipeline.model_validate(SMALLEST).model_dump(by_alias=True) == {
        "name": "tweets",
        "source": {
            "brokers": "localhost:9092", "topic": "tweets", "topics": None, "topic_pattern": None, "files": None, "table": None,
            "lake": None, "http": None, "start": "earliest", "end": None, "config": {}, "credentials": {}, "group": None,
            "on_data_loss": "fail",
        },
        "batch": {
            "interval_ms": 2500, "max_offsets_per_partition": 1_000_000, "max_bytes_per_partition": None,
            "max_partitions": None, "max_retries": 4, "retry_interval_ms": None, "max_retry_interval_ms": None,
            "exponential": True, "cut": "offset",
        },
        "transform": None,
        "format": {
            "type": "json", "mapping": None, "booleans": "json", "fields": None, "delimiter": "\t", "quote": "", "escape": "\\",
            "line_end": "\n", "line_start": "", "null": None, "null_quoted": False, "skip_lines": 0, "schema": None,
            "registry": None, "descriptors": None, "message": None, "validate": False,  # docs/adr/0020
            "documents": "one", "explode": None, "explode_outer": False, "ordinality": None,   # docs/adr/0066
            "schemas_enable": False,
            "infer_timestamps": False,
            "envelope": "debezium", "source_table": None, "truncate": "apply", "types": {},   # docs/adr/0060
            "unavailable": "__debezium_unavailable_value",
        },
        "key_format": None,
        "columns": {},
        "select": None,
        "where": None,
        "set": {},
        "metadata": ["partition", "offset", "timestamp"],
        "schema": "evolve",
        "errors": {
            "parse": "dead_letter", "transform": "fail", "constraint": "fail", "duplicate_key": "fail", "batch": "fail",
            "max_dead_letters": None, "topic": None,  # docs/adr/0068
        },
        "delivery": "exactly_once",
        "into": {
            "type": "duckdb", "database": None, "credentials": {}, "table": "tweets", "key": None, "on_conflict": "error",
            "on_null": "skip", "update": {},
            # docs/adr/0022
            "brokers": None, "topic": None, "format": "json", "config": {}, "dead_letters": None, "ledger": None,
            "registry": None,
            "transaction_timeout_s": 300, "catalog": None, "catalog_name": None, "namespace": "default", "audit": {},
            "url": None, "body": None, "envelope": None, "headers": {}, "max_records": 1, "max_bytes": 1_048_576,
            "concurrency": 4, "timeout_s": 30, "retry_s": 120, "allow_hosts": [],
            "partition_by": [], "maintenance": None, "max_tables": None,  # docs/adr/0064, 0069
        },
        # docs/adr/0008: how the table is shown in Dagster
        "also": [],
        "asset": {"group": "kpipe", "owners": [], "tags": {}, "description": None},
        "lookups": {},  # docs/adr/0018
    }  # fmt: skip


def test_the_defaults_of_a_transform_are_those_of_the_contract() -> None:
    transform = Pipeline.model_validate({**SMALLEST, "transform": {"program": "p.py"}}).transform
    assert transform is not None
    assert transform.model_dump() == {
        "program": "p.py", "archive": None, "args": [], "stdin": "lines", "mode": "map", "idle_timeout_s": 60,
        "trial_timeout_s": None, "memory_mb": None, "max_output_mb": 10240, "env": [],
    }  # fmt: skip


def test_the_example_of_the_contract_is_read() -> None:
    text = f"""
type: {COMPONENT}
attributes:
  name: tweets
  source: {{brokers: "localhost:9092", topic: tweets, start: earliest}}
  transform: {{program: transforms/programs/flatten_tweet.py}}
  format: {{type: json}}
  into: {{type: duckdb, table: tweets}}
"""
    assert from_yaml(text) == Pipeline.model_validate(
        {**SMALLEST, "transform": {"program": "transforms/programs/flatten_tweet.py"}}
    )


# Notations convert without loss

words = st.text(st.characters(codec="utf-8", exclude_characters="{}"), max_size=6)
identifiers = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,12}", fullmatch=True)
zones = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
plain = identifiers.filter(lambda name: not name.lower().startswith(("kpipe_", "_kafka_")))
topics = st.from_regex(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,12}", fullmatch=True)
moments = st.datetimes(datetime(1970, 1, 2), datetime(2100, 1, 1), timezones=st.none() | zones).map(
    lambda at: {"timestamp": at.isoformat()}
)
offsets = st.dictionaries(st.integers(0, 9), st.integers(0, 2**62), min_size=1, max_size=3)
optional = lambda strategy: st.none() | strategy  # noqa: E731
policies = st.sampled_from(["fail", "dead_letter", "skip"])


def some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=fields)


def fitting(source: dict[str, Any]) -> dict[str, Any]:
    """Where there are several topics, offsets name theirs."""
    if "topic_pattern" in source or len(set(source.get("topics", ()))) > 1:
        for name in {"start", "end"} & source.keys():
            at = source[name]
            if isinstance(at, dict) and "timestamp" not in at:
                source[name] = {f"web.a-{number % 3}:{number}": offset for number, offset in at.items()}
    return source


sources = st.builds(
    lambda which, more: fitting({"brokers": "b:1", **which, **more}),
    topics.map(lambda t: {"topic": t}) | st.lists(topics, min_size=1, max_size=3).map(lambda t: {"topics": t})
    | words.map(lambda t: {"topic_pattern": "^" + re.escape(t)}),
    some(
        start=st.sampled_from(["earliest", "latest"]) | moments | offsets,
        end=st.just("latest") | moments | offsets | st.none(),
        config=st.dictionaries(words, words | st.integers() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False)),
        credentials=st.dictionaries(words, st.text(st.characters(codec="utf-8")) | st.just("{{ env('PASSWORD') }}")),
        on_data_loss=st.sampled_from(["fail", "record"]),
    ),
)  # fmt: skip
pipelines = st.builds(
    lambda needed, more: Pipeline.model_validate({**needed, **more}),
    st.fixed_dictionaries({
        "name": identifiers,
        "source": sources,
        "into": st.builds(
            lambda table, more: {"table": table, **more},
            plain,
            some(type=identifiers, database=optional(words), key=optional(st.lists(words, unique_by=str.lower)),
                 on_conflict=st.sampled_from(["error", "replace", "ignore", "update"])),
        ),
    }),
    some(
        batch=some(interval_ms=st.integers(0, 10**6), max_offsets_per_partition=st.integers(1, 10**9),
                   max_bytes_per_partition=optional(st.integers(1, 10**12)), max_partitions=optional(st.integers(1, 999)),
                   max_retries=st.integers(0, 50)),
        transform=optional(st.builds(
            lambda program, more: {"program": program, **more}, words,
            some(archive=optional(words), args=st.lists(words),
                 stdin=st.sampled_from(["lines", "length-prefixed", "json", "arrow"]),
                 mode=st.sampled_from(["map", "filter", "flatmap"]), idle_timeout_s=st.floats(0.001, 1e6), env=st.lists(words),
                 trial_timeout_s=optional(st.floats(0.001, 1e6)), memory_mb=optional(st.integers(1, 10**6)),
                 max_output_mb=st.integers(1, 10**6)))),
        format=some(type=st.sampled_from(["json", "csv", "avro", "protobuf", "raw"])),
        columns=st.dictionaries(plain.map(str.lower), st.sampled_from(["BIGINT", "text", "STRUCT(a DATE)[]"]), max_size=3),
        select=optional(words), where=optional(words), set=st.dictionaries(words, words, max_size=3),
        metadata=st.lists(st.sampled_from(["partition", "offset", "timestamp", "topic", "key", "headers"])),
        schema=st.sampled_from(["evolve", "ignore", "fail"]),
        errors=some(parse=policies, transform=policies, constraint=policies, max_dead_letters=optional(st.integers(0, 99))),
        delivery=st.sampled_from(["exactly_once", "at_least_once", "at_most_once"]),
    ),
)  # fmt: skip


@given(pipelines)
@example(Pipeline.model_validate({**SMALLEST, "transform": {"program": "p", "stdin": "arrow"}, "format": {"type": "json"}}))
@example(Pipeline.model_validate({**SMALLEST, "transform": {"program": "p", "stdin": "arrow"}}))
@example(Pipeline.model_validate({**SMALLEST, "select": "a\x85b\u2028\u2029 \r\n\t\x00ß日", "where": "null", "set": {"1": "on"}}))
def test_yaml_that_is_written_is_read_back_as_the_same_pipeline(pipeline: Pipeline) -> None:
    text = to_yaml(pipeline)
    assert from_yaml(text, environ={}) == pipeline
    assert to_yaml(from_yaml(text, environ={})) == text


@given(pipelines)
def test_a_dictionary_of_what_differs_from_the_defaults_means_the_same(pipeline: Pipeline) -> None:
    assert Pipeline.model_validate(pipeline.to_dict()) == pipeline


def test_what_equals_a_default_is_not_written() -> None:
    assert Pipeline.model_validate({**SMALLEST, "batch": {"max_retries": 4}, "schema": "evolve"}).to_dict() == SMALLEST


@given(st.text(max_size=60) | st.text("{}[]:-&*!? \n'\"ab1", max_size=40))
def test_any_text_is_a_pipeline_or_an_error_that_names_the_file(text: str) -> None:
    with pytest.raises(InvalidPipeline, match=r"^tweets\.yaml"):
        from_yaml(text, "tweets.yaml", {})


# Errors say file, line and field


@each_case(
    ("fields", "line", "words"),
    [
        ({"nme": 1}, 9, "unknown field nme -> did you mean name? known: name, source, batch"),
        ({"source": {"brokers": "b", "topic": "t", "topik": "x"}}, 7, "field source.topik -> did you mean topic?"),
        ({"batch": {"max_retries": 1, "interval": 3}}, 11, "field batch.interval -> did you mean interval_ms?"),
        ({"transform": {"program": "p", "mod": "map"}}, 11, "field transform.mod -> did you mean mode? known: program"),
        ({"into": {"table": "t", "databse": "x"}}, 9, "field into.databse -> did you mean database?"),
        ({"into": {"type": "duckdb"}}, 7, "into.table is missing"),
        ({"batch": {"max_retries": -1}}, 10, "batch.max_retries: input should be greater than or equal to 0 (found -1)"),
        ({"batch": {"interval_ms": "soon"}}, 10, "batch.interval_ms: input should be a valid integer"),
        ({"schema": "grow"}, 9, "schema: input should be 'evolve', 'ignore' or 'fail' (found 'grow')"),
        ({"name": "my pipeline"}, 3, "name: 'my pipeline' is not a pipeline's name"),
        ({"into": {"table": "kpipe_batches"}}, 8, "into.table: 'kpipe_batches': names that begin with kpipe_"),
        ({"into": {"table": "a; drop"}}, 8, "into.table: 'a; drop' is not a table's name"),
        ({"columns": {"id": "BIGIN"}}, 9, "columns: invalid column type: 'BIGIN'"),
        ({"columns": {"_Kafka_offset": "BIGINT"}}, 9, "columns: _Kafka_offset: names that begin with _kafka_"),
        ({"columns": {"a": "DATE", "A": "DATE"}}, 9, "columns: two columns differ only by upper and lower case"),
        ({"source": {"brokers": "b", "topic": "t", "start": "begin"}}, 7, "source.start: not one of the forms"),
        ({"source": {"brokers": "b", "topic": "t", "end": {"0": -1}}}, 7, "source.end"),
        ({"source": {"brokers": "b", "topic": "a/b"}}, 6, "source.topic: 'a/b' is not a topic's name"),
        ({"source": {"brokers": "b", "topic": ".."}}, 6, "source.topic: '..' is not a topic's name"),
        ({"source": {"brokers": " , ", "topic": "t"}}, 5, "source.brokers: names no broker"),
        (
            {"source": {"brokers": "b"}},
            4,
            "source: needs exactly one of topic, topics, topic_pattern, files, table, lake, http; none given",
        ),
        ({"source": {"brokers": "b", "topic": "t", "topics": ["u"]}}, 4, "topic and topics given"),
        ({"metadata": ["partition", "ofset"]}, 11, "metadata.1: input should be"),
    ],
)  # fmt: skip
def test_an_error_names_file_line_field_and_what_to_write(fields: dict[str, Any], line: int, words: str) -> None:
    said = refused(document(**fields))
    assert said.startswith(f"tweets.yaml:{line}: "), said
    assert words in said


def test_an_error_names_a_value_once() -> None:
    assert refused(document(into={"table": "a; drop"})).count("'a; drop'") == 1


@each_case(
    ("text", "words"),
    [
        ("", "tweets.yaml:1: not a pipeline"),
        ("type: x\nattributes: {}", "tweets.yaml:1: type is 'x' -> write `type: kpipe_assets.KafkaPipeline`"),
        (f"type: {COMPONENT}", "attributes are missing"),
        (f"type: {COMPONENT}\nattributs: {{}}", "tweets.yaml:2: unknown field attributs"),
        (f"type: {COMPONENT}\nattributes:\n  name: a\n  name: b", "tweets.yaml:4: not YAML: field name is given twice"),
        ("a: [", "not YAML"),
        ("? [a]\n: b", "not YAML: a field's name is not a plain text"),
        (
            "type: x\na: 12_345_678_901_234_567.89",
            "tweets.yaml:2: not YAML: 12345678901234567.89: the number has more digits than a float can have; write it in quotes",
        ),
        ("a: 2026-13-45", "put dates and times in quotes"),
        ("a: &x {b: *x}", "tweets.yaml"),
        ("a: !!python/object/apply:os.system ['true']", "not YAML"),
    ],
)
def test_a_file_that_is_no_pipeline_is_refused_in_words(text: str, words: str) -> None:
    assert words in refused(text)


# Templates and secrets


def test_templates_are_filled_in_from_the_environment() -> None:
    assert resolve("a{{ env('X') }}b{{env(\"Y\", 'or this')}}", {"X": "1"}) == "a1bor this"
    assert resolve("{{ env('X', '') }}", {}) == ""
    assert resolve("no template", {}) == "no template"
    assert resolve("{{ env('X') }}", {"X": "{{ env('Y') }}"}) == "{{ env('Y') }}", "a value is data, unknown template"


def test_a_document_keeps_the_templates_of_equal_values_of_the_one_that_it_replaces() -> None:
    """Also those of defaults, of numbers and inside of lists; a template of another environment's value is replaced."""
    former = f"""
type: {COMPONENT}
attributes:
  name: tweets
  source: {{brokers: "{{{{ env('B', 'x:1') }}}}", topics: [a, "{{{{ env('T', 'b') }}}}", "{{{{ env('U', 'c') }}}}"]}}
  batch: {{max_retries: "{{{{ env('R', '4') }}}}", interval_ms: "{{{{ env('I', '7') }}}}"}}
  into: {{table: "tweets_{{{{ env('STAGE', 'dev') }}}}"}}
"""
    pipeline = from_yaml(former, environ={})
    where = pipeline.model_copy(update={"where": "id > 1"})
    kept = from_yaml(to_yaml(where, former, environ={}), environ={"B": "y:1", "T": "d", "R": "9", "I": "8", "STAGE": "prod"})
    assert (kept.source.brokers, kept.source.names, kept.into.table) == ("y:1", ("a", "d", "c"), "tweets_prod")
    assert (kept.batch.max_retries, kept.batch.interval_ms, kept.where) == (9, 8, "id > 1")
    other = from_yaml(former, environ={"I": "8", "T": "d"})
    kept = from_yaml(to_yaml(other, former, environ={}), environ={"B": "y:1", "T": "e", "I": "9", "U": "f"})
    assert (kept.source.brokers, kept.source.names, kept.batch.interval_ms) == ("y:1", ("a", "d", "f"), 8)
    assert to_yaml(pipeline, "no: pipeline") == to_yaml(pipeline, former.replace("'B', 'x:1'", "'B'")) == to_yaml(pipeline)


@given(st.text() | st.text("{}' \"env(X)") | st.lists(st.sampled_from(["{{", "}}", "{", "'", " ", "env('X')"])).map("".join))
@example("{{ env('HOME') }}")
@example("REPLACE(a, '{{name}}', b)")
@example("{{ '{{' }}")
def test_a_text_with_braces_is_the_same_when_the_file_is_read(text: str) -> None:
    made = Pipeline.model_validate({**SMALLEST, "set": {"c": f"mysql: CONCAT({quoted(text)}, a)"}})
    assert from_yaml(to_yaml(made), environ={"X": "1", "HOME": "/root"}) == made


@each_case("text", ["{{ X }}", "{{ env(X) }}", "{{ env('X') }", "{{ env('X').y }}", "{{ open('f') }}"])
def test_a_template_that_kpipe_does_not_know_is_refused(text: str) -> None:
    if "}}" not in text:
        text += " {{"
    with pytest.raises(InvalidPipeline, match="unknown template"):
        resolve(text, {"X": "1"})


def test_a_variable_that_is_not_set_is_named_with_its_field() -> None:
    said = refused(document(select="{{ env('NOT_THERE') }}"))
    assert said == "tweets.yaml:9: select: environment variable NOT_THERE is not set -> export NOT_THERE=..."


def test_templates_are_filled_in_everywhere_but_under_credentials() -> None:
    source = {"brokers": "{{ env('B') }}", "topic": "t", "credentials": {"sasl.password": "{{ env('P') }}"}}
    pipeline = from_yaml(document(source=source), environ={"B": "host:1", "P": "hunter2"})
    assert pipeline.source.brokers == "host:1"
    assert pipeline.source.credentials == {"sasl.password": "{{ env('P') }}"}
    for text in (repr(pipeline), str(pipeline), to_yaml(pipeline), pipeline.model_dump_json()):
        assert "hunter2" not in text
        assert "env('P')" in text.replace('\\"', '"').replace("''", "'")


@each_case(
    "source",
    [
        {"brokers": "b", "topic": "t", "credentials": {"sasl.password": ["hunter2"]}},
        {"brokers": "b", "topic": "t", "credentials": "hunter2"},
        {"brokers": "b", "topic": "t", "credentials": ["hunter2"]},
        {"brokers": "b", "topic": "t", "config": {"sasl.password": ["hunter2"]}},
        {"brokers": "b", "topic": "t", "config": "hunter2"},
        {"brokers": "b", "topik": "t", "credentials": {"sasl.password": "hunter2"}},
        {"brokers": "b", "credentials": {"sasl.password": "hunter2"}},
        [{"credentials": {"sasl.password": "hunter2"}}],
    ],
)
def test_a_secret_is_in_no_error(source: object) -> None:
    assert "hunter2" not in refused(document(source=source))


# The model


@each_case(
    ("brokers", "bootstrap"),
    [("h", "h:9092"), ("h:1, i", "h:1,i:9092"), (["h:1", "i:2"], "h:1,i:2"), (["h", " "], "h:9092"), ("h:1,", "h:1")],
)
def test_brokers_have_a_port(brokers: str | list[str], bootstrap: str) -> None:
    assert Source.model_validate({"brokers": brokers, "topic": "t"}).bootstrap == bootstrap


@each_case(
    ("timestamp", "ms"), [("1970-01-01T00:00:01", 1000), ("1970-01-01T02:00:01+02:00", 1000), ("1970-01-01T00:00:00.0015Z", 1)]
)
def test_a_moment_without_a_zone_is_utc(timestamp: str, ms: int) -> None:
    start = Source.model_validate({"brokers": "b", "topic": "t", "start": {"timestamp": timestamp}}).start
    assert start.ms == ms  # type: ignore[union-attr]


def test_a_pipeline_is_a_value(define: Callable[..., Pipeline]) -> None:
    pipeline = define()
    with pytest.raises(ValidationError):
        pipeline.name = "other"  # type: ignore[misc]
    assert pipeline == define()


def test_every_field_of_the_contract_is_in_the_model(define: Callable[..., Pipeline]) -> None:
    names = [field.alias or name for name, field in Pipeline.model_fields.items()]
    assert names == [
        "name", "source", "batch", "transform", "format", "key_format", "columns", "lookups", "select", "where", "set",
        "metadata", "schema", "errors", "delivery", "into", "also", "asset",
    ]  # fmt: skip
    assert Path(define().into.table).name == "tweets"


@pytest.mark.parametrize("part", ["into", "also"])
def test_a_key_names_each_column_once(define: Callable[..., Pipeline], part: str) -> None:
    table = {"table": "t", "key": ["id", "ID"], "on_conflict": "replace"}
    with pytest.raises(ValidationError, match="names a column twice"):
        define(into=table) if part == "into" else define(also=[table])
