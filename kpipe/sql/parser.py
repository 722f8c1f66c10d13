"""Parse text to statements. Errors contain line and column, what was expected and found, and show the line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from difflib import get_close_matches
from typing import Any, cast

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from kpipe.errors import InvalidStatement
from kpipe.expressions.tokens import words
from kpipe.sql.ast import Wrong, span
from kpipe.sql.builder import build
from kpipe.sql.first_keywords import GAP, KPIPE
from kpipe.sql.grammar import FIRST_WORDS, parser
from kpipe.sql.masking import masked
from kpipe.sql.source_positions import Places, pointed
from kpipe.sql.statements import Alter, Create, Infer, Placed, Query, Statement
from kpipe.sql.table_head import has_columns

__all__ = ["is_complete", "nearest", "next_words", "read", "read_all"]

_AFTER_INTO = {
    "FORMAT",
    "FIELDS",
    "COLUMNS",
    "LINES",
    "SET",
    "WHERE",
    "SCHEMA",
    "DESCRIPTORS",
    "MESSAGE",
    "VALIDATE",
    "NULL",
    "CHARACTER",
    "(",
}
_BEFORE_EXPRESSIONS = {
    "CONFIG", "CREDENTIALS", "BATCH_INTERVAL", "MAX_PARTITIONS_PER_BATCH", "MAX_OFFSETS_PER_BATCH_PARTITION", "RETRY_OPTIONS",
    "MAX_RETRIES_PER_BATCH_PARTITION", "MAX_BYTES_PER_BATCH_PARTITION", "STOP_ON_ERROR", "WITH", "REPLACE", "SKIP", "OPTIONS",
    "OFFSETS", "TOPICS",
}  # fmt: skip
_SPACE = re.compile(f"{GAP}*")
_WORDS = {
    "STRING": "a text in quotes", "NAME": "a name", "BACKTICKED": "a name", "INT": "a number", "NUMBER": "a number",
    "VARIABLE": "a @variable", "_SEMICOLON": "the end", "$END": "the end", "ON_DUPLICATE": "ON DUPLICATE KEY UPDATE",
    "LINES_BY": "LINES", "IGNORE_LINES": "IGNORE n LINES", "NULL_TEXT": "NULL DEFINED BY", "CHARACTER": "CHARACTER SET",
    "QUOTED": "a text in quotes",
    "EVERY": "*", "ALSO": "ALSO INTO TABLE",
}  # fmt: skip
_FIRST = (
    "ALTER PIPELINE", "BACKFILL PIPELINE", "CLEAR PIPELINE ERRORS", "CREATE OR REPLACE PIPELINE", "CREATE PIPELINE",
    "DELETE FROM", "DETACH PIPELINE", "DROP PIPELINE", "EXTRACT PIPELINE", "INFER PIPELINE", "REPLAY PIPELINE",
    "RESET PIPELINE", "SELECT", "SHOW CREATE PIPELINE", "SHOW PIPELINES", "START ALL PIPELINES", "START FAILED PIPELINES",
    "START PIPELINE", "STOP ALL PIPELINES", "STOP PIPELINE", "TEST PIPELINE", "TRUNCATE TABLE",
)  # fmt: skip
# Terminals of an expression.
_EXPRESSION = {"TEXT", "QUOTED", "OPERATOR", "LSQB", "LBRACE"}
# Terminals of unsupported clauses, which messages do not suggest.
_HIDDEN = {
    "AGGREGATOR", "LINK", "S3", "FS", "AZURE", "HDFS", "GCS", "MONGODB", "MYSQL", "ICEBERG", "RESOURCE", "IGNORE", "PROCEDURE",
    "PARQUET", "INFERRED", "PROFILE", "OFFSET", "CURSOR", "BATCH_MATCHES_SNAPSHOT", "FILE", "FILES", "HTTP",
    "KAFKACONNECT", "ERRORS_HANDLE", "MAX_ERRORS", "TABLE_ALONE",
}  # fmt: skip


def read(text: str) -> Statement:
    """Parse a text of exactly one statement.

    Raises:
        InvalidStatement: the text has no statement or several, or it is invalid.
    """
    parsed = list(read_all(text))
    if len(parsed) != 1:
        raise InvalidStatement(f"expected one statement, found {len(parsed)}")
    return parsed[0]


def read_all(text: str, file: str = "") -> Iterator[Statement]:
    """Yield the statements in order; each but the last must end with `;`.

    Args:
        text: all statements.
        file: file name for messages.

    Raises:
        InvalidStatement: one is invalid, after those before it were yielded.
    """
    position = 0
    while True:
        space = _SPACE.match(text, position)
        position = space.end() if space else position
        if position >= len(text):
            return
        if text[position] == ";":
            position += 1
            continue
        if KPIPE.match(text, position):
            statement, position = _ours(text, position, file)
        else:
            statement, position = _query(text, position, file)
        yield statement


def next_words(text: str) -> tuple[list[str], bool]:
    """Return the keywords that may follow an incomplete statement, and whether a name may follow.

    Args:
        text: up to the cursor, without the incomplete word.

    Returns:
        Neither if the statement is DuckDB's, or is already invalid.
    """
    start = 0
    for word in words(text):
        if word.text == ";":
            start = word.end
    space = _SPACE.match(text, start)
    part = text[space.end() if space else start :]
    if not part:
        return sorted(_FIRST), False
    if not KPIPE.match(part) and part.split()[0].upper() not in ("CREATE", "ALTER", "DROP", "SHOW", "DETACH"):
        return [], False
    machine = cast(Any, parser().parse_interactive(part))
    try:
        for token in machine.lexer_thread.lex(machine.parser_state):
            machine.feed_token(token)
    except UnexpectedInput:
        return [], False
    terminals = set(machine.accepts()) - _HIDDEN
    keywords = [name for name in _names(terminals) if name.isupper()]
    return keywords, bool(terminals & {"NAME"}) and not terminals & {"TEXT"}


def nearest(text: str) -> str:
    """Return the statement that resembles the start of a misspelt text, for hints; empty: none does.

    A prefix counts as the word: `SHOW PIPE` resembles SHOW PIPELINES.
    """
    typed = [word.text.upper() for word, _ in zip(words(text), range(2), strict=False)]
    for statement in _FIRST:
        keywords = statement.split()[:2]
        if len(typed) == len(keywords) == 2 and all(map(_is_near, typed, keywords)):
            return statement
    return ""


def _is_near(typed: str, wanted: str) -> bool:
    cut_off = len(typed) > 2 and wanted.startswith(typed)
    return cut_off or bool(get_close_matches(typed, [wanted], n=1, cutoff=0.75))


def is_complete(text: str) -> bool:
    """Return whether the text is empty or ends with a `;` outside of quotes, with or without MySQL's escapes in them."""
    readings = [list(words(text, escapes)) for escapes in (False, True)]
    return any(not tokens or tokens[-1].text == ";" for tokens in readings)


def _query(text: str, start: int, file: str) -> tuple[Query, int]:
    """Split off a statement of DuckDB's, up to its `;`."""
    rest = text[start:]
    semicolon = next((word for word in words(rest, has_columns(rest)) if word.text == ";"), None)
    end = len(text) if semicolon is None else start + semicolon.start
    return Query(text[start:end].strip(), Places(text, {(): (start, end - start)}, file)), end


def _ours(text: str, start: int, file: str) -> tuple[Statement, int]:
    part = text[start:]
    try:
        tree, end = _parse(part)
    except UnexpectedInput as error:
        raise _unexpected(error, text, start, file) from None
    except RecursionError:
        raise pointed(text, start, 1, file, "the statement is nested too deeply", "") from None
    try:
        statement = build(tree, part)
        if isinstance(statement, Create | Alter | Infer) and statement.places is not None:
            statement = replace(statement, places=statement.places.moved(text, start, file))
        elif isinstance(statement, Placed):
            statement = replace(statement, places=Places(text, {("pipeline",): (start, end)}, file))
        return statement, start + end
    except Wrong as error:
        place, length = span(error.node)
        raise pointed(text, start + place, length, file, error.what, error.hint) from None


def _parse(text: str) -> tuple[Tree[Token], int]:
    """Parse the statement at the start of the text; return its tree and where it ends."""
    word = next(iter(words(text)), None)
    first = word.text.upper() if word is not None else ""
    if first in FIRST_WORDS:
        with suppress(UnexpectedInput):  # the grammar of all statements describes what is wrong
            return _parse_with(parser(first), text)
    return _parse_with(parser(), text)


def _parse_with(grammar: Lark, text: str) -> tuple[Tree[Token], int]:
    machine = cast(Any, grammar.parse_interactive(text))  # lark has no type hints for it
    fed: list[Token] = []
    try:
        for token in machine.lexer_thread.lex(machine.parser_state):
            if fed and _runs_on(fed[-1], token):
                before = fed.pop()
                whole = Token("NAME", before + token, start_pos=before.start_pos)
                raise UnexpectedToken(whole, set())  # type: ignore[no-untyped-call]
            machine.feed_token(token)
            fed.append(token)
            if token.type == "_SEMICOLON":
                break
        end = fed[-1].end_pos if fed and fed[-1].end_pos is not None else len(text)
        result: Tree[Token] = machine.feed_eof(fed[-1] if fed else None)
    except UnexpectedInput as error:
        error.allowed_here = _accepted(grammar, fed)  # type: ignore[attr-defined]
        raise
    statement = result.children[0]
    assert isinstance(statement, Tree)
    return statement, end


def _runs_on(before: Token, token: Token) -> bool:
    """Return whether a keyword is only the prefix of a longer word, as PIPELINE of PIPELINES."""
    return before.type == before.upper() and before.end_pos == token.start_pos and (token[:1].isalnum() or token[:1] == "_")


def _accepted(grammar: Lark, fed: list[Token]) -> set[str]:
    """Return the terminals that the grammar accepts after these tokens; lark's own list contains others, too."""
    machine = cast(Any, grammar.parse_interactive(""))
    for token in fed:
        machine.feed_token(token)
    return set(machine.accepts())


def _unexpected(error: UnexpectedInput, text: str, start: int, file: str) -> InvalidStatement:
    allowed: set[str] = getattr(error, "allowed_here", set())
    expected = _names(allowed)
    place, length, found = len(text), 1, "the end"
    if isinstance(error, UnexpectedToken) and error.token.type != "$END":
        token = error.token
        place, length = start + (token.start_pos or 0), len(token)
        found = "a text in quotes" if token.type in ("STRING", "TEXT", "QUOTED") else str(token)[:40]
    elif isinstance(error, UnexpectedCharacters):
        place = start + (error.pos_in_stream or 0)
        word = next(iter(words(text[place:])), None)
        found = word.text[:40] if word is not None else text[place : place + 1]
        length = len(found)
        if word is not None and (word.kind == "open" or (word.text[0] in "'\"" and _SPACE)):
            found = "an unterminated quote" if word.kind == "open" else "a text in quotes"
            length = 1
    if found == "the end":
        place = len(text.rstrip())
    near = get_close_matches(found.upper(), [item for item in expected if item.isupper()], n=1, cutoff=0.7)
    hint = f"did you mean {near[0]}?" if near else _misplaced(found.upper(), expected)
    if text.startswith(found, place):  # else it describes what is there
        found = masked(text)[place : place + len(found)]
    return pointed(text, place, length, file, f"expected {_listed(expected)}, found {found}", hint)


def _misplaced(word: str, expected: list[str]) -> str:
    """Return a hint for common mistakes, such as a clause on the wrong side of INTO."""
    if word == "." and not {"FORMAT", "an expression", "KAFKA"} & set(expected):
        return "write the pipeline's name alone: a home has one database"
    if word == "\\":
        return "end the statement with ; instead of \\G, a command of MySQL's client"
    if word == "TABLE" and expected == ["PIPELINE"]:
        return "write DESCRIBE name to show a table"
    if word == "LIMIT" and "FOREGROUND" in expected:
        return "write LIMIT n BATCHES after FOREGROUND"
    if "RELOAD" in expected and (word in _BEFORE_EXPRESSIONS or word == "TRANSFORM"):
        return f"write SET {word}"
    if word == "RESOURCE":
        return "remove RESOURCE POOL: kpipe has no resource pools"
    if word in _AFTER_INTO and "INTO" in expected:
        return f"write {word} after INTO TABLE"
    if word in _BEFORE_EXPRESSIONS and "FORMAT" in expected:
        return f"write {word} before SET, WHERE and ON DUPLICATE KEY UPDATE"
    return ""


def _names(terminals: set[str]) -> list[str]:
    """Return the terminals as words for messages, keywords first."""
    grammar = parser()
    in_expression = bool(terminals & {"TEXT", "OPERATOR"})
    names: list[str] = []
    for terminal in terminals - _HIDDEN:
        if in_expression and (
            terminal in _EXPRESSION or terminal in ("NAME", "BACKTICKED", "VARIABLE", "NUMBER", "PERCENT", "LPAR")
        ):
            names.append("an expression")
        elif terminal in _WORDS:
            names.append(_WORDS[terminal])
        else:
            pattern: Any = grammar.get_terminal(terminal).pattern
            # A terminal's name is clearer than its regular expression.
            names.append(str(pattern.value) if pattern.type == "str" else terminal.strip("_").replace("_", " "))
    return sorted(set(names), key=lambda item: (item == "the end", not item.isupper(), item))


def _listed(names: list[str]) -> str:
    if len(names) < 2:
        return names[0] if names else "nothing"
    return f"{', '.join(names[:-1])} or {names[-1]}"
