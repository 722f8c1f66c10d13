"""Definitions and statements of every form, for properties."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from typing import Any

from hypothesis import strategies as st

from kpipe.definition.pipeline import Pipeline, Timestamp
from kpipe.offsets import Range
from kpipe.sql import statements as s

__all__ = ["names", "pipelines", "statements"]

# What a text may hold: everything but templates, which are filled in when a statement is read.
words = st.text(st.characters(codec="utf-8", exclude_characters="{}"), max_size=8) | st.sampled_from(
    ["", " ", "'", '"', "\\", "\\'", "a'b", "';--", "\n\t\0", "/*", "ü☃", "%", "`", "\x1a"]
)
names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,12}", fullmatch=True) | st.sampled_from(
    ["IF", "select", "Table", "FORMAT", "KEY", "SET", "WHERE", "AS", "ALL", "PIPELINE"]
)
tables = names.filter(lambda name: not name.lower().startswith("kpipe_"))
columns = (names | words.filter(lambda text: bool(text) and "\0" not in text)).filter(
    lambda name: not name.lower().startswith(("_kafka_", "@"))
)
variables = st.from_regex(r"@[A-Za-z_][A-Za-z0-9_]{0,6}", fullmatch=True)
topics = st.from_regex(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,12}", fullmatch=True)
zones = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
times = st.datetimes(datetime(1970, 1, 2), datetime(2100, 1, 1), timezones=st.none() | zones)
offsets = st.dictionaries(st.integers(0, 9999), st.integers(0, 10**18 - 1), min_size=1, max_size=3)
moments = st.sampled_from(["earliest", "latest"]) | offsets | times.map(lambda at: {"timestamp": at.isoformat()})
members = st.lists(words.filter(bool) | names | st.integers(0, 10**9 - 1).map(str), min_size=1, max_size=3).map(
    lambda parts: "::".join(part if part.isdigit() else f"`{part.replace('`', '``')}`" for part in parts)
)
paths = st.just("%") | members
literals = st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats(allow_nan=False, allow_infinity=False) | words
expressions = st.recursive(
    st.sampled_from([
        "a", "@v", "`odd name`", '"Odd"', "1", "-2.5e3", "'text; WHERE'", "NULL", "'it''s'", "now()", "a -- comment\n + 1",
        "STR_TO_DATE(@v, '%Y-%m-%d')", "CASE WHEN a THEN b ELSE NULL END", "a IN (1, 2)", "x['k'][1]", "{'k': a}", "[1, 2]",
        "get_kafka_pipeline_prop('prop_offset')", "format('{}', a)", "replace(a, '\\', '/')", "a::BIGINT", "b::TIMESTAMP",
        "lines", "fields + columns", "a IS NOT NULL", "a LIKE 'x%'", "a % 2", "CAST(a AS DECIMAL(10,2))", "E'a\\'b'",
    ]),
    lambda inner: st.builds("(({}) + ({}))".format, inner, inner) | st.builds("IF({}, {}, {})".format, inner, inner, inner)
    | st.builds("({}) || ({})".format, inner, inner) | st.builds("concat({})".format, inner),
    max_leaves=4,
)  # fmt: skip
expressions |= st.sampled_from(
    [
        "a + 1",
        "CONCAT(@v, 'it''s', \"x\\n\")",
        "@v = '1' AND NOT b",
        "`odd ``name` :> DECIMAL(10,2)",
        "DATE'2024-01-01' + INTERVAL 1 DAY",
    ]
).map("mysql: {}".format)
by_column = st.dictionaries(columns, expressions, max_size=3).filter(
    lambda found: len({name.lower() for name in found}) == len(found)
)


def some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=fields)


def distinct(items: Any) -> bool:
    return len({item.lower() for item in items}) == len(items)


mappings = st.dictionaries(
    columns | variables, paths | st.builds(lambda path, default: {"path": path, "default": default}, paths, literals),
    min_size=1, max_size=4,
).filter(distinct)  # fmt: skip
formats = st.one_of(
    st.just({"type": "raw"}),
    st.builds(lambda more: {"type": "protobuf", **more}, some(descriptors=words, message=words, schema=words)),
    st.builds(lambda kind, more: {"type": kind, **more}, st.sampled_from(["json", "avro", "protobuf"]),
              some(mapping=mappings, schema=words, registry=st.sampled_from(["r:8081", "https://r/x?a='b'"]))),
    st.builds(lambda more: {"type": "csv", **more},
              some(fields=st.lists(columns | variables, min_size=1, max_size=4).filter(distinct),
                   delimiter=words.filter(bool), quote=st.sampled_from(["", "'", '"', "\\"]),
                   escape=st.sampled_from(["", "\\", "'"]),
                   line_end=words.filter(bool), line_start=words, null=words, skip_lines=st.integers(0, 99))),
    st.just({"type": "csv", "null": "x'", "null_quoted": True}),
    st.builds(lambda division, more: {"type": "json", **division, **more},
              st.sampled_from([{"explode": "a::`b c`", "explode_outer": True}, {"explode": "%", "documents": "many"},
                               {"schemas_enable": True, "infer_timestamps": True}]),
              some(mapping=st.just({"x": {"path": "a::`b c`::0", "default": None}}))),
)  # fmt: skip
transforms = st.builds(
    lambda where, more: {**where, **more},
    st.sampled_from([{"program": "p.py"}, {"program": "/a b/p'"}, {"program": "in/p", "archive": "x.tar.gz"},
                     {"program": "p", "archive": "/x.ZIP"}]),
    some(args=st.lists(words | st.just("--fast"), max_size=3),
         stdin=st.sampled_from(["lines", "length-prefixed", "json", "arrow"]),
         mode=st.sampled_from(["map", "filter", "flatmap"]), idle_timeout_s=st.integers(1, 99), env=st.lists(names, max_size=2)),
)  # fmt: skip
configs = st.dictionaries(
    st.sampled_from(["client.id", "security.protocol", "x'y", "fetch.min.bytes"]),
    words | st.integers(-9, 10**9) | st.booleans() | st.floats(allow_nan=False, allow_infinity=False), max_size=3,
)  # fmt: skip
secrets = st.sampled_from(["{{ env('P') }}", "Bearer {{ env('P') }}", "{{ env('A') }}:{{ env('B') }}", "{{ file('/a b') }}"])
credentials = st.dictionaries(st.sampled_from(["sasl.password", "ssl.key.password"]), secrets, max_size=2)
policies = st.sampled_from(["fail", "dead_letter", "skip"])


def fitting(source: dict[str, Any]) -> dict[str, Any]:
    """Where there are several topics, offsets name theirs."""
    if "topic_pattern" in source or len(set(source.get("topics", ()))) > 1:
        for name in {"start", "end"} & source.keys():
            at = source[name]
            if isinstance(at, dict) and "timestamp" not in at:
                source[name] = {f"web.a-{number % 3}:{number}": offset for number, offset in at.items()}
    return source


sources = st.builds(
    lambda which, more: fitting({**which, **more}),
    topics.map(lambda topic: {"brokers": "b:1,c", "topic": topic}) | st.just({"brokers": "SSL://h:9", "topic": "t"})
    | st.lists(topics, min_size=1, max_size=3).map(lambda found: {"brokers": "b", "topics": found})
    | words.map(lambda text: {"brokers": "b", "topic_pattern": "^" + re.escape(text)}),
    some(start=moments, end=moments.filter(lambda at: at != "earliest") | st.none(), config=configs, credentials=credentials,
         on_data_loss=st.sampled_from(["fail", "record"]), group=names),
)  # fmt: skip
targets = st.builds(
    lambda table, more, conflict: {"table": table, **more, **conflict},
    tables,
    some(
        type=st.sampled_from(["duckdb", "delta", "odd kind"]),
        database=words,
        key=st.lists(names, max_size=2, unique_by=str.lower),
    ),
    st.sampled_from([{}, {"on_conflict": "replace"}, {"on_conflict": "ignore"}])
    | by_column.map(lambda found: {"on_conflict": "update", "update": found}),
)
lookups = st.builds(
    lambda where, key, more: {**where, "key": key, **more},
    st.one_of(
        words.filter(bool).map(lambda text: {"path": text}),
        names.map(lambda name: {"table": name}),
        words.filter(bool).map(lambda text: {"query": text}),
        st.builds(
            lambda text, found: {"url": text, "credentials": found},
            words.filter(bool),
            st.dictionaries(st.sampled_from(["token", "password"]), secrets, max_size=2),
        ),
        st.just({"url": "https://h/x", "format": "csv", "delimiter": ";", "columns": {"a": "BIGINT"}}),
    ),
    names | st.lists(columns, min_size=1, max_size=3).filter(distinct),
    some(required=st.booleans(), refresh_s=st.integers(1, 99), timeout_s=st.floats(0.5, 9), max_mb=st.integers(1, 99)),
)
conflicts = st.sampled_from([{}, {"on_conflict": "replace"}, {"on_conflict": "ignore"}]) | by_column.map(
    lambda found: {"on_conflict": "update", "update": found}
)
further = st.builds(
    lambda table, more, conflict: {"table": table, **more, **conflict},
    tables,
    some(key=st.lists(names, max_size=2, unique_by=str.lower), select=words, where=expressions, set=by_column,
         columns=st.dictionaries(tables.map(str.lower), st.sampled_from(["BIGINT", "STRUCT(a DATE)[]"]), max_size=2)),
    conflicts,
)  # fmt: skip


def with_others(definition: dict[str, Any]) -> dict[str, Any]:
    """The definition without a table that is named twice."""
    taken = {definition["into"]["table"].lower()}
    also = []
    for item in definition.pop("also", ()):
        if item["table"].lower() not in taken:
            taken.add(item["table"].lower())
            also.append(item)
    return {**definition, "also": also}


pipelines = st.builds(
    lambda needed, more: Pipeline.model_validate(with_others({**needed, **more})),
    st.fixed_dictionaries({"name": names, "source": sources, "into": targets}),
    some(
        batch=some(interval_ms=st.integers(0, 10**6), max_offsets_per_partition=st.integers(1, 10**9),
                   max_bytes_per_partition=st.integers(1, 10**12), max_partitions=st.integers(1, 999),
                   max_retries=st.integers(0, 50), retry_interval_ms=st.integers(1, 999),
                   max_retry_interval_ms=st.integers(1, 999), exponential=st.booleans()),
        transform=transforms, format=formats, key_format=formats, set=by_column, where=expressions,
        columns=st.dictionaries(tables.map(str.lower), st.sampled_from(["BIGINT", "STRUCT(a DATE)[]"]), max_size=2),
        lookups=st.dictionaries(names, lookups, max_size=2).filter(distinct),
        select=words, also=st.lists(further, max_size=2),
        metadata=st.lists(st.sampled_from(["partition", "offset", "timestamp", "topic", "key", "headers"])),
        schema=st.sampled_from(["evolve", "ignore", "fail"]),
        errors=some(parse=policies, transform=policies, constraint=policies, batch=st.sampled_from(["fail", "skip"]),
                    max_dead_letters=st.integers(0, 99)),
        delivery=st.sampled_from(["exactly_once", "at_least_once"]),
        asset=some(group=names, description=words, tags=st.dictionaries(words, words, max_size=1)),
    ),
)  # fmt: skip

ranges = st.tuples(st.integers(0, 10**9), st.integers(1, 10**9)).map(lambda pair: Range(pair[0], pair[0] + pair[1]))
small = st.integers(0, 9999)
parts = small | st.builds("{}:{}".format, topics, small)
by_part = st.dictionaries(parts, small, min_size=1, max_size=3)
changes = st.one_of(
    st.builds(s.SetOffsets, st.sampled_from(["earliest", "latest"]) | offsets | by_part
              | times.map(lambda at: Timestamp(timestamp=at)), st.booleans()),
    st.just(s.ReloadTransform()), st.just(s.ReloadLookups()), st.just(s.DropOrphans()),
    st.builds(s.DropPartition, parts, st.booleans()),
    st.builds(s.SetField, st.sampled_from([("batch", "interval_ms"), ("batch", "max_retries")]), small),
    st.builds(s.SetField, st.just(("batch", "retry_interval_ms")), small),
    st.builds(s.SetField, st.just(("errors", "batch")), st.sampled_from(["fail", "skip", None])),
    st.builds(s.SetField, st.just(("source", "config")), configs),
    st.builds(s.SetField, st.just(("source", "credentials")), credentials),
    st.builds(s.SetField, st.just(("source", "config", "odd 'name'")), words),
    st.builds(s.SetField, st.just(("source", "credentials", "sasl.password")), secrets),
    st.just(s.SetField(("transform",), {"program": "p", "archive": "a.tgz", "args": ["-x"], "stdin": "json", "mode": "map"})),
    st.just(s.SetField(("transform",), {"program": "p.py", "stdin": "length-prefixed", "mode": "map"})),
)  # fmt: skip
statements: st.SearchStrategy[s.Statement] = st.one_of(
    st.builds(s.Create, pipelines, st.booleans()),
    st.builds(s.Create, pipelines, st.just(False), st.booleans()),
    st.builds(s.Alter, names, st.lists(changes, min_size=1, max_size=3).map(tuple)),
    st.builds(s.Drop, names, st.booleans()),
    st.builds(s.Start, names, st.booleans()),
    st.builds(s.Start, names, st.booleans(), st.just(True), st.none() | st.integers(1, 99)),
    st.builds(s.StartMany, st.booleans()),
    st.builds(s.Stop, names, st.booleans(), st.booleans()),
    st.builds(s.StopAll, st.booleans()),
    st.builds(s.Detach, names, st.booleans()),
    st.builds(s.Test, names, st.none() | st.integers(1, 99)),
    st.just(s.ShowPipelines()),
    st.builds(s.ShowCreate, names, st.booleans()),
    st.builds(s.Extract, names, words, parts, ranges | st.none()),
    st.builds(s.Extract, names, words),
    st.builds(s.ClearErrors, names | st.none()),
    st.builds(s.Replay, names),
    st.builds(s.Truncate, names),
    st.builds(s.Reset, st.lists(names, min_size=1, max_size=3).map(tuple)),
    st.builds(s.Backfill, names, parts | st.none(), ranges | st.none()),
    st.sampled_from(
        [s.Query("SELECT ';' FROM \"a;b\" -- no;\n WHERE 1"), s.Query("SHOW TABLES"), s.Query("CREATE TABLE t (a INT)")]
    ),
)
