"""Convert a connector's config, flat with dotted keys or nested, to the fields of a definition, and back.

A key is a field's path, such as `source.topic`. Where a field is a map, the rest of the key is the map's key, dots included:
`source.config.security.protocol`. Values may be texts, as Connect's tools send them: a list is separated by commas or is
JSON, an object is JSON. Where a field takes a text or a list, a list is JSON.
"""

from __future__ import annotations

import json
import types
from collections.abc import Iterator, Mapping
from contextlib import suppress
from difflib import get_close_matches
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel

from kpipe.definition.pipeline import Pipeline
from kpipe.definition.references import from_statement, mentions_reference, to_statement
from kpipe.definition.secret_values import MASK, is_credential, problem, replaced, shown
from kpipe.errors import InvalidPipeline

__all__ = ["CLASS", "FREE", "flat", "masked", "masked_text", "model_of", "nested", "references", "texts"]

#: The connector class of a definition.
CLASS = "kpipe"
#: Keys of Connect that a definition does not have. They have no effect: Spark's cores share the offsets.
FREE = ("connector.class", "tasks.max")


def nested(config: Mapping[str, Any], problems: list[InvalidPipeline] | None = None) -> dict[str, Any]:
    """Return the fields of a definition for a config.

    Args:
        config: the config.
        problems: receives the errors of all keys; None: the first one is raised.

    Raises:
        InvalidPipeline: a key is not a field, or is given twice; the error's field names it.
    """
    fields: dict[str, Any] = {}
    for key, value in config.items():
        if key in FREE or value is None:
            continue
        try:
            path, annotation = _path(Pipeline, key.split("."), key)
            _put(fields, path, _value(value, annotation), key)
        except InvalidPipeline as error:
            if problems is None:
                raise
            problems.append(error)
    return fields


def flat(fields: Mapping[str, Any]) -> dict[str, str]:
    """Return the config of a definition's fields; `nested` gives the same definition."""
    return {"connector.class": CLASS, **dict(_flat(Pipeline, fields, ""))}


def texts(config: Mapping[str, Any]) -> dict[str, str]:
    """Return a config as Connect does, with texts only. Nested members get dotted keys."""
    found: dict[str, str] = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            found.update({f"{key}.{inner}": text for inner, text in texts(value).items()})
        elif value is not None:
            found[key] = _text(value)
    return found


def masked(fields: Any) -> Any:
    """Return a definition's fields with literal secrets masked. References stay, in the statements' form."""
    return replaced(fields, _shown)


def _shown(path: tuple[str, ...], value: Any) -> Any:
    text = shown(path, value)
    return to_statement(text) if isinstance(text, str) and is_credential(path) else text


def masked_text(path: tuple[str, ...], text: str) -> str:
    """Return a text of a config, for the field at a path, with literal secrets masked; it may be an object as JSON."""
    if text.lstrip().startswith(("{", "[")):
        with suppress(ValueError, RecursionError):
            given = json.loads(text)
            hidden = replaced(given, _as_given, path)
            return text if hidden == given else _text(hidden)
    return str(_as_given(path, text))


def _as_given(path: tuple[str, ...], value: Any) -> Any:
    kept = from_statement(value) if isinstance(value, str) else value
    hidden = shown(path, kept)
    return value if hidden == kept else hidden


def references(fields: Any, before: Any, problems: list[InvalidPipeline] | None = None, path: tuple[str, ...] = ()) -> Any:
    """Return the fields with references in YAML's form.

    A value as `masked` shows it keeps the value that the existing definition has.

    Args:
        fields: fields of a definition.
        before: the existing definition's fields.
        problems: receives the errors of all fields, whose values stay; None: the first one is raised.
        path: where they are.

    Raises:
        InvalidPipeline: a secret is a literal, or another field contains a reference.
    """
    if isinstance(fields, Mapping):
        inside = before if isinstance(before, Mapping) else {}
        return {key: references(value, inside.get(key), problems, (*path, str(key))) for key, value in fields.items()}
    if isinstance(fields, list):
        return [references(value, None, problems, (*path, str(at))) for at, value in enumerate(fields)]
    if not isinstance(fields, str):
        return fields
    try:
        return _reference(fields, before, path)
    except InvalidPipeline as error:
        if problems is None:
            raise
        problems.append(error)
        return fields


def _reference(given: str, before: Any, path: tuple[str, ...]) -> str:
    secret = is_credential(path)
    if isinstance(before, str) and (given in (shown(path, before), _shown(path, before)) or (secret and given == MASK)):
        return before
    kept, name = from_statement(given) if secret else given, ".".join(path)
    found = problem(path, kept)
    if found is not None:
        raise InvalidPipeline(f"{name} {found[0]}", found[1]).about(*path)
    if not secret and mentions_reference(given):
        raise InvalidPipeline(f"{name}: references are for credentials only", "write the value").about(*path)
    return kept


def _options(annotation: Any) -> Iterator[Any]:
    """Yield the types of a union, without annotations and None."""
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from _options(get_args(annotation)[0])
    elif origin in (Union, types.UnionType):
        for item in get_args(annotation):
            yield from _options(item)
    elif annotation is not type(None):
        yield annotation


def model_of(annotation: Any) -> type[BaseModel] | None:
    """Return the model of a field, without lists and maps of models."""
    return next((item for item in _options(annotation) if isinstance(item, type) and issubclass(item, BaseModel)), None)


def _generic(annotation: Any, kind: type) -> Any:
    """Return the option that is a list or a dict, if there is one."""
    return next((item for item in _options(annotation) if get_origin(item) is kind or item is kind), None)


def _field(model: type[BaseModel], name: str) -> Any:
    """Return the annotation of a field by its name in YAML; None if there is none."""
    found = ((info.alias or field, info.annotation) for field, info in model.model_fields.items())
    return next((annotation for written, annotation in found if written == name), None)


def _path(model: type[BaseModel], parts: list[str], key: str) -> tuple[tuple[str, ...], Any]:
    """Return the path of a key in a model, and the annotation of its end.

    Raises:
        InvalidPipeline: there is no such field.
    """
    name, rest = parts[0], parts[1:]
    annotation = _field(model, name)
    if annotation is None:
        raise _unknown(model, name, key)
    if not rest:
        return (name,), annotation
    inner = model_of(annotation)
    if inner is not None and _field(inner, rest[0]) is not None:
        path, end = _path(inner, rest, key)
        return (name, *path), end
    entries = _generic(annotation, dict)
    if entries is not None:
        value = get_args(entries)[1]
        of_value = model_of(value)
        if of_value is not None and len(rest) > 1 and not _takes_text(value):
            path, end = _path(of_value, rest[1:], key)
            return (name, rest[0], *path), end
        return (name, ".".join(rest)), value
    if inner is not None:
        raise _unknown(inner, rest[0], key)
    raise InvalidPipeline(f"{key}: field {name} has no parts", "write lists and objects as JSON").about(*parts)


def _unknown(model: type[BaseModel], name: str, key: str) -> InvalidPipeline:
    names = [info.alias or field for field, info in model.model_fields.items()]
    near = get_close_matches(name, names, 1)
    hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(names)}"
    return InvalidPipeline(f"unknown field {key}", hint).about(*key.split("."))


def _takes_text(annotation: Any) -> bool:
    return any(item is str for item in _options(annotation))


def _value(value: Any, annotation: Any) -> Any:
    """Convert a text of a list or of an object; other values stay for the model to convert."""
    if not isinstance(value, str):
        return value
    objects = model_of(annotation) is not None or _generic(annotation, dict) is not None
    items = _generic(annotation, list)
    if (objects and value.lstrip().startswith("{")) or (items is not None and value.lstrip().startswith("[")):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value  # the model reports it
    if items is not None and not _takes_text(annotation):
        return [part.strip() for part in value.split(",")] if value.strip() else []
    return value


def _put(fields: dict[str, Any], path: tuple[str, ...], value: Any, key: str) -> None:
    group = fields
    for name in path[:-1]:
        group = group.setdefault(name, {})
        if not isinstance(group, dict):
            raise InvalidPipeline(f"{key}: {name} is given as a whole, too", "write one of them").about(*path)
    if path[-1] in group:
        if not (isinstance(group[path[-1]], dict) and isinstance(value, Mapping)):
            raise InvalidPipeline(f"{key} is given twice, dotted and nested", "write one of them").about(*path)
        for inner, item in value.items():
            _put(group[path[-1]], (str(inner),), item, f"{key}.{inner}")
        return
    group[path[-1]] = dict(value) if isinstance(value, Mapping) else value


def _flat(model: type[BaseModel], fields: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, str]]:
    for name, value in fields.items():
        annotation, key = _field(model, name), f"{prefix}{name}"
        inner = model_of(annotation)
        if not isinstance(value, Mapping) or not value:
            # A text that is not JSON is one item where the field takes a text, too.
            has_commas = not _takes_text(annotation) or (isinstance(value, list) and len(value) == 1)
            yield key, _listed(value) if isinstance(value, list) and has_commas else _text(value)
        elif inner is not None and value and all(_field(inner, part) is not None for part in value):
            yield from _flat(inner, value, f"{key}.")
        else:
            entries = _generic(annotation, dict)
            of_value = model_of(get_args(entries)[1]) if entries is not None else None
            for item, part in value.items():
                if of_value is not None and isinstance(part, Mapping) and not _takes_text(get_args(entries)[1]):
                    yield from _flat(of_value, part, f"{key}.{item}.")
                else:
                    yield f"{key}.{item}", _text(part)


def _listed(value: list[Any]) -> str:
    plain = all(isinstance(item, str) and item and item == item.strip() and not set(item) & {",", "["} for item in value)
    return ",".join(value) if plain and value else _text(value)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
