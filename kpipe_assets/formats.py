"""Which formats a pipeline can have: what would only fail when records are read is said before."""

from __future__ import annotations

from kpipe.errors import InvalidPipeline, NotAvailable
from kpipe.formats import Format
from kpipe.pipeline import Pipeline

__all__ = ["check_formats"]

_TYPED = ("avro", "protobuf")


def check_formats(pipeline: Pipeline) -> None:
    """Look at `format` and `key_format`.

    Raises:
        InvalidPipeline: a schema is missing or is none, or the two do not go together.
        NotAvailable: this version cannot do it yet.
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
        raise NotAvailable(f"{where}: protobuf is not available in this version", "see CHANGELOG.md")
    if kind.type in _TYPED and kind.definition is None and kind.registry is None:
        raise InvalidPipeline(f"{where}: {kind.type} without a schema", "give `schema`, or the address of a `registry`")
    if kind.definition is not None and (kind.registry is not None or kind.type not in _TYPED):
        raise NotAvailable(
            f"{where}: a `schema` {'beside a registry' if kind.registry else 'for JSON'} is not available in this version",
            "leave out `schema`",
        )
    if kind.type == "avro" and kind.definition is not None:
        from resources.decode.avro_schema import plan
        from resources.decode.schemas import Unfit

        try:
            plan(kind.definition)
        except Unfit as error:
            raise InvalidPipeline(f"{where}.schema: {error}", "write an Avro schema as JSON") from None
