"""Convert clauses that several statements share to fields of the definition."""

from __future__ import annotations

import json
import re
from typing import Any

from lark import Token, Tree

from kpipe.definition.exact_floats import HINT, exact_float
from kpipe.definition.pipeline import Timestamp
from kpipe.definition.references import from_statement, mentions_reference, without_references
from kpipe.definition.secret_values import problem
from kpipe.definition.yaml_codec import resolve
from kpipe.errors import InvalidPipeline
from kpipe.expressions.quoting import name, unquoted
from kpipe.sql import unsupported_clauses
from kpipe.sql.ast import child, children, string, strings, token, wrong
from kpipe.sql.statements import Moment
from kpipe.topics import PART, Part

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
#: SingleStore's retry options to fields of `batch`.
RETRIES = {
    "exponential": "exponential",
    "retry_interval": "retry_interval_ms",
    "max_retry_interval": "max_retry_interval_ms",
    "max_retries": "max_retries",
}
_ARCHIVES = (".tar.gz", ".tgz", ".zip")
_MOST_DIGITS = 18  # more than an offset can have
_PART = re.compile(PART)


def filled(text: str, tree: Tree[Token]) -> str:
    """Fill in the templates of a text from the environment."""
    if not mentions_reference(text):
        return text
    kept = from_statement(text)
    if mentions_reference(without_references(kept)):
        wrong(tree, "invalid reference", "write ${env:NAME} or ${env:NAME:-default}")
    try:
        return resolve(kept)
    except InvalidPipeline as error:
        wrong(tree, error.what, error.hint)


def json_object(tree: Tree[Token], clause: str) -> dict[str, Any]:
    """Parse the JSON object of a clause."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members = dict(pairs)
        if len(members) < len(pairs):
            wrong(tree, f"{clause}: duplicate member")
        return members

    def constant(text: str) -> Any:
        wrong(tree, f"{clause} is not JSON: {text} is not a number")

    def exact(text: str) -> float:
        try:
            return exact_float(text)
        except ValueError as error:
            wrong(tree, f"{clause}: {error}", HINT)

    try:
        # JSON does not allow line ends inside texts, but published statements contain them.
        value = json.loads(string(tree), object_pairs_hook=unique, parse_constant=constant, parse_float=exact, strict=False)
    except ValueError as error:
        reason = str(error).partition(":")[0] if isinstance(error, json.JSONDecodeError) else "a number of too many digits"
        wrong(tree, f"{clause} is not JSON: {reason.lower()}", """write '{"name": "value"}'""")
    except RecursionError:
        wrong(tree, f"{clause} is nested too deeply")
    if not isinstance(value, dict):
        wrong(tree, f"{clause} is not a JSON object", """write '{"name": "value"}'""")
    return value


def config(tree: Tree[Token]) -> dict[str, Any]:
    """Convert CONFIG: settings without secrets, with templates filled in."""
    return {key: setting(tree, key, value) for key, value in json_object(tree, "CONFIG").items()}


def setting(tree: Tree[Token], key: str, value: Any) -> Any:
    """Convert a value of CONFIG."""
    found = problem(("source", "config", key), value)
    if found is not None:
        wrong(tree, f"CONFIG: {key} {found[0]}", f"""write it under CREDENTIALS: '{{"{key}": "${{env:NAME}}"}}'""")
    if isinstance(value, dict | list):
        instead = "let this machine resolve the brokers' names" if key == "spoof.dns" else 'write {"name": "value"}'
        wrong(tree, f"CONFIG: {key}: expected a text or a number", instead)
    return filled(value, tree) if isinstance(value, str) else value


def credentials(tree: Tree[Token]) -> dict[str, str]:
    """Convert CREDENTIALS: templates, which are filled in when a client is created."""
    return {key: credential(tree, key, value) for key, value in json_object(tree, "CREDENTIALS").items()}


def credential(tree: Tree[Token], key: str, value: object) -> str:
    """Convert a value of CREDENTIALS. A literal secret is rejected, because files and logs would contain it."""
    if not isinstance(value, str):
        wrong(tree, f"CREDENTIALS: {key}: expected a text")
    kept = from_statement(value)
    found = problem(("source", "credentials", key), kept)
    if found is not None:
        wrong(tree, f"CREDENTIALS: {key} {found[0]}", found[1])
    return kept


def setting_name(tree: Tree[Token]) -> str:
    """Return the name in `CONFIG ::name = 'value'`."""
    node = child(tree, "setting_name")
    assert node is not None
    if child(node, "string") is not None:
        return string(node)
    return ".".join(name(str(part)) for part in node.children)


def number(text: Token) -> int:
    """Convert an unsigned number."""
    if len(text) > _MOST_DIGITS:
        wrong(text, f"{text[:_MOST_DIGITS]}... is too large")
    return int(text)


def batch_limit(tree: Tree[Token]) -> tuple[str, int]:
    """Return the field of `batch` and its value."""
    word, value = token(tree), token(tree, "INT")
    assert word is not None and value is not None
    return LIMITS[word.type], number(value)


def retries(tree: Tree[Token]) -> dict[str, Any]:
    """Convert RETRY_OPTIONS to fields of `batch`."""
    options = json_object(tree, "RETRY_OPTIONS")
    unknown = [key for key in options if key not in RETRIES]
    if unknown:
        wrong(tree, f"RETRY_OPTIONS: unknown option {unknown[0]}", f"options: {', '.join(RETRIES)}")
    return {RETRIES[key]: value for key, value in options.items()}


def one_retry(tree: Tree[Token]) -> tuple[str, Any]:
    """Convert `RETRY_OPTIONS ::name = 'value'` to a field of `batch`."""
    key, text = setting_name(tree), string(tree)
    if key not in RETRIES:
        wrong(tree, f"RETRY_OPTIONS: unknown option {key}", f"options: {', '.join(RETRIES)}")
    try:
        return RETRIES[key], json.loads(text)
    except ValueError:
        what = f"RETRY_OPTIONS: {key}: expected a whole number, true or false, found {text!r}"
        wrong(tree, what, "write RETRY_OPTIONS ::max_retries = '4', for example")


def stop_on_error(tree: Tree[Token]) -> str | None:
    """Return `errors.batch`; None for its default."""
    word = token(tree, "ON", "OFF", "NONE")
    assert word is not None
    return {"ON": "fail", "OFF": "skip", "NONE": None}[word.type]


def transform(tree: Tree[Token]) -> dict[str, Any]:
    """Convert TRANSFORM ('uri', 'program', 'arguments'); a program may return any number of rows, as in SingleStore."""
    texts = strings(tree)
    if len(texts) > 3:
        what = f"TRANSFORM: expected URI, program in the archive and arguments, found {len(texts)} texts"
        wrong(tree, what, "write all arguments in one text")
    uri, program, arguments = (*texts, "", "")[:3]
    path = _path(uri, tree)
    if path.lower().endswith(_ARCHIVES):
        if not program:
            wrong(tree, "TRANSFORM: the program in the archive is missing", f"write TRANSFORM ('{uri}', 'path/in/it')")
        fields: dict[str, Any] = {"program": program, "archive": path}
    else:
        if program and program not in (path, path.rpartition("/")[2]):
            wrong(tree, "TRANSFORM: a program is only allowed with an archive", "leave the second text empty: ''")
        fields = {"program": path}
    if arguments.split():
        fields["args"] = arguments.split()
    stdin, mode = token(child(tree, "stdin") or tree, *_STDIN), token(child(tree, "mode") or tree, *_MODE)
    fields["stdin"] = _STDIN[stdin.type] if stdin is not None else "lines"
    fields["mode"] = mode.type.lower() if mode is not None else "flatmap"
    return fields


_STDIN = {"LINES": "lines", "LENGTH_PREFIXED": "length-prefixed", "JSON": "json", "ARROW": "arrow"}
_MODE = ("MAP", "FILTER", "FLATMAP")


def _path(uri: str, tree: Tree[Token]) -> str:
    if uri.startswith("file://"):
        return uri.removeprefix("file://localhost").removeprefix("file://")
    if "://" in uri:
        unsupported_clauses.remote_transform(tree, uri.partition("://")[0])
    return uri


def moment(tree: Tree[Token]) -> Moment:
    """Convert EARLIEST, LATEST, TIMESTAMP '...', or offsets by partition."""
    word = token(tree, "EARLIEST", "LATEST", "TIMESTAMP")
    if word is None:
        return offsets(tree, "OFFSETS")
    if word.type == "TIMESTAMP":
        try:
            return Timestamp.model_validate({"timestamp": string(tree)})
        except ValueError:
            wrong(
                tree, "TIMESTAMP: invalid time", "write '2026-11-20 00:00:00' (UTC), or with a zone: '2026-11-20T00:00:00+01:00'"
            )
    return "earliest" if word.type == "EARLIEST" else "latest"


def offsets(tree: Tree[Token], clause: str) -> dict[Part, int]:
    """Convert offsets by partition: its number, or TOPIC:NUMBER."""
    by_partition: dict[Part, int] = {}
    for key, value in json_object(tree, clause).items():
        name = _part(key)
        if name is None or not isinstance(value, int) or isinstance(value, bool) or value < 0:
            wrong(tree, f"{clause}: expected offsets by partition number", """write '{"0": 120, "3": 7}'""")
        by_partition[name] = value
    if not by_partition:
        wrong(tree, f"{clause}: expected at least one partition", """write '{"0": 120, "3": 7}'""")
    return by_partition


def _part(text: str) -> Part | None:
    """Parse a partition; None if it is invalid."""
    if text.isascii() and text.isdigit():
        return int(text) if len(text) <= _MOST_DIGITS else None
    return text if _PART.fullmatch(text) else None


def partition(tree: Tree[Token]) -> Part:
    """Convert a partition: a number, or a text 'NUMBER' or 'TOPIC:NUMBER'."""
    word = token(tree, "INT")
    if word is not None:
        return number(word)
    text = unquoted(str(next(children(tree, "string")).children[0]))
    name = _part(text)
    if name is None:
        wrong(tree, f"{text!r} is not a partition number", "with several topics, write 'TOPIC:NUMBER'")
    return name
