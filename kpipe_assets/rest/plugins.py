"""/connector-plugins of Kafka Connect's REST API: the connector classes, their keys, and validation of a config."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from kpipe import __version__
from kpipe.definition.pipeline import Pipeline, Timestamp
from kpipe.definition.secret_values import is_credential
from kpipe_assets.rest.configs import CLASS, model_of
from kpipe_assets.rest.definitions import parse
from kpipe_assets.rest.problems import Problem, Safe
from kpipe_assets.rest.sinks import SINKS
from kpipe_assets.rest.translation import COMMON
from kpipe_assets.rest.worker import Worker

__all__ = ["router"]

_DOCUMENTED = re.compile(r"^ {8}(\w[\w, ]*): (.*(?:\n {12}.*)*)", re.MULTILINE)


def _class_of(plugin: str) -> str:
    """Return the class of a plugin by its full name, its last part, or that without `Connector`, as Connect does.

    Raises:
        Problem: there is none.
    """
    for name in (CLASS, *SINKS):
        last = name.rpartition(".")[2]
        if plugin in (name, last, last.removesuffix("Connector"), name.removesuffix("Connector")):
            return name
    raise Problem(404, f"Unknown plugin {plugin} -> GET /connector-plugins lists the connector classes")


def _key(name: str, kind: str, default: Any, required: bool, documentation: str, group: str, order: int) -> dict[str, Any]:
    """Return Connect's ConfigKeyInfo."""
    return {
        "name": name,
        "type": kind,
        "required": required,
        "default_value": default,
        "importance": "HIGH" if required else "MEDIUM",
        "documentation": documentation,
        "group": group,
        "width": "NONE",
        "display_name": name,
        "dependents": [],
        "order": order,
    }


def _documented(model: type[BaseModel]) -> dict[str, str]:
    """Return the text of each field from the docstrings of a model and its bases."""
    found: dict[str, str] = {}
    for part in reversed(model.__mro__):
        for names, text in _DOCUMENTED.findall(part.__doc__ or ""):
            found.update({name.strip(): " ".join(text.split()) for name in names.split(",")})
    return found


def _fields(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, str, Any, bool, str]]:
    """Yield key, type, default, whether it is required, and documentation of each field of a definition."""
    words = _documented(model)
    for field, info in model.model_fields.items():
        name = info.alias or field
        inner, part = info.annotation, model_of(info.annotation)
        if part is not None and part is not Timestamp:
            yield from _fields(part, f"{prefix}{name}.")
            continue
        default = info.get_default(call_default_factory=True)
        required = default is PydanticUndefined
        text = str(inner)
        kind = "BOOLEAN" if inner is bool else "LONG" if inner is int or text.startswith("int ") else "STRING"
        kind = "DOUBLE" if inner is float else "LIST" if text.startswith("list[") else kind
        if is_credential((*prefix.rstrip(".").split("."), name)):
            kind = "PASSWORD"
        shown = None if required or default is None or default == {} else _text(default)
        yield f"{prefix}{name}", kind, shown, required, words.get(field, "")


def _text(default: Any) -> str:
    if isinstance(default, list):
        return ",".join(map(str, default))
    return str(default).lower() if isinstance(default, bool) else str(default)


def _keys(kind: str) -> list[dict[str, Any]]:
    """Return the keys of a connector class."""
    base = [
        _key("name", "STRING", None, True, "The name of the connector, which is the pipeline's.", "Common", 1),
        _key("connector.class", "STRING", None, True, f"{CLASS}, or the class of a sink that is translated.", "Common", 2),
        _key("tasks.max", "INT", "1", False, "No effect: Spark's cores share the offsets.", "Common", 3),
    ]
    if kind != CLASS:
        names = [name for name in (*COMMON, *SINKS[kind].rules) if name not in ("name", "connector.class", "tasks.max")]
        why = "Translated to a field of the definition, without effect, or rejected."
        return base + [_key(name, "STRING", None, False, why, "Sink", at) for at, name in enumerate(names, 1)]
    found = [item for item in _fields(Pipeline) if item[0] != "name"]
    return base + [
        _key(name, kind, default, required, words, name.partition(".")[0], at)
        for at, (name, kind, default, required, words) in enumerate(found, 1)
    ]


def _value(name: str, given: Mapping[str, str], default: Any, errors: list[str]) -> dict[str, Any]:
    """Return Connect's ConfigValueInfo."""
    return {
        "name": name,
        "value": given.get(name, default),
        "recommended_values": [],
        "errors": errors,
        "visible": True,
    }


def router(worker: Worker) -> APIRouter:
    """Return the resources of connector classes."""
    routes = APIRouter(prefix="/connector-plugins", tags=["Kafka Connect: plugins"])

    @routes.get("", summary="List connector classes: kpipe, and sinks whose configs are translated")
    def plugins(connectorsOnly: bool = True) -> Any:
        del connectorsOnly  # there are no other plugins
        return Safe([{"class": name, "type": "sink", "version": __version__} for name in (CLASS, *SINKS)])

    @routes.get("/{plugin}/config", summary="List the keys of a connector class")
    def keys(plugin: str) -> Any:
        return Safe(_keys(_class_of(plugin)))

    @routes.put("/{plugin}/config/validate", summary="Validate a config")
    def validate(plugin: str, body: dict[str, Any]) -> Any:
        kind, given = _class_of(plugin), body.get("connector.class")
        if isinstance(body.get("config"), dict):
            raise Problem(
                400, "config: expected the config itself, found an object with name and config -> send the inner object"
            )
        if given is not None and given != kind and (not isinstance(given, str) or _class_of(given) != kind):
            raise Problem(400, f"Included connector type {given} does not match request type {plugin}")
        if given is not None:
            body = {**body, "connector.class": kind}
        name = body.get("name")
        with worker.slow():
            parsed = parse(worker, name if isinstance(name, str) else "", body, check=True)
        defined = _keys(kind)
        known = {key["name"] for key in defined}
        more = sorted({*parsed.config, *parsed.errors} - known)
        defined += [_key(key, "STRING", None, False, "", key.partition(".")[0], 0) for key in more]
        shown = [
            {
                "definition": key,
                "value": _value(key["name"], parsed.config, key["default_value"], parsed.errors.get(key["name"], [])),
            }
            for key in defined
        ]
        return Safe(
            {
                "name": kind,
                "error_count": sum(map(len, parsed.errors.values())),
                "groups": list(dict.fromkeys(key["group"] for key in defined)),
                "configs": shown,
            }
        )

    return routes
