"""Generate the page of the fields of a definition, from the model and its docstrings."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, get_args

from pydantic import BaseModel

from kpipe.definition.formats import Format, Mapped
from kpipe.definition.lakehouse_options import Maintenance
from kpipe.definition.lookups import Lookup
from kpipe.definition.pipeline import Also, BatchLimits, Errors, Pipeline, Shown, Source, Transform
from kpipe.definition.source import Files, SourceHttp, SourceLake, SourceTable
from kpipe.definition.target import Into
from website.reference.markdown import attributes, sentence, summary, table

__all__ = ["fields"]

#: Groups in the order of the page, each under the name of its field.
GROUPS: dict[str, type[BaseModel]] = {
    "source": Source,
    "source.files": Files,
    "source.table": SourceTable,
    "source.lake": SourceLake,
    "source.http": SourceHttp,
    "batch": BatchLimits,
    "transform": Transform,
    "format": Format,
    "lookups.NAME": Lookup,
    "errors": Errors,
    "into": Into,
    "into.maintenance": Maintenance,
    "also": Also,
    "asset": Shown,
}
_UNSET = "not set"
_NOT_EMPTY = ("minLength", 1)  # an empty text is never a value
_BOUNDS = {
    "minimum": "at least {}",
    "maximum": "at most {}",
    "exclusiveMinimum": "more than {}",
    "minLength": "{} or more characters",
    "maxLength": "at most {} characters",
    "pattern": "matching `{}`",
}


def fields() -> str:
    """Return the page."""
    parts = [
        "# Fields\n",
        "Look up a field of a pipeline in YAML, in `KafkaPipeline(...)` (Python) and in `OPTIONS` of a statement. Unknown\n"
        "fields are errors. Editors complete and check the YAML with [pipeline.schema.json](../pipeline.schema.json).\n",
        "`{{ env('NAME') }}` is replaced when the file is read; write `{{ '{{' }}` for a text of two braces. `credentials` are\n"
        "templates too, replaced when a client is created; literals are masked in all output. They may also name\n"
        "[files and commands](../how-to/credentials.md).\n",
        "## Pipeline\n",
        table(("field", "type", "default", "meaning"), rows(Pipeline)),
    ]
    for name, model in GROUPS.items():
        rules = summary(model).partition(". ")[2]  # the first sentence is the meaning of the group's field
        parts += [f"## `{name}`\n"] + [sentence(rules) + "\n"] * bool(rules)
        parts += [table(("field", "type", "default", "meaning"), rows(model))]
    parts += [
        f"`format.mapping` takes a path, or `path` and `default`: {attributes(Mapped)['default']}\n",
        "In Python, `schema` is `evolution`, `format.schema` is `definition` and `format.validate` is `validated`.\n",
    ]
    return "\n".join(parts)


def rows(model: type[BaseModel]) -> Iterator[tuple[str, str, str, str]]:
    """Yield a row for each field.

    Raises:
        LookupError: the docstring does not describe a field.
    """
    schema = model.model_json_schema(by_alias=True)
    described = attributes(model)
    for name, field in model.model_fields.items():
        if name not in described:
            raise LookupError(f"{model.__name__}.{name} is missing in the docstring's Attributes")
        alias = field.alias or name
        kind = values(schema["properties"][alias], schema.get("$defs", {}))
        yield f"`{alias}`", kind, default(field, kind), sentence(re.sub(r"\bNone\b", "null", described[name]))


def default(field: Any, kind: str) -> str:
    """Return the default as YAML; groups of fields have theirs in their own tables."""
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if isinstance(value, BaseModel) or (kind == "a group" and value is not None):
        return ""
    if value is None:
        return _UNSET
    parts = (field.annotation, *get_args(field.annotation))
    nested = any(isinstance(part, type) and issubclass(part, BaseModel) for part in parts)
    return "" if nested and not value else f"`{json.dumps(value, ensure_ascii=False)}`"


def values(schema: dict[str, Any], definitions: dict[str, Any]) -> str:
    """Return what a field takes, in words."""
    if "anyOf" in schema:
        found = dict.fromkeys(values(item, definitions) for item in schema["anyOf"] if item.get("type") != "null")
        return " or ".join(found)
    if "$ref" in schema:
        inner = definitions[schema["$ref"].rpartition("/")[2]]
        names = list(inner["properties"])
        return "a group" if len(names) > 2 else f"`{{{', '.join(names)}}}`"
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    kind = schema.get("type")
    if kind == "array":
        inner = values(schema["items"], definitions)
        return "list of groups" if inner == "a group" else f"list of {inner}"
    if kind == "object":
        inside = schema.get("additionalProperties")
        if inside is None and "patternProperties" in schema:
            inside = next(iter(schema["patternProperties"].values()))
        return f"map to {values(inside, definitions)}" if isinstance(inside, dict) else "map"
    bounds = [
        text.format(schema[name]) for name, text in _BOUNDS.items() if name in schema and (name, schema[name]) != _NOT_EMPTY
    ]
    return ", ".join([{"boolean": "`true`, `false`"}.get(str(kind), str(kind)), *bounds])
