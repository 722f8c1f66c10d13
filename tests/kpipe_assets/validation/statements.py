"""Execute statements that create a pipeline, and return their errors."""

from __future__ import annotations

import re

import pytest

from kpipe.errors import KpipeError
from kpipe_assets.statements.execute import Session
from resources.home import Home

HEAD = "CREATE PIPELINE p AS LOAD DATA KAFKA '127.0.0.1:1/orders' "
TABLES = (
    "CREATE TABLE t (id BIGINT PRIMARY KEY, city VARCHAR, amount BIGINT, day DATE, price DECIMAL(10,2));"
    "CREATE TABLE plain (id BIGINT, city VARCHAR, amount BIGINT);"
)


#: What no message may hold: words of the lexer's and of the engine's.
STRANGE = re.compile(r"\bLINE \d|\(\?[:=!]|\\s|[A-Z][a-z]+ Error:|Traceback|\bINT64\b|_LITERAL|max_expression_depth")


def execute(home: Home, text: str) -> list[str]:
    from kpipe.sql.parser import read_all

    with Session(home, as_json=False) as session:
        return [result.message for statement in read_all(text) for result in session.execute(statement)]


def refused(home: Home, text: str) -> tuple[str, str]:
    """The message, and the part of the statement above its carets."""
    with pytest.raises(KpipeError) as caught:
        execute(home, text)
    error = caught.value
    assert error.exit_status == 2
    excerpt = getattr(error, "excerpt", "")
    assert not STRANGE.search(f"{error} {excerpt}"), str(error)
    shown, marks = [*excerpt.split("\n"), "", ""][:2]
    return str(error), "".join(sign for sign, mark in zip(shown, marks.ljust(len(shown)), strict=False) if mark == "^")
