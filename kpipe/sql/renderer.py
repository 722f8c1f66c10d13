"""Print values as statements. Each is parsed again and compared, so that printing never changes a definition."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from kpipe.definition.lookups import KINDS
from kpipe.definition.pipeline import Pipeline, Timestamp
from kpipe.definition.references import to_statement
from kpipe.definition.secret_values import masked
from kpipe.definition.sink_options import table_of
from kpipe.errors import InvalidPipeline, InvalidStatement
from kpipe.expressions.languages import write_expression
from kpipe.expressions.quoting import quoted, quoted_name
from kpipe.sql import statements as s
from kpipe.sql.clauses import LIMITS, RETRIES
from kpipe.sql.format_renderer import format_clauses
from kpipe.sql.parser import read
from kpipe.topics import Part

__all__ = ["to_sql", "write"]

#: Fields of a format that have no clause, but are in OPTIONS.
_FORMAT_OPTIONS = (
    "envelope", "source_table", "truncate", "types", "unavailable", "documents", "explode", "explode_outer", "ordinality",
    "schemas_enable", "infer_timestamps",
)  # fmt: skip
_RETRY = {field: name for name, field in RETRIES.items() if field != "max_retries"}
_STDIN = {"lines": "LINES", "length-prefixed": "LENGTH_PREFIXED", "json": "JSON", "arrow": "ARROW"}


def to_sql(pipeline: Pipeline, or_replace: bool = False, if_not_exists: bool = False) -> str:
    """Print CREATE PIPELINE with one clause per line, and `;`. Literal secrets of the definition are masked.

    Raises:
        InvalidPipeline: a field has no representation in a statement.
    """
    sink = not pipeline.source.reads_topics and pipeline.into.type == "kafka"
    kind = ["SOURCE", "PIPELINE"] if sink else ["PIPELINE"]
    words = ["CREATE", *(["OR REPLACE"] if or_replace else []), *kind, *(["IF NOT EXISTS"] if if_not_exists else [])]
    given = pipeline.to_dict()
    fields = masked(given)
    hides = fields != given
    typed = pipeline.format.type == "arrow"  # its format has no clause
    lines = [f"{' '.join(words)} {quoted_name(fields.pop('name'))}", *_source(fields), *_target(fields, typed, sink)]
    text = "\n".join(line for line in lines if line) + ";"
    if not hides:
        _prove(text, s.Create(pipeline, or_replace, if_not_exists))
    return text


def _prove(text: str, statement: s.Statement) -> None:
    try:
        same = read(text) == statement
    except InvalidStatement as error:
        raise InvalidPipeline(f"the definition cannot be written as a statement: {error.what}", error.hint) from error
    if not same:
        raise InvalidPipeline("the definition cannot be written as a statement without loss", "keep it in YAML")


def _source(fields: dict[str, Any]) -> Iterator[str]:
    """Yield the clauses before INTO, and remove their fields."""
    source, batch = fields.pop("source"), fields.pop("batch", {})
    endpoint, topic = source.pop("brokers", None), source.pop("topic", None)
    if (files := source.pop("files", None)) is not None:
        yield f"AS LOAD DATA FILES {quoted(files.pop('path'))}"
        source |= {"files": files} if files else {}
    elif (table := source.pop("table", None)) is not None:
        name, place = ".".join(map(quoted_name, table.pop("name").split("."))), quoted(table.pop("database"))
        yield f"AS LOAD DATA TABLE {name} IN {table.pop('type')} {place} ORDER BY {quoted_name(table.pop('column'))}"
        source |= {"table": table} if table else {}
    elif (http := source.pop("http", None)) is not None:
        yield f"AS LOAD DATA HTTP {quoted(http.pop('url'))}"
        source |= {"http": http}
    elif (lake := source.pop("lake", None)) is not None:
        name = ".".join(map(quoted_name, lake.pop("name").split(".")))
        yield f"AS LOAD DATA TABLE {name} IN {lake.pop('type')} {quoted(lake.pop('database'))}"
        source |= {"lake": lake} if lake else {}
    else:
        yield f"AS LOAD DATA KAFKA {quoted(endpoint if topic is None else f'{endpoint}/{topic}')}"
    if "topics" in source:
        yield f"TOPICS ({', '.join(map(quoted, source.pop('topics')))})"
    if "topic_pattern" in source:
        yield f"TOPIC PATTERN {quoted(source.pop('topic_pattern'))}"
    if "config" in source:
        yield f"CONFIG {_json(source.pop('config'))}"
    if "credentials" in source:
        yield f"CREDENTIALS {_json({key: to_statement(value) for key, value in source.pop('credentials').items()})}"
    start, end = source.pop("start", None), source.pop("end", None)
    if start is not None or end is not None:
        yield f"OFFSETS {_moment(start or 'earliest')}" + (f" TO {_moment(end)}" if end is not None else "")
    for clause, field in LIMITS.items():
        if field in batch:
            yield f"{clause} {batch.pop(field)}"
    if batch.keys() & _RETRY.keys():
        yield f"RETRY_OPTIONS {_json({name: batch.pop(field) for field, name in _RETRY.items() if field in batch})}"
    errors, into = fields.get("errors", {}), fields["into"]
    if errors.pop("batch", None) == "skip":
        yield "STOP_ON_ERROR OFF"
    if "transform" in fields:
        yield _transform(fields)
    for name, lookup in fields.pop("lookups", {}).items():
        yield _lookup(name, lookup)
    skipped = errors.pop("constraint") if errors.get("constraint") == "dead_letter" else ""
    if skipped and into.get("on_conflict") == "ignore" and "parse" not in errors:  # `dead_letter` is the default of `parse`
        del into["on_conflict"]
        yield "SKIP ALL ERRORS"
        skipped = ""
    if into.get("on_conflict") in ("replace", "ignore"):
        yield {"replace": "REPLACE", "ignore": "SKIP DUPLICATE KEY ERRORS"}[into.pop("on_conflict")]
    if skipped:
        yield "SKIP CONSTRAINT ERRORS"
    fields.update({"source": source, "batch": batch, "errors": errors})


def _lookup(name: str, fields: dict[str, Any]) -> str:
    key, credentials = fields.pop("key"), fields.pop("credentials", None)
    kind = next(kind for kind in KINDS if kind in fields)
    text = fields.pop(kind)
    if credentials:
        fields["credentials"] = {item: to_statement(value) for item, value in credentials.items()}
    place = {"table": f"TABLE {quoted_name(text)}", "path": quoted(text)}.get(kind) or f"{kind.upper()} {quoted(text)}"
    rest = f" SETTINGS {_json(fields)}" if fields else ""
    return f"LOOKUP {quoted_name(name)} KEY ({', '.join(map(quoted_name, key))}) FROM {place}{rest}"


def _target(fields: dict[str, Any], typed: bool, sink: bool) -> Iterator[str]:
    """Yield OPTIONS, INTO and the clauses after it. OPTIONS contains all fields without a clause."""
    into = fields.pop("into")
    values, key = fields.pop("format", {}), fields.pop("key_format", None)
    columns, where, also = fields.pop("set", {}), fields.pop("where", None), fields.pop("also", [])
    table, names, kind, database = into.pop("table"), into.pop("key", None), into.pop("type", None), into.pop("database", None)
    if "credentials" in into:
        into["credentials"] = {name: to_statement(value) for name, value in into["credentials"].items()}
    update = into.pop("update", {}) if into.pop("on_conflict", None) == "update" else None
    endpoint = f"{into.pop('brokers', '')}/{into.pop('topic', '')}" if sink else ""
    if sink and table != table_of(endpoint.rpartition("/")[2]):
        into["table"] = table
    rest = {name: value for name, value in {**fields, "into": into}.items() if value != {}}
    for group, part in (("format", values), ("key_format", key or {})):
        if part.pop("booleans", "json") == "json" and part.get("type", "json") == "json" and "mapping" in part:
            rest[group] = {"booleans": "json"}  # with a list of paths, the default of a statement is `number`
        more = {name: part.pop(name) for name in _FORMAT_OPTIONS if name in part}
        if more:
            rest[group] = {**rest.get(group, {}), **more}
    if names == []:  # a list of columns cannot be empty
        rest["into"] = {**into, "key": names}
        names = None
    if rest:
        yield f"OPTIONS {_json(rest)}"
    place = f" IN {quoted_name(kind or 'duckdb')}" + (f" {quoted(database)}" if database is not None else "")
    target = f"INTO KAFKA {quoted(endpoint)}" if sink else f"INTO TABLE {quoted_name(table)}"
    target += f" KEY ({', '.join(map(quoted_name, names))})" if names is not None else ""
    yield target + (place if not sink and (kind is not None or database is not None) else "")
    if not typed:
        yield from format_clauses(values, "")
    if key is not None:
        yield from format_clauses(key, " KAFKA KEY")
    yield from _computed(columns, where, update)
    for item in also:
        yield from _also(item)


def _computed(columns: Mapping[str, str], where: str | None, update: Mapping[str, str] | None) -> Iterator[str]:
    if columns:
        yield f"SET {_assignments(columns)}"
    if where is not None:
        yield f"WHERE {write_expression(where)}"
    if update is not None:
        yield f"ON DUPLICATE KEY UPDATE {_assignments(update) if update else '*'}"


def _also(fields: dict[str, Any]) -> Iterator[str]:
    table, names, columns, where = fields.pop("table"), fields.pop("key", None), fields.pop("set", {}), fields.pop("where", None)
    update = fields.pop("update", {}) if fields.get("on_conflict") == "update" else None
    if update is not None:
        del fields["on_conflict"]
    if names == []:  # a list of columns cannot be empty
        fields, names = {**fields, "key": names}, None
    key = f" KEY ({', '.join(map(quoted_name, names))})" if names is not None else ""
    yield f"ALSO INTO TABLE {quoted_name(table)}{key}" + (f" SETTINGS {_json(fields)}" if fields else "")
    yield from _computed(columns, where, update)


def _assignments(columns: Mapping[str, str]) -> str:
    return ",\n    ".join(f"{quoted_name(name)} = {write_expression(expression)}" for name, expression in columns.items())


def _transform(fields: dict[str, Any]) -> str:
    return "WITH " + _program(fields.pop("transform"), fields)


def _program(transform: dict[str, Any], rest: dict[str, Any]) -> str:
    """Print TRANSFORM (...); fields that it cannot express are left for OPTIONS."""
    program, archive = transform.pop("program"), transform.pop("archive", None)
    stdin, mode = transform.pop("stdin", "lines"), transform.pop("mode", "map")
    arguments = " ".join(transform.get("args", ()))
    if arguments.split() == transform.get("args", []):
        transform.pop("args", None)
    texts = [archive or program, program if archive else "", arguments if "args" not in transform else ""]
    while texts[-1] == "" and len(texts) > 1:
        texts.pop()
    if transform:
        rest["transform"] = transform
    parts = [f"TRANSFORM ({', '.join(map(quoted, texts))})"]
    parts += [f"STDIN {_STDIN[stdin]}"] if stdin != "lines" else []
    return " ".join([*parts, *([f"MODE {mode.upper()}"] if mode != "flatmap" else [])])


def _json(value: Any) -> str:
    return quoted(json.dumps(value, ensure_ascii=False))


def _moment(value: Any) -> str:
    if isinstance(value, Timestamp):
        return f"TIMESTAMP {quoted(value.timestamp.isoformat())}"
    if isinstance(value, str):
        return value.upper()
    if "timestamp" in value:
        return f"TIMESTAMP {quoted(value['timestamp'])}"
    return _json({str(partition): offset for partition, offset in value.items()})


def write(statement: s.Statement) -> str:
    """Print any statement, with `;`; parsing it gives an equal one.

    Raises:
        InvalidPipeline: a value has no representation in a statement.
    """
    match statement:
        case s.Create():
            return to_sql(statement.pipeline, statement.or_replace, statement.if_not_exists)
        case s.Infer():
            text = to_sql(statement.pipeline)
            text = "INFER PIPELINE " + text[text.index("\n") + 1 :]
        case _:
            text = _plain(statement) + ";"
    _prove(text, statement)
    return text


def _plain(statement: s.Statement) -> str:
    match statement:
        case s.Query():
            return statement.text
        case s.ShowPipelines():
            return "SHOW PIPELINES"
        case s.StartMany():
            return f"START {'FAILED' if statement.failed else 'ALL'} PIPELINES"
        case s.StopAll():
            return "STOP ALL PIPELINES" + (" CANCEL" if statement.cancel else "")
        case s.ClearErrors():
            return "CLEAR PIPELINE ERRORS" + (f" FOR {quoted_name(statement.pipeline)}" if statement.pipeline is not None else "")
        case s.Truncate():
            return f"TRUNCATE TABLE {quoted_name(statement.table)}"
        case s.Reset():
            return f"RESET PIPELINE {', '.join(map(quoted_name, statement.pipelines))}"
        case s.Create() | s.Infer():
            raise AssertionError(statement)
    name = quoted_name(statement.pipeline)
    match statement:
        case s.Alter():
            return f"ALTER PIPELINE {name} {' '.join(map(_change, statement.changes))}"
        case s.Drop() | s.Detach():
            verb = "DROP" if isinstance(statement, s.Drop) else "DETACH"
            return f"{verb} PIPELINE {'IF EXISTS ' if statement.if_exists else ''}{name}"
        case s.Start():
            limit = f" LIMIT {statement.limit} BATCHES" if statement.limit is not None else ""
            foreground = f" FOREGROUND{limit}" if statement.foreground else ""
            return f"START PIPELINE {'IF NOT RUNNING ' if statement.if_not_running else ''}{name}{foreground}"
        case s.Stop():
            return f"STOP PIPELINE {'IF RUNNING ' if statement.if_running else ''}{name}" + (
                " CANCEL" if statement.cancel else ""
            )
        case s.Test():
            return f"TEST PIPELINE {name}" + (f" LIMIT {statement.limit}" if statement.limit is not None else "")
        case s.ShowCreate():
            return f"SHOW CREATE PIPELINE {name}" + (" EXTENDED" if statement.extended else "")
        case s.Extract():
            offsets = f" OFFSETS {statement.offsets.start} TO {statement.offsets.end}" if statement.offsets else ""
            where = f" FROM '{statement.partition}'{offsets}" if statement.partition is not None else ""
            return f"EXTRACT PIPELINE {name}{where} INTO OUTFILE {quoted(statement.file)}"
        case s.Replay():
            return f"REPLAY PIPELINE {name}"
        case s.Backfill():
            where = f" PARTITION {_part(statement.partition)}" if statement.partition is not None else ""
            offsets = f" FROM {statement.offsets.start} TO {statement.offsets.end}" if statement.offsets else ""
            return f"BACKFILL PIPELINE {name}{where}{offsets}"


def _part(partition: Part) -> str:
    return str(partition) if isinstance(partition, int) else quoted(partition)


def _change(change: s.Change) -> str:
    match change:
        case s.SetOffsets():
            return f"SET OFFSETS {_moment(change.to)}" + (" REREAD" if change.reread else "")
        case s.ReloadTransform():
            return "RELOAD TRANSFORM"
        case s.ReloadLookups():
            return "RELOAD LOOKUPS"
        case s.DropPartition():
            return f"DROP PARTITION '{change.partition}'" + (" REREAD" if change.reread else "")
        case s.DropOrphans():
            return "DROP ORPHAN PARTITIONS"
        case s.SetField():
            return f"SET {_field(change.path, change.value)}"


def _field(path: tuple[str, ...], value: Any) -> str:
    match path:
        case ("transform",):
            return _program(dict(value), {})
        case ("source", "config" | "credentials" as group):
            return f"{group.upper()} {_json(_templates(value))}"
        case ("source", "config" | "credentials" as group, str(key)):
            return f"{group.upper()} ::{quoted(key)} = {quoted(_templates({key: value})[key])}"
        case ("batch", str(field)) if field in LIMITS.values():
            return f"{next(clause for clause, known in LIMITS.items() if known == field)} {value}"
        case ("batch", str(field)) if field in _RETRY:
            return f"RETRY_OPTIONS {_json({_RETRY[field]: value})}"
        case ("errors", "batch"):
            return f"STOP_ON_ERROR { {'fail': 'ON', 'skip': 'OFF', None: 'NONE'}[value] }"
    raise InvalidPipeline(f"{'.'.join(path)} has no clause in ALTER PIPELINE", "write CREATE OR REPLACE PIPELINE")


def _templates(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: to_statement(value) if isinstance(value, str) else value for key, value in values.items()}
