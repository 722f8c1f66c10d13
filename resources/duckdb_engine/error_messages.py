"""What DuckDB says is wrong with a text of SQL, in words that fit a statement of kpipe's, and the place in the text."""

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
    name, given = match[1], _types(match[2])
    parts = re.split(r", (?![^(]*\))", given)
    if re.fullmatch(r"\W+", name):
        return f"{name} cannot be applied to {' and '.join(parts)}" if len(parts) < 3 else f"{name} cannot be applied to {given}"
    return f"function {name} does not take ({given})"


# What the engine says, and what is said instead. Measured on DuckDB 2.0.
_RULES: tuple[tuple[str, Callable[[re.Match[str]], str]], ...] = (
    (r'syntax error at or near "(.+)"', lambda match: f"not expected here: {match[1]}"),
    (r"syntax error at end of input", lambda _: "the text ends where more is expected"),
    (r"SELECT clause without selection list", lambda _: "SELECT without anything to select"),
    (r"unterminated (?:string literal|quoted string)", lambda _: "a text in quotes does not end"),
    (r"unterminated quoted identifier", lambda _: "a name in quotes does not end"),
    (r"zero-length delimited identifier", lambda _: "a name in quotes is empty"),
    (r"Function with name \"?(.+?)\"? does not exist", lambda match: f"function {match[1]} does not exist"),
    (r"(\w+) with name \"?(.+?)\"? does not exist", lambda match: f"{match[1].lower()} {match[2]} does not exist"),
    (r"(\w+) with name \"?(.+?)\"? already exists", lambda match: f"{match[1].lower()} {match[2]} exists already"),
    (r'Referenced column "(.+?)" (?:was )?not found', lambda match: f"column {match[1]} does not exist"),
    (r'Referenced table "(.+?)" not found', lambda match: f"table {match[1]} is not named behind FROM"),
    (r"No function matches the given name and argument types '(.+?)\((.*)\)'", _call),
    (r'best candidate function for the function call "(.+?)\((.*?)\)"', _call),
    (r"Cannot compare values of type (.+?) and (?:values of )?type (.+?)(?: -|$)",
     lambda match: f"{_types(match[1])} and {_types(match[2])} cannot be compared"),
    (r"(?:WHERE clause )?cannot contain aggregates", lambda _: "aggregates are computed over several records"),
    (r"UNNEST not supported here", lambda _: "UNNEST gives several values"),
    (r"Could not convert string '(.*)' to (\w+)", lambda match: f"'{match[1]}' is no {_types(match[2])}"),
    (r'invalid (date|time|timestamp) field format: "(.*?)"', lambda match: f"'{match[2]}' is no {match[1].upper()}"),
    (r"Unimplemented type for cast \((.+) -> (.+)\)",
     lambda match: f"a value of type {_types(match[1])} is no {_types(match[2])}"),
    (r"Max expression depth limit", lambda _: "nested too deeply, or too many operations in a row"),
)  # fmt: skip
_COMPILED = tuple((re.compile(pattern, re.DOTALL), said) for pattern, said in _RULES)


def in_words(message: str) -> str:
    """Return what a message says, in one line of plain words, without the engine's prefix and without its copy of the text."""
    text = re.split(r"\n\s*\n?LINE \d+:|\n\s*Candidate|\n\s*Did you mean", message.strip(), maxsplit=1)[0]
    text = re.sub(r"^[A-Z][A-Za-z ]{2,30} Error: ", "", text)
    text = re.sub(r"\S{80,}", lambda match: match[0][:60] + "..." + match[0][-1], text)  # the patterns below take their time
    for pattern, said in _COMPILED:
        match = pattern.search(text)
        if match is not None:
            found = said(match)
            break
    else:
        found = text.split("\n", 1)[0].rstrip("! ")
    found = " ".join(found.split())
    return found if len(found) <= _LONGEST else found[:_LONGEST] + "..."


def place_of(message: str, text: str) -> tuple[int, int] | None:
    """Return place and length of what a message points at in the text that the engine was given; None where it points nowhere."""
    match = re.search(r"^LINE (\d+): (.*)\n( *)(\^+)", message, re.MULTILINE)
    if match is None:
        return None
    lines = text.split("\n")
    row, shown = int(match[1]) - 1, match[2]
    column = len(match[3]) - len(f"LINE {match[1]}: ")
    if not 0 <= row < len(lines) or column < 0:
        return None
    start = sum(len(line) + 1 for line in lines[:row])
    if shown.startswith("..."):  # a long line is cut around the place
        part = shown.removeprefix("...").removesuffix("...")
        found = lines[row].find(part)
        return (start + found + column - 3, len(match[4])) if found >= 0 and column >= 3 else None
    return start + column, len(match[4])
