"""Convert YAML to pipelines and back. Errors name file, line and field.

The document is a Dagster component (`type`, `attributes`). Templates `{{ env('NAME') }}` are filled in when the file
is read, except under `credentials`, which keeps them until a client is made (`references.py`). A text that contains `{{`
itself is written with `{{ '{{' }}` in its place, as in Jinja.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from difflib import get_close_matches
from itertools import zip_longest
from math import isfinite
from typing import Any

import yaml
from pydantic import ValidationError

from kpipe.definition.exact_floats import HINT, exact_float
from kpipe.definition.pipeline import Pipeline
from kpipe.definition.references import fill
from kpipe.definition.secret_values import is_credential, may_hide, replaced
from kpipe.definition.source import EXTERNAL
from kpipe.errors import InvalidPipeline

__all__ = ["COMPONENT", "SOURCE_COMPONENT", "filled", "from_yaml", "line_of", "resolve", "to_yaml"]

COMPONENT, SOURCE_COMPONENT = "kpipe_assets.KafkaPipeline", "kpipe_assets.KafkaSource"


# Line breaks of YAML 1.1 other than CR and LF: NEL, LS, PS.
_BREAKS = re.compile("[\x85\u2028\u2029]")

#: A field that a definition does not have, because its value is the default.
_MISSING = object()

_BRACES = re.compile(r"""\{\{\s*(?:'\{\{'|"\{\{")\s*\}\}""")

_MOMENTS = '{timestamp: "2026-11-20T00:00:00Z"} or offsets by partition such as {"0": 120, "3": 7}'
_CHOICES: dict[tuple[str, ...], str] = {
    ("source", "start"): f"write earliest, latest, {_MOMENTS}",
    ("source", "end"): f"write latest, {_MOMENTS}",
}


def resolve(text: str, environ: Mapping[str, str] | None = None) -> str:
    """Fill in every `{{ env('NAME') }}`, `{{ env('NAME', 'default') }}` and `{{ '{{' }}` of a text.

    Raises:
        InvalidPipeline: a variable is not set and has no default, or the braces contain something else. The message names
            the variable, never a value.
    """
    known = os.environ if environ is None else environ
    return "{{".join(fill(part, known) for part in _BRACES.split(text))


def from_yaml(text: str, file: str = "<text>", environ: Mapping[str, str] | None = None) -> Pipeline:
    """Parse the pipeline of a YAML document.

    Raises:
        InvalidPipeline: invalid YAML, not a pipeline, or a field is unknown or invalid; with file, line and field.
    """
    try:
        data, lines = _parsed(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{file}:{mark.line + 1}" if mark else file
        raise InvalidPipeline(f"{where}: not YAML: {getattr(error, 'problem', None) or 'cannot be read'}") from error
    except (ValueError, RecursionError) as error:  # 2026-13-45 is a date in YAML; an alias may contain itself
        raise InvalidPipeline(f"{file}: not YAML that can be read: {error}", "put dates and times in quotes") from error
    if not isinstance(data, dict):
        raise InvalidPipeline(f"{file}:1: not a pipeline", f"begin with `type: {COMPONENT}`, then `attributes:`")
    for key in data:
        if key not in ("type", "attributes"):
            raise InvalidPipeline(f"{file}:{lines.get((str(key),), 1)}: unknown field {key}", "known: type, attributes")
    attributes = data.get("attributes")
    component = _component(attributes.get("source") if isinstance(attributes, dict) else None)
    if data.get("type") != component:
        raise InvalidPipeline(f"{file}:{lines.get(('type',), 1)}: type is {data.get('type')!r}", f"write `type: {component}`")
    if not isinstance(attributes, dict):
        raise InvalidPipeline(f"{file}:{lines.get(('attributes',), 1)}: attributes are missing")
    try:
        return Pipeline.model_validate(_filled(attributes, (), file, lines, environ))
    except ValidationError as error:
        raise InvalidPipeline(*_words(error, file, lines)) from error


def _component(source: Any) -> str:
    """Return the component of a pipeline with this source."""
    external = isinstance(source, dict) and any(source.get(name) is not None for name in EXTERNAL)
    return SOURCE_COMPONENT if external else COMPONENT


def _parsed(text: str) -> tuple[Any, dict[tuple[str, ...], int]]:
    """Return the data of a document, and the lines of its fields. Parsing takes nearly all of the time, so do it once."""
    loader = _NoDuplicates(text)
    try:
        node = loader.get_single_node()
        lines = _lines(node)  # first: constructing resolves merge keys, which changes the nodes
        return None if node is None else loader.construct_document(node), lines
    finally:
        loader.dispose()


def line_of(text: str, field: tuple[str, ...]) -> int:
    """Return the line (from 1) of a field in a pipeline's document, or of the nearest existing field around it."""
    known = _lines(yaml.compose(text, Loader=yaml.SafeLoader))
    path = ("attributes", *field)
    return next((known[path[:end]] for end in range(len(path), 0, -1) if path[:end] in known), 1)


def to_yaml(pipeline: Pipeline, former: str = "", environ: Mapping[str, str] | None = None) -> str:
    """Return the YAML document of a pipeline; parsing it gives an equal pipeline.

    Args:
        pipeline: the definition.
        former: the document that it replaces. A field with the value of a template of this document keeps the template:
            the value is that of this environment only. Without a document, no environment changes the pipeline.
        environ: values of variables; None: those of this process.
    """
    now = pipeline.to_dict()
    literal = replaced(now, _escaped)
    with suppress(InvalidPipeline, yaml.YAMLError, ValueError, RecursionError):  # an unreadable document gives no values
        before = from_yaml(former, environ=environ).to_dict()
        text = _dumped(_with_templates(literal, now, before, _parsed(former)[0]["attributes"]))
        # A field may have another default beside other fields.
        if from_yaml(text, environ=environ).to_dict() == now:
            return text
    return _dumped(literal)


def _dumped(fields: Mapping[str, Any]) -> str:
    document = {"type": _component(fields["source"]), "attributes": fields}
    return yaml.dump(document, Dumper=_Exact, sort_keys=False, allow_unicode=True, default_flow_style=False)


def _with_templates(literal: Any, now: Any, before: Any, text: Any, *, path: tuple[str, ...] = ()) -> Any:
    """Return literal fields with the templates of a text in place of equal values.

    Args:
        literal: the fields as they are written without templates; `_MISSING`: a default.
        now: their values.
        before: the values that the text gives.
        text: the fields of the text.
        path: where they are.
    """
    if isinstance(text, str):
        return text if "{{" in text and now == before and not is_credential(path) else literal
    if (now is _MISSING) != (before is _MISSING):
        return literal
    if isinstance(text, dict) and all(item is _MISSING or isinstance(item, dict) for item in (now, before)):
        parts = [
            {} if item is _MISSING else {str(key): value for key, value in item.items()} for item in (literal, now, before, text)
        ]
        inner = {
            key: _with_templates(*(part.get(key, _MISSING) for part in parts), path=(*path, key))
            for key in {**parts[0], **parts[-1]}
        }
        return {key: value for key, value in inner.items() if value is not _MISSING} or literal
    if isinstance(text, list) and isinstance(now, list) and isinstance(before, list):
        rows = zip_longest(literal, now, before[: len(now)], text[: len(now)], fillvalue=_MISSING)
        return [_with_templates(*row, path=(*path, str(at))) for at, row in enumerate(rows)]
    return literal


def _escaped(path: tuple[str, ...], value: Any) -> Any:
    """Return a value that parsing does not change; credentials contain templates."""
    return value.replace("{{", "{{ '{{' }}") if isinstance(value, str) and not is_credential(path) else value


class _Exact(yaml.SafeDumper):
    """YAML's safe dumper; texts with Unicode line breaks are quoted, or parsing would turn these into newlines.

    Templates are in double quotes, or each of their quotes would be doubled.
    """


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    is_template = "{{" in text and not set(text) & set('"\\\n')
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"' if is_template or _BREAKS.search(text) else None)


_Exact.add_representer(str, _text)


class _NoDuplicates(yaml.SafeLoader):
    """YAML's safe loader; a duplicate key is an error instead of the last one winning silently, and `null:` is a name."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: dict[str, int] = {}
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value == "null":  # YAML's own null has no use as a field's name
                key.tag = "tag:yaml.org,2002:str"
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.MarkedYAMLError(problem="a field's name is not a plain text", problem_mark=key.start_mark)
            if key.value in seen:
                raise yaml.MarkedYAMLError(problem=f"field {key.value} is given twice", problem_mark=key.start_mark)
            seen[key.value] = key.start_mark.line
        return super().construct_mapping(node, deep)

    def construct_number(self, node: yaml.ScalarNode) -> float:
        value: float = self.construct_yaml_float(node)
        if not isfinite(value) or ":" in node.value:  # 1:30.5 is in base 60
            return value
        try:
            return exact_float(node.value.replace("_", ""))
        except ValueError as error:
            raise yaml.MarkedYAMLError(problem=f"{error}; {HINT}", problem_mark=node.start_mark) from error


_NoDuplicates.add_constructor("tag:yaml.org,2002:float", _NoDuplicates.construct_number)


def _lines(node: yaml.Node | None, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], int]:
    """Return the line (from 1) of every field, by its path."""
    found: dict[tuple[str, ...], int] = {}
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            here = (*path, str(key.value))
            found[here] = key.start_mark.line + 1
            found.update(_lines(value, here))
    elif isinstance(node, yaml.SequenceNode):
        for at, value in enumerate(node.value):
            here = (*path, str(at))
            found[here] = value.start_mark.line + 1
            found.update(_lines(value, here))
    return found


def filled(attributes: Any, environ: Mapping[str, str] | None = None) -> Any:
    """Fill in every template of the attributes, except for credentials.

    Raises:
        InvalidPipeline: a variable is not set; the message names the field.
    """
    return _filled(attributes, (), "attributes", {}, environ)


def _filled(value: Any, path: tuple[str, ...], file: str, lines: Mapping[tuple[str, ...], int], environ: Any) -> Any:
    if isinstance(value, dict):
        return {key: _filled(item, (*path, str(key)), file, lines, environ) for key, item in value.items()}
    if isinstance(value, list):
        return [_filled(item, (*path, str(at)), file, lines, environ) for at, item in enumerate(value)]
    if isinstance(value, str) and not is_credential(path):
        try:
            return resolve(value, environ)
        except InvalidPipeline as error:
            line = lines.get(("attributes", *path), 1)
            raise InvalidPipeline(f"{file}:{line}: {'.'.join(path)}: {error.what}", error.hint) from error
    return value


def _words(error: ValidationError, file: str, lines: Mapping[tuple[str, ...], int]) -> tuple[str, str]:
    """Return the first problem as a sentence, and a hint. Never contains the value of a credential."""
    problems = error.errors(include_url=False, include_context=False)
    # A union reports every branch; an unknown or missing field, or kpipe's own messages, are the clearest.
    rank = {"extra_forbidden": 0, "missing": 1, "value_error": 2}

    def order(problem: Any) -> int:
        written = ("attributes", *(str(part) for part in problem["loc"])) in lines or problem["type"] == "missing"
        return rank.get(problem["type"], 3) if written else 4

    first = min(problems, key=order)
    path = tuple(str(part) for part in first["loc"])
    known = ("attributes", *path)
    while known and known not in lines:
        known = known[:-1]
    field = ".".join(known[1:]) or ".".join(path)
    where = f"{file}:{lines.get(known, 1)}"
    if path[:2] in _CHOICES:
        return f"{where}: {field}: not one of the forms it can have", _CHOICES[path[:2]]
    if first["type"] == "extra_forbidden":
        return f"{where}: unknown field {field}", _similar(path)
    if first["type"] == "missing":
        return f"{where}: {'.'.join(path)} is missing", ""
    text = first["msg"].removeprefix("Value error, ")
    # Only plain values are printed, and none from fields that may contain a secret by mistake.
    hidden = may_hide(path) or not isinstance(first["input"], str | int | float)
    value = repr(first["input"])
    named = isinstance(first["input"], str) and value in text
    shown = "" if hidden or named else f" (found {value})"
    return f"{where}: {field}: {text[:1].lower() + text[1:]}{shown}", ""


def _similar(path: tuple[str, ...]) -> str:
    """Return the most similar and all valid names in place of the unknown one, as a hint."""
    model: Any = Pipeline
    for part in path[:-1]:
        field = getattr(model, "model_fields", {}).get(part)
        inner = getattr(field, "annotation", None)
        candidates = [inner, *getattr(inner, "__args__", ())]
        model = next((item for item in candidates if hasattr(item, "model_fields")), None)
    names = [f.alias or name for name, f in getattr(model, "model_fields", {}).items()]
    near = [f"did you mean {name}? " for name in get_close_matches(path[-1], names, 1)]
    return f"{''.join(near)}known: {', '.join(names)}" if names else ""
