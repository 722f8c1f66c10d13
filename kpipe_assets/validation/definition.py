"""Check fields without a connection: combinations, settings, programs, lookups, type of destination."""

from __future__ import annotations

from pathlib import Path

from kpipe.batch.dead_letter_page import LetterPages
from kpipe.definition.formats import Format
from kpipe.definition.json_path import parse_path
from kpipe.definition.pipeline import Pipeline
from kpipe.definition.source import EXTERNAL
from kpipe.errors import InvalidPipeline, NotAvailable
from kpipe.expressions.projection import lookups_of
from kpipe.interfaces import Keyed
from kpipe.planning.transaction_rules import check_cut
from kpipe.tables.multi_table import field_of_table, table_destinations, table_pipelines
from kpipe.tables.upsert import KeyRule
from kpipe_assets.validation.case import Case, with_placeholders
from resources.destinations import open_destination

__all__ = ["check_available", "check_destination", "check_formats", "check_lookups", "check_program", "check_source"]

_TYPED = ("avro", "protobuf")
_OFFSET = "offset"  # resources/decode/arrow/decoder.py


def check_available(pipeline: Pipeline) -> None:
    """Reject combinations of fields that this version does not support.

    Raises:
        NotAvailable: names the field.
    """
    errors = pipeline.errors
    refused: dict[str, tuple[bool, tuple[str, ...]]] = {
        "select beside key_format": (
            any(part.select is not None for part in table_pipelines(pipeline)) and pipeline.key_format is not None,
            ("key_format", "type"),
        ),
    }
    if any(KeyRule.of(part) is not None for part in table_pipelines(pipeline)):
        program = pipeline.transform
        mode = program.mode if program is not None else "map"
        # Rows of such a program have no offset.
        untraced = program is not None and not program.traced
        refused[f"rows with a key (into.key ...) from a program with mode: {mode}"] = untraced, ("transform",)
        again = pipeline.delivery == "at_least_once" and pipeline.into.on_conflict == "error"
        named = "delivery: at_least_once where a key that is there is an error"
        refused[named] = again and errors.duplicate_key == "fail", ("delivery",)
    for name, (wanted, field) in refused.items():
        if wanted:
            raise NotAvailable(
                f"pipeline {pipeline.name}: {name} is not available in this version", "see CHANGELOG.md"
            ).about(*field)  # fmt: skip
    _check_files(pipeline)
    check_cut(pipeline)
    if pipeline.format.type == "raw" and pipeline.columns:
        raise NotAvailable(
            f"pipeline {pipeline.name}: columns with format: raw", "raw has key and value; remove `columns`"
        ).about("columns")  # fmt: skip
    skips = pipeline.format.skip_lines > 0 and pipeline.source.files is None  # those of files are not lines of a record
    lines = pipeline.format.type == "csv" and (skips or pipeline.format.line_end != "\n")
    if pipeline.transform is not None and lines:
        raise NotAvailable(
            f"pipeline {pipeline.name}: format.skip_lines or format.line_end with a program",
            "a program writes a row a line; let it leave out what is not wanted",
        ).about("format", "skip_lines" if pipeline.format.skip_lines else "line_end")


def _check_files(pipeline: Pipeline) -> None:
    """Reject fields that do not fit a source of files, or a table."""
    files, kind = pipeline.source.files, pipeline.format
    if pipeline.source.reads_topics:
        return
    group = next(name for name in EXTERNAL if getattr(pipeline.source, name) is not None)
    who = f"pipeline {pipeline.name}: source.{group}"
    if pipeline.into.type != "kafka":
        raise NotAvailable(
            f"{who}: its records are written to topics only: expected into.type kafka, found {pipeline.into.type}",
            "set into.type: kafka; a second pipeline loads the topic into a table",
        ).about("into", "type")
    lines = ("json", "csv", "raw", "arrow") if files is not None and files.type == "lines" else ("json", "arrow")
    if kind.type not in lines or kind.registry is not None:
        raise NotAvailable(
            f"{who}: expected format {', '.join(lines)} without a registry, found {kind.type}",
            "set format.type; rows of tables and of Parquet are JSON objects",
        ).about("format", "type")
    if files is not None and files.header and kind.type != "csv":
        raise InvalidPipeline(
            f"{who}.header: expected format: csv, found {kind.type}", "remove it, or set format.type: csv"
        ).about("source", "files", "header")
    if pipeline.key_format is not None:
        raise InvalidPipeline(f"{who}: key_format: its records have no key", "set into.key: columns of the key").about(
            "key_format", "type"
        )


def check_formats(pipeline: Pipeline) -> None:
    """Check `format` and `key_format`.

    Raises:
        InvalidPipeline: a schema is missing or invalid, or the two formats cannot be combined.
        NotAvailable: a package that compiles or validates the schema is not installed.
    """
    where, program, key = f"pipeline {pipeline.name}: ", pipeline.transform, pipeline.key_format
    _check_arrow(pipeline, where)
    _check_format(pipeline.format, f"{where}format")
    if program is not None and (pipeline.format.type in _TYPED or pipeline.format.registry is not None):
        raise InvalidPipeline(
            f"{where}format: {pipeline.format.type} with a schema behind a program",
            "a program writes lines of text: let it decode the records (stdin: length-prefixed) and write JSON",
        )
    if pipeline.format.type == "debezium":
        _check_changes(pipeline, where)
    if key is None:
        return
    _check_format(key, f"{where}key_format")
    if key.type == "debezium":
        raise InvalidPipeline(f"{where}key_format: debezium: it is a format of changes", "set format.type: debezium alone")
    if key.type == "raw" or pipeline.format.type == "raw":
        raise InvalidPipeline(f"{where}key_format with format: raw, or raw itself", "metadata: [key] keeps a key as it is")
    if key.several:
        raise InvalidPipeline(
            f"{where}key_format: explode and documents: a key gives one row", "set them in format, for the record's value"
        ).about("key_format", "explode" if key.explode is not None else "documents")
    if key.type == "csv" and key.fields is None:
        raise InvalidPipeline(f"{where}key_format: csv without fields", "name the column of each field in key_format.fields")
    if program is not None and program.mode != "map":
        raise InvalidPipeline(
            f"{where}key_format with a program of mode {program.mode}", "rows of such a program cannot be traced to a key"
        )


def _check_changes(pipeline: Pipeline, where: str) -> None:
    """Check a definition of change events: records and keys have one format, and no program reads them."""
    from resources.decode.debezium.images import declared_types

    if pipeline.key_format is not None:
        what = f"{where}format: debezium with key_format: keys are Debezium's, too"
        raise InvalidPipeline(what, "remove `key_format`").about("key_format", "type")
    if pipeline.transform is not None:
        what = f"{where}format: debezium with a program: it would have to write change events"
        raise InvalidPipeline(what, "remove `transform`; use `set`, `where` or `select`").about("transform")
    declared_types(pipeline.format)


def _check_arrow(pipeline: Pipeline, where: str) -> None:
    """Reject fields that a program with typed columns makes meaningless."""
    program, columns = pipeline.transform, f"{where}transform.stdin: arrow"
    arrow = program is not None and program.stdin == "arrow"
    if pipeline.key_format is not None and (arrow or pipeline.key_format.type == "arrow"):
        what = f"{columns}: the program receives keys: expected no key_format, found {pipeline.key_format.type}"
        raise InvalidPipeline(what, "remove `key_format`; let the program write the key's columns").about("key_format", "type")
    if arrow and pipeline.format.type != "arrow":
        what = f"{columns}: the program writes typed columns: expected no format, found {pipeline.format.type}"
        raise InvalidPipeline(what, "remove `format`").about("format", "type")
    if not arrow and pipeline.format.type == "arrow":
        what = f"{where}format: arrow without a program that writes it"
        raise InvalidPipeline(what, "set transform.stdin: arrow, or another format").about("format", "type")
    for part in table_pipelines(pipeline) if arrow else ():
        assigned = {name.lower() for name in part.set} | (set() if part.select is None else {_OFFSET})
        if _OFFSET in {name.lower() for name in part.columns} - assigned:
            what = f"{columns}: column {_OFFSET} is the offset of a row's record, never a column of the table"
            raise InvalidPipeline(what, "name the column differently, or assign it in `set`").about("columns", _OFFSET)


def _check_format(kind: Format, where: str) -> None:
    if kind.type == "protobuf":
        _check_protobuf(kind, where)
    elif kind.type in _TYPED and kind.definition is None and kind.registry is None:
        raise InvalidPipeline(f"{where}: {kind.type} without a schema", "give `schema`, or the address of a `registry`")
    if kind.type == "json":
        _check_json(kind, where)
    if kind.type == "avro" and kind.definition is not None:
        from resources.decode.avro.schema_plan import plan
        from resources.decode.exploded_columns import column_lists
        from resources.decode.payload_schemas import Unfit

        try:
            found = plan(kind.definition)
        except Unfit as error:
            raise InvalidPipeline(f"{where}.schema: {error}", "write an Avro schema as JSON") from None
        try:
            column_lists(kind, found.columns, found.columns)
        except Unfit as error:
            raise InvalidPipeline(f"{where}.{error}", "write the path of an array of the schema, such as orders::lines") from None
        for name, item in (kind.mapping or {}).items():
            try:
                found.without_branches(parse_path(item if isinstance(item, str) else item.path))
            except Unfit as error:
                field = where.rpartition(" ")[2]
                what = f"{where}.mapping: {name}: {error}"
                hint = "read a member of its JSON in `set`: @variable::member"
                raise InvalidPipeline(what, hint).about(field, "mapping", name) from None


def _check_protobuf(kind: Format, where: str) -> None:
    given = [name for name, value in (("schema", kind.definition), ("descriptors", kind.descriptors)) if value is not None]
    if kind.registry is not None and given:
        raise InvalidPipeline(f"{where}: `{given[0]}` beside a registry", f"leave out `{given[0]}`: each record names its schema")
    if kind.registry is None and len(given) != 1:
        raise InvalidPipeline(
            f"{where}: protobuf {'with two schemas' if given else 'without a schema'}",
            "give the address of a `registry`, or `descriptors` (a file of protoc -o), or `schema` (.proto text)",
        )
    if kind.registry is None:
        from resources.decode.schema_files import with_schema

        with_schema(kind, where)


def _check_json(kind: Format, where: str) -> None:
    if kind.definition is not None and (kind.registry is not None or not kind.validated):
        why = "beside a registry" if kind.registry is not None else "for JSON without `validate: true`"
        raise InvalidPipeline(
            f"{where}: a `schema` {why}", "leave out `schema`, or let records be validated by it: validate: true"
        )
    if not kind.validated:
        return
    if kind.definition is None and kind.registry is None:
        raise InvalidPipeline(f"{where}: `validate` without a schema", "give the address of a `registry`, or `schema`")
    from resources.decode.json_schema.schema import JsonSchema
    from resources.decode.payload_schemas import Unfit
    from resources.schema_registry.client import Schema

    try:
        JsonSchema(Schema("JSON", kind.definition or "{}"))
    except Unfit as error:
        raise InvalidPipeline(f"{where}.schema: {error}", "write a JSON Schema") from None


def check_source(case: Case) -> None:
    """Check the settings of the Kafka client and of the registry. Variables may be unset."""
    from resources.kafka.client_config import check_topics, client_config, registry_access
    from resources.schema_registry.config import check_registry
    from resources.sources.open_source import check_connector

    source, environ = case.pipeline.source, case.environ
    check_connector(case.pipeline, environ)
    try:
        client_config(source, environ, read=False)
    except InvalidPipeline as error:
        group = "credentials" if error.what.startswith("source.credentials") else "config"
        named = [key for key in (*source.config, *source.credentials) if f" {key} " in f" {error.what} ".replace(":", " ")]
        word = max(named, key=len, default="")
        error.about("source", group, *([word] if word else []), word=word)
        raise
    check_topics(source)
    access = registry_access(source, environ, read=False)
    for name, kind in (("format", case.pipeline.format), ("key_format", case.pipeline.key_format)):
        try:
            check_registry(kind, access)
        except InvalidPipeline as error:
            error.about(name, "registry")
            raise


def check_program(case: Case) -> None:
    """Check that the program can be executed and files with schemas can be read."""
    from resources.decode.schema_files import with_files
    from transforms.preflight import resolve

    with_files(case.pipeline)
    if (transform := case.pipeline.transform) is not None:
        resolve(transform.program, transform.archive, transform.args, Path.cwd())


def check_destination(case: Case) -> None:
    """Check that the destination exists and supports the requested features, without a connection."""
    place = open_destination(with_placeholders(case.pipeline), case.home)
    if case.pipeline.errors.topic is not None and not isinstance(place, LetterPages):
        other = "set into.dead_letters, the topic that receives them already" if case.pipeline.into.type == "kafka" else ""
        raise NotAvailable(
            f"pipeline {case.pipeline.name}: errors.topic: not available for {place.describe()}",
            other or "remove it; kpipe errors NAME --json prints the dead letters",
        ).about("errors", "topic")
    for at, (part, one) in enumerate(table_destinations(case.pipeline, place)):
        if KeyRule.of(part) is not None and not isinstance(one, Keyed):
            raise NotAvailable(
                f"pipeline {part.name}: {one.describe()} does not support keys",
                "remove into.key and into.on_conflict, and select the latest row of each key in a view over the table",
            ).about(*field_of_table(at, "into", "on_conflict"))


def check_lookups(case: Case) -> None:
    """Check that lookups have the used columns. Lookups from files are loaded."""
    used = lookups_of(case.selections)
    if not used.calls:
        return
    from resources.lookups.loader import Lookups

    lookups = Lookups(case.pipeline, used, environ=case.environ)
    if all(case.pipeline.lookups[call.lookup].path is not None for call in used.calls):
        case.lookups = lookups.of_batch("validation")
    else:
        lookups.check_files()
