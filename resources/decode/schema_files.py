"""Read the schemas of a definition once on the driver, so that workers need neither the file nor a compiler."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path

from kpipe.definition.formats import Format
from kpipe.definition.pipeline import Pipeline
from kpipe.errors import InvalidPipeline

__all__ = ["with_files", "with_schema"]

# A descriptor set is sent with every job. The set of all Google Cloud APIs has 12 MB.
_LARGEST = 16 << 20


def with_files(pipeline: Pipeline) -> Pipeline:
    """Replace a pipeline's Protobuf schemas by descriptor sets.

    Raises:
        InvalidPipeline: a file cannot be read, or is not a schema.
        NotAvailable: a schema has to be compiled, and the compiler is not installed.
    """
    changes = {
        name: with_schema(kind, f"pipeline {pipeline.name}: {name}")
        for name, kind in (("format", pipeline.format), ("key_format", pipeline.key_format))
        if kind is not None and kind.type == "protobuf" and kind.registry is None
    }
    return pipeline.model_copy(update=changes) if changes else pipeline


def with_schema(kind: Format, where: str) -> Format:
    """Replace file or text by a descriptor set in a Protobuf format without a registry.

    Args:
        kind: the format.
        where: the subject of errors.

    Raises:
        InvalidPipeline, NotAvailable: see `with_files`.
    """
    from resources.decode.payload_schemas import Unfit
    from resources.decode.protobuf.descriptors import Files
    from resources.decode.protobuf.message_plan import plan

    text, field = kind.definition, "schema"
    if kind.descriptors is not None:
        field = "descriptors"
        path = Path(kind.descriptors).expanduser()
        try:
            if path.stat().st_size > _LARGEST:
                raise InvalidPipeline(
                    f"{where}.descriptors: {path} is too large: expected at most {_LARGEST:,} bytes",
                    "leave out files that the message does not need",
                )
            text = b64encode(path.read_bytes()).decode()
        except OSError as error:
            raise InvalidPipeline(
                f"{where}.descriptors: {path} cannot be read: {error.strerror}",
                "write it with protoc --include_imports --descriptor_set_out=FILE",
            ) from None
    try:
        files = Files(text or "")
        plan(files.named(kind.message))
    except Unfit as error:
        raise InvalidPipeline(f"{where}.{field}: {error}", "see docs/reference/formats.md") from None
    return kind.model_copy(update={"definition": files.written(), "descriptors": None})
