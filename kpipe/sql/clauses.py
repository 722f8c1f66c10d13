"""Clauses that several statements share, as the fields of the definition that they set."""

from __future__ import annotations

import json
import re
from typing import Any

from lark import Token, Tree

from kpipe.definition.pipeline import Timestamp
from kpipe.definition.yaml_codec import resolve
from kpipe.errors import InvalidPipeline
from kpipe.expressions.quoting import name, unquoted
from kpipe.sql import unsupported_clauses
from kpipe.sql.ast import child, children, string, strings, token, wrong
from kpipe.sql.masking import TEMPLATE, from_statement, is_secret
from kpipe.sql.statements import Moment
from kpipe.topics import Part

__all__ = [
    "LIMITS", "batch_limit", "config", "credential", "credentials", "filled", "json_object", "moment", "number",
    "offsets", "partition", "retries", "setting_name", "stop_on_error", "transform",
]  # fmt: skip

LIMITS = {
    "BATCH_INTERVAL": "interval_ms",
    "MAX_PARTITIONS_PER_BATCH": "max_partitions",
    "MAX_OFFSETS_PER_BATCH_PARTITION": "max_offsets_per_partition",
    "MAX_BYTES_PER_BATCH_PARTITION": "max_bytes_per_partition",
    "MAX_RETRIES_PER_BATCH_PARTITION": "max_retries",
}
#: SingleStore's names of the retry options, and ours.
RETRIES = {
    "exponential": "exponential",
    "retry_interval": "retry_interval_ms",
    "max_retry_interval": "max_retry_interval_ms",
    "max_retries": "max_retries",
}
_ARCHIVES = (".tar.gz", ".tgz", ".zip")
_MOST_DIGITS = 18  # more than any offset has
_PART = re.compile(r"[A-Za-z0-9._-]{1,249}:[0-9]{1,9}")


def filled(text: str, tree: Tree[Token]) -> str:
    """The text with its templates filled in from the environment."""
    try:
        return resolve(from_statement(text)) if TEMPLATE.search(text) else text
    except InvalidPipeline as error:
        wrong(tree, error.what, error.hint)


def json_object(tree: Tree[Token], clause: str) -> dict[str, Any]:
    """The JSON object in the clause's text."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            wrong(tree, f"{clause} names a member twice")
        return found

    def constant(text: str) -> Any:
        wrong(tree, f"{clause} is not JSON: {text} is no number")

    try:
        # Line ends inside of texts are no JSON, but public statements have them.
        value = json.loads(string(tree), object_pairs_hook=once, parse_constant=constant, strict=False)
    except ValueError as error:
        reason = str(error).partition(":")[0] if isinstance(error, json.JSONDecodeError) else "a number of too many digits"
        wrong(tree, f"{clause} is not JSON: {reason.lower()}", """write '{"name": "value"}'""")
    except RecursionError:
        wrong(tree, f"{clause} is nested too deeply")
    if not isinstance(value, dict):
        wrong(tree, f"{clause} is not a JSON object", """write '{"name": "value"}'""")
    return value


def config(tree: Tree[Token]) -> dict[str, Any]:
    """CONFIG: settings without secrets, with templates filled in."""
    return {key: setting(tree, key, value) for key, value in json_object(tree, "CONFIG").items()}


def setting(tree: Tree[Token], key: str, value: Any) -> Any:
    """A value of CONFIG."""
    if is_secret(key):
        wrong(
            tree,
            f"CONFIG: {key} is a secret",
            f"""write it under CREDENTIALS, as a template: '{{"{key}": "${{env:NAME}}"}}'""",
        )
    if isinstance(value, dict | list):
        instead = "let this machine resolve the brokers' names" if key == "spoof.dns" else 'write {"name": "value"}'
        wrong(tree, f"CONFIG: {key} is neither a text nor a number", instead)
    return filled(value, tree) if isinstance(value, str) else value


def credentials(tree: Tree[Token]) -> dict[str, str]:
    """CREDENTIALS: templates, kept until a client is made."""
    return {key: credential(tree, key, value) for key, value in json_object(tree, "CREDENTIALS").items()}


def credential(tree: Tree[Token], key: str, value: object) -> str:
    """A value of CREDENTIALS. A secret in words is refused: the statement would be kept with it in files and logs."""
    if not isinstance(value, str):
        wrong(tree, f"CREDENTIALS: {key} is not a text")
    kept = from_statement(value)
    if "{{" not in kept and key != "sasl.username":
        wrong(
            tree,
            f"CREDENTIALS: {key} is written out, and would be kept with the definition",
            f"""export it, and name the variable: '{{"{key}": "${{env:NAME}}"}}'""",
        )
    return kept


def setting_name(tree: Tree[Token]) -> str:
    """The name in `CONFIG ::name = 'value'`."""
    found = child(tree, "setting_name")
    assert found is not None
    if child(found, "string") is not None:
        return string(found)
    return ".".join(name(str(part)) for part in found.children)


def number(text: Token) -> int:
    """A number without sign."""
    if len(text) > _MOST_DIGITS:
        wrong(text, f"{text[:_MOST_DIGITS]}... is too large")
    return int(text)


def batch_limit(tree: Tree[Token]) -> tuple[str, int]:
    """Field of `batch`, and its value."""
    word, value = token(tree), token(tree, "INT")
    assert word is not None and value is not None
    return LIMITS[word.type], number(value)


def retries(tree: Tree[Token]) -> dict[str, Any]:
    """RETRY_OPTIONS as fields of `batch`."""
    given = json_object(tree, "RETRY_OPTIONS")
    unknown = [key for key in given if key not in RETRIES]
    if unknown:
        wrong(tree, f"RETRY_OPTIONS has no {unknown[0]}", f"known: {', '.join(RETRIES)}")
    return {RETRIES[key]: value for key, value in given.items()}


def one_retry(tree: Tree[Token]) -> tuple[str, Any]:
    """`RETRY_OPTIONS ::name = 'value'` as a field of `batch`."""
    key, text = setting_name(tree), string(tree)
    if key not in RETRIES:
        wrong(tree, f"RETRY_OPTIONS has no {key}", f"known: {', '.join(RETRIES)}")
    try:
        return RETRIES[key], json.loads(text)
    except ValueError:
        wrong(tree, f"RETRY_OPTIONS: {key} is not {text!r}", "a whole number, or true or false")


def stop_on_error(tree: Tree[Token]) -> str | None:
    """`errors.batch`; None for its default."""
    word = token(tree, "ON", "OFF", "NONE")
    assert word is not None
    return {"ON": "fail", "OFF": "skip", "NONE": None}[word.type]


def transform(tree: Tree[Token]) -> dict[str, Any]:
    """TRANSFORM ('uri', 'program', 'arguments') as the field of the same name; any number of rows, as in SingleStore."""
    given = strings(tree)
    if len(given) > 3:
        wrong(tree, "TRANSFORM takes three texts: where, program in the archive, arguments", "arguments are one text")
    uri, program, arguments = (*given, "", "")[:3]
    path = _path(uri, tree)
    if path.lower().endswith(_ARCHIVES):
        if not program:
            wrong(tree, "TRANSFORM names an archive and no program in it", f"write TRANSFORM ('{uri}', 'path/in/it')")
        found: dict[str, Any] = {"program": program, "archive": path}
    else:
        if program and program not in (path, path.rpartition("/")[2]):
            wrong(tree, "TRANSFORM names a program beside a file that is no archive", "leave the second text empty: ''")
        found = {"program": path}
    if arguments.split():
        found["args"] = arguments.split()
    stdin, mode = token(child(tree, "stdin") or tree, *_STDIN), token(child(tree, "mode") or tree, *_MODE)
    found["stdin"] = _STDIN[stdin.type] if stdin is not None else "lines"
    found["mode"] = mode.type.lower() if mode is not None else "flatmap"
    return found


_STDIN = {"LINES": "lines", "LENGTH_PREFIXED": "length-prefixed", "JSON": "json"}
_MODE = ("MAP", "FILTER", "FLATMAP")


def _path(uri: str, tree: Tree[Token]) -> str:
    if uri.startswith("file://"):
        return uri.removeprefix("file://localhost").removeprefix("file://")
    if "://" in uri:
        unsupported_clauses.remote_transform(tree, uri.partition("://")[0])
    return uri


def moment(tree: Tree[Token]) -> Moment:
    """EARLIEST, LATEST, TIMESTAMP '...', or offsets by partition."""
    word = token(tree, "EARLIEST", "LATEST", "TIMESTAMP")
    if word is None:
        return offsets(tree, "OFFSETS")
    if word.type == "TIMESTAMP":
        try:
            return Timestamp.model_validate({"timestamp": string(tree)})
        except ValueError:
            wrong(
                tree, "TIMESTAMP is not a time", "write '2026-11-20 00:00:00' (UTC), or with a zone: '2026-11-20T00:00:00+01:00'"
            )
    return "earliest" if word.type == "EARLIEST" else "latest"


def offsets(tree: Tree[Token], clause: str) -> dict[Part, int]:
    """Offsets by partition: its number, or TOPIC:NUMBER."""
    given = json_object(tree, clause)
    found: dict[Part, int] = {}
    for key, value in given.items():
        name = _part(key)
        if name is None or not isinstance(value, int) or isinstance(value, bool) or value < 0:
            wrong(tree, f"{clause} is not of offsets by partition number", """write '{"0": 120, "3": 7}'""")
        found[name] = value
    if not found:
        wrong(tree, f"{clause} names no partition", """write '{"0": 120, "3": 7}'""")
    return found


def _part(text: str) -> Part | None:
    """A partition as it is written; None where it is none."""
    if text.isascii() and text.isdigit():
        return int(text) if len(text) <= _MOST_DIGITS else None
    return text if _PART.fullmatch(text) else None


def partition(tree: Tree[Token]) -> Part:
    """A partition's number, as number or as text, or 'TOPIC:NUMBER'."""
    word = token(tree, "INT")
    if word is not None:
        return number(word)
    text = unquoted(str(next(children(tree, "string")).children[0]))
    name = _part(text)
    if name is None:
        wrong(tree, f"{text!r} is not a partition's number", "of several topics: 'TOPIC:NUMBER'")
    return name
