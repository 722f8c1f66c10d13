"""Convert DuckDB's messages about SQL to kpipe's terms, and find the position in the text."""

from __future__ import annotations

import re
from collections.abc import Callable

__all__ = ["in_words", "place_of"]

_PHYSICAL = {
    "INT8": "TINYINT", "INT16": "SMALLINT", "INT32": "INTEGER", "INT64": "BIGINT", "INT128": "HUGEINT", "UINT8": "UTINYINT",
    "UINT16": "USMALLINT", "UINT32": "UINTEGER", "UINT64": "UBIGINT", "BOOL": "BOOLEAN", "INTEGER_LITERAL": "a number",
    "STRING_LITERAL": "a text",
}  # fmt: skip
_LONGEST = 200


def _types(text: str) -> str:
    return re.sub(r"\b[A-Z0-9_]+\b", lambda match: _PHYSICAL.get(match[0], match[0]), text)


def _call(match: re.Match[str]) -> str:
    name, types = match[1], _types(match[2])
    parts = re.split(r", (?![^(]*\))", types)
    if re.fullmatch(r"\W+", name):
        return f"{name} cannot be applied to {' and '.join(parts)}" if len(parts) < 3 else f"{name} cannot be applied to {types}"
    return f"function {name} does not take ({types})"


# DuckDB's message, and kpipe's. Recorded with DuckDB 2.0.
_RULES: tuple[tuple[str, Callable[[re.Match[str]], str]], ...] = (
    (r'syntax error at or near "(.+)"', lambda match: f"unexpected {match[1]}"),
    (r"syntax error at end of input", lambda _: "unexpected end of the text"),
    (r"SELECT clause without selection list", lambda _: "SELECT without columns"),
    (r"unterminated (?:string literal|quoted string)", lambda _: "unterminated text in quotes"),
    (r"unterminated quoted identifier", lambda _: "unterminated name in quotes"),
    (r"zero-length delimited identifier", lambda _: "a name in quotes is empty"),
    (r"Function with name \"?(.+?)\"? does not exist", lambda match: f"function {match[1]} does not exist"),
    (r"(\w+) with name \"?(.+?)\"? does not exist", lambda match: f"{match[1].lower()} {match[2]} does not exist"),
    (r"(\w+) with name \"?(.+?)\"? already exists", lambda match: f"{match[1].lower()} {match[2]} already exists"),
    (r'Referenced column "(.+?)" (?:was )?not found', lambda match: f"column {match[1]} does not exist"),
    (r'Referenced table "(.+?)" not found', lambda match: f"table {match[1]} is missing after FROM"),
    (r"No function matches the given name and argument types '(.+?)\((.*)\)'", _call),
    (r'best candidate function for the function call "(.+?)\((.*?)\)"', _call),
    (r"Cannot compare values of type (.+?) and (?:values of )?type (.+?)(?: -|$)",
     lambda match: f"{_types(match[1])} and {_types(match[2])} cannot be compared"),
    (r"(?:WHERE clause )?cannot contain aggregates", lambda _: "an aggregate needs several records"),
    (r"UNNEST not supported here", lambda _: "UNNEST returns several values"),
    (r"Could not convert string '(.*)' to (\w+)", lambda match: f"'{match[1]}' is not a valid {_types(match[2])}"),
    (r'invalid (date|time|timestamp) field format: "(.*?)"', lambda match: f"'{match[2]}' is not a valid {match[1].upper()}"),
    (r"Unimplemented type for cast \((.+) -> (.+)\)",
     lambda match: f"cannot convert {_types(match[1])} to {_types(match[2])}"),
    (r"Max expression depth limit", lambda _: "nested too deeply, or too many operations in a row"),
)  # fmt: skip
_COMPILED = tuple((re.compile(pattern, re.DOTALL), convert) for pattern, convert in _RULES)


def in_words(message: str) -> str:
    """Convert a message of DuckDB's to one line, without its prefix and without the quoted SQL."""
    text = re.split(r"\n\s*\n?LINE \d+:|\n\s*Candidate|\n\s*Did you mean", message.strip(), maxsplit=1)[0]
    text = re.sub(r"^[A-Z][A-Za-z ]{2,30} Error: ", "", text)
    # The patterns below are slow on long words.
    text = re.sub(r"\S{80,}", lambda match: match[0][:60] + "..." + match[0][-1], text)
    for pattern, convert in _COMPILED:
        match = pattern.search(text)
        if match is not None:
            line = convert(match)
            break
    else:
        line = text.split("\n", 1)[0].rstrip("! ")
    line = " ".join(line.split())
    return line if len(line) <= _LONGEST else line[:_LONGEST] + "..."


def place_of(message: str, text: str) -> tuple[int, int] | None:
    """Return the position and length that a message points at in DuckDB's input; None if it has no position."""
    match = re.search(r"^LINE (\d+): (.*)\n( *)(\^+)", message, re.MULTILINE)
    if match is None:
        return None
    lines = text.split("\n")
    row, shown = int(match[1]) - 1, match[2]
    column = len(match[3]) - len(f"LINE {match[1]}: ")
    if not 0 <= row < len(lines) or column < 0:
        return None
    start = sum(len(line) + 1 for line in lines[:row])
    if shown.startswith("..."):  # DuckDB cuts a long line around the position
        part = shown.removeprefix("...").removesuffix("...")
        offset = lines[row].find(part)
        return (start + offset + column - 3, len(match[4])) if offset >= 0 and column >= 3 else None
    return start + column, len(match[4])
