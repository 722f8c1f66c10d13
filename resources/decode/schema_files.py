"""Schemas that a pipeline's definition names by a file, or as text: read once on the driver, so that workers need neither."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path

from kpipe.definition.formats import Format
from kpipe.definition.pipeline import Pipeline
from kpipe.errors import InvalidPipeline

__all__ = ["with_files", "with_schema"]

# A descriptor set travels with every job: Google's own of all its cloud interfaces has 12 MB.
_LARGEST = 16 << 20


def with_files(pipeline: Pipeline) -> Pipeline:
    """The pipeline with its schemas as workers take them.

    Raises:
        InvalidPipeline: a file cannot be read, or holds no schema.
        NotAvailable: it has to be compiled, and there is no compiler.
    """
    changes = {
        name: with_schema(kind, f"pipeline {pipeline.name}: {name}")
        for name, kind in (("format", pipeline.format), ("key_format", pipeline.key_format))
        if kind is not None and kind.type == "protobuf" and kind.registry is None
    }
    return pipeline.model_copy(update=changes) if changes else pipeline


def with_schema(kind: Format, where: str) -> Format:
    """A format of Protobuf without a registry, with its descriptor set in place of file or text.

    Args:
        kind: the format.
        where: what an error says before its reason.

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
                    f"{where}.descriptors: {path} has more than {_LARGEST:,} bytes", "leave out what is not needed"
                )
            text = b64encode(path.read_bytes()).decode()
        except OSError as error:
            raise InvalidPipeline(
                f"{where}.descriptors: {path} cannot be read: {error.strerror}",
                "protoc --include_imports --descriptor_set_out=FILE",
            ) from None
    try:
        files = Files(text or "")
        plan(files.named(kind.message))
    except Unfit as error:
        raise InvalidPipeline(f"{where}.{field}: {error}", "see docs/guide/formats.md") from None
    return kind.model_copy(update={"definition": files.written(), "descriptors": None})
