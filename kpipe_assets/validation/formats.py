"""Formats that a pipeline can have: what would only fail when records are read is told before."""

from __future__ import annotations

from kpipe.definition.formats import Format
from kpipe.definition.json_path import parse_path
from kpipe.definition.pipeline import Pipeline
from kpipe.errors import InvalidPipeline

__all__ = ["check_formats"]

_TYPED = ("avro", "protobuf")


def check_formats(pipeline: Pipeline) -> None:
    """Look at `format` and `key_format`.

    Raises:
        InvalidPipeline: a schema is missing or is none, or the two do not go together.
        NotAvailable: what compiles or validates its schema is not installed.
    """
    where, program, key = f"pipeline {pipeline.name}: ", pipeline.transform, pipeline.key_format
    _check(pipeline.format, f"{where}format")
    if program is not None and (pipeline.format.type in _TYPED or pipeline.format.registry is not None):
        raise InvalidPipeline(
            f"{where}format: {pipeline.format.type} with a schema behind a program",
            "a program writes lines of text: let it decode the records (stdin: length-prefixed) and write JSON",
        )
    if key is None:
        return
    _check(key, f"{where}key_format")
    if key.type == "raw" or pipeline.format.type == "raw":
        raise InvalidPipeline(f"{where}key_format with format: raw, or raw itself", "metadata: [key] keeps a key as it is")
    if key.type == "csv" and key.fields is None:
        raise InvalidPipeline(f"{where}key_format: csv without fields", "name the column of each field in key_format.fields")
    if program is not None and program.mode != "map":
        raise InvalidPipeline(
            f"{where}key_format with a program of mode {program.mode}", "rows of such a program cannot be traced to a key"
        )


def _check(kind: Format, where: str) -> None:
    if kind.type == "protobuf":
        _check_protobuf(kind, where)
    elif kind.type in _TYPED and kind.definition is None and kind.registry is None:
        raise InvalidPipeline(f"{where}: {kind.type} without a schema", "give `schema`, or the address of a `registry`")
    if kind.type == "json":
        _check_json(kind, where)
    if kind.type == "avro" and kind.definition is not None:
        from resources.decode.avro.schema_plan import plan
        from resources.decode.payload_schemas import Unfit

        try:
            found = plan(kind.definition)
        except Unfit as error:
            raise InvalidPipeline(f"{where}.schema: {error}", "write an Avro schema as JSON") from None
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
