"""A connector's config as a definition, with every problem by key."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError

from kpipe.definition.pipeline import Pipeline
from kpipe.definition.references import mentions_reference
from kpipe.definition.secret_values import MASK, is_credential, is_secret_name, is_secret_value
from kpipe.errors import InvalidPipeline, KpipeError, NotAvailable, SchemaConflict
from kpipe.terminal import plain_lines
from kpipe_assets.rest.configs import CLASS, masked_text, nested, references, texts
from kpipe_assets.rest.problems import Problem
from kpipe_assets.rest.sinks import SINKS
from kpipe_assets.rest.translation import translate
from kpipe_assets.rest.worker import Worker
from kpipe_assets.validation import validate

__all__ = ["Parsed", "parse"]

_ABOUT_DEFINITION = (InvalidPipeline, NotAvailable, SchemaConflict)


@dataclass
class Parsed:
    """A config that was read.

    Attributes:
        config: as it came, with dotted keys and texts; literal secrets are masked.
        pipeline: the definition; None if there are errors.
        errors: sentences by key.
        keys: of a translated sink: the key that a field comes from, by the field's path.
        before: the definition that existed, which gives masked secrets; None if there was none, or none that can be read.
    """

    config: dict[str, str]
    pipeline: Pipeline | None = None
    errors: dict[str, list[str]] = field(default_factory=dict)
    keys: Mapping[tuple[str, ...], str] = field(default_factory=dict)
    before: Pipeline | None = None

    def add(self, key: str, message: str) -> None:
        """Add an error."""
        self.errors.setdefault(key, []).append(plain_lines(message))

    def at_its_key(self, error: KpipeError) -> KpipeError:
        """Return an error about the definition with the key that the client sent as its field."""
        if error.field and self.keys:
            error.field = tuple(_key(self, error.field).split("."))
        return error

    def required(self, plugin: str) -> Pipeline:
        """Return the definition.

        Raises:
            Problem: the config has errors, in the words of Connect.
        """
        if self.pipeline is not None and not self.errors:
            return self.pipeline
        found = [message for messages in self.errors.values() for message in messages]
        raise Problem(
            400,
            f"Connector configuration is invalid and contains the following {len(found)} error(s):\n"
            + "\n".join(found)
            + "\nYou can also find the above list of errors at the endpoint "
            f"`/connector-plugins/{plugin}/config/validate`",
        )


def parse(worker: Worker, name: str, config: Mapping[str, Any], check: bool = False, before: Pipeline | None = None) -> Parsed:
    """Read a config of the class `kpipe`, or of a sink that can be translated.

    Args:
        worker: gives the default brokers, and the existing definition with its secrets.
        name: the connector's name.
        config: the config.
        check: whether to check files and table, too.
        before: the existing definition, if it was read already.

    Raises:
        Problem: the config names no connector class, or another connector.
    """
    given = texts(config)
    if given.setdefault("name", name) != name:
        raise Problem(400, f"Connector name configuration ({given['name']}) doesn't match connector name in the URL ({name})")
    kind = given.get("connector.class")
    if kind is None:
        raise Problem(400, f"Connector config contains no connector type -> set connector.class to {CLASS}")
    parsed = Parsed(given)
    with suppress(KpipeError):  # unreadable: it is replaced
        parsed.before = before or (worker.home.pipeline(name) if worker.exists(name) else None)
    fields = _native(parsed, config, name) if kind == CLASS else _translated(parsed, kind)
    if worker.brokers is not None:
        fields.setdefault("source", {})
        if isinstance(fields["source"], dict):
            fields["source"].setdefault("brokers", worker.brokers)
    problems: list[InvalidPipeline] = []
    fields = references(fields, {} if parsed.before is None else parsed.before.to_dict(), problems)
    for error in problems:
        _about(parsed, error)
    _model(parsed, fields)
    if parsed.errors:
        parsed.pipeline = None
    if parsed.pipeline is not None and check:
        try:
            validate(parsed.pipeline, worker.home)
        except _ABOUT_DEFINITION as error:
            _about(parsed, error)
    parsed.config = {key: _shown(parsed, key, value) for key, value in given.items()}
    return parsed


def _shown(parsed: Parsed, key: str, value: str) -> str:
    """Return the value of a key as it is stored and returned, with literal secrets masked."""
    # A rejected value is not stored, but the response of a validation contains it.
    if key in parsed.errors and (key == "headers" or is_secret_name(key) or is_secret_value(value) or mentions_reference(value)):
        return MASK
    path = next((path for path, known in parsed.keys.items() if known == key and is_credential(path)), None)
    if path is None and not parsed.keys:
        path = tuple(key.split("."))
    return masked_text(path, value) if path is not None and key != "headers" else value


def _native(parsed: Parsed, config: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the fields of a definition; `topics` and `topics.regex` of Connect are read, too."""
    own = {key: value for key, value in config.items() if key not in ("topics", "topics.regex")}
    problems: list[InvalidPipeline] = []
    fields = nested({**own, "name": name}, problems)
    for error in problems:
        _about(parsed, error)
    source = fields.setdefault("source", {})
    if not isinstance(source, dict):
        parsed.add("source", "source: expected an object")
        return {}
    for key, words in (("topics", "source.topic or source.topics"), ("topics.regex", "source.topic_pattern")):
        if parsed.config.get(key) is None:
            continue
        if {"topic", "topics", "topic_pattern"} & source.keys():
            parsed.add(key, f"{key}: the topics are also given as {words}; write one of them")
        elif key == "topics.regex":
            source["topic_pattern"] = f"^(?:{parsed.config[key]})$"
        else:
            names = [item.strip() for item in parsed.config[key].split(",") if item.strip()]
            source.update({"topic": names[0]} if len(names) == 1 else {"topics": names})
    return fields


def _translated(parsed: Parsed, kind: str) -> dict[str, Any]:
    sink = SINKS.get(kind)
    if sink is None:
        near = get_close_matches(kind, SINKS, 1)
        hint = f"did you mean {near[0]}?" if near else f"use {CLASS}; GET /connector-plugins lists the sinks that are translated"
        raise Problem(400, f"Failed to find any class that implements Connector and which name matches {kind} -> {hint}")
    draft = translate(sink, parsed.config)
    for key, messages in draft.errors.items():
        for message in messages:
            parsed.add(key, message)
    parsed.keys = draft.keys
    return draft.fields


def _model(parsed: Parsed, fields: dict[str, Any]) -> None:
    try:
        parsed.pipeline = Pipeline.model_validate(fields)
    except ValidationError as error:
        seen, earlier = set[str](), {*parsed.errors}
        earlier |= {"into.headers" for key in parsed.errors if key.startswith("into.headers.")}
        for problem in error.errors(include_url=False, include_context=False, include_input=False):
            key = _key(parsed, tuple(str(part) for part in problem["loc"]))
            text = problem["msg"].removeprefix("Value error, ")
            message = f"{key}: {text[:1].lower() + text[1:]}"
            if message not in seen and key not in earlier:  # a rejected value may be missing
                seen.add(message)
                parsed.add(key, message)


def _about(parsed: Parsed, error: KpipeError) -> None:
    message = f"{error.what} -> {error.hint}" if error.hint else error.what
    key = _key(parsed, error.field) if error.field else "name"
    parsed.add(key, f"{key}: {message}" if parsed.keys and key not in message else message)


def _key(parsed: Parsed, path: tuple[str, ...]) -> str:
    """Return the key of a field: the longest key of the config, else the field's first two names."""
    if parsed.keys:
        return next((parsed.keys[path[:end]] for end in range(len(path), 0, -1) if path[:end] in parsed.keys), "connector.class")
    for end in range(len(path), 0, -1):
        key = ".".join(path[:end])
        if key in parsed.config or any(given.startswith(f"{key}.") for given in parsed.config):
            return key
    return ".".join(path[:2]) if path else "name"
