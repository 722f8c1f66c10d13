"""What a MariaDB says about the expressions of a family, written to a file that tests read.

    .venv/bin/python -m tests.kpipe.expressions.mysql.recorded          # all families anew (make mariadb installs the server)
    .venv/bin/python -m tests.kpipe.expressions.mysql.recorded texts    # one

A family is a list of expressions in `families/NAME.sql`, one in a line; lines that begin with `-- ` are comments. Answers stand
in `families/NAME.json`: for each expression the text of its value in each row of records.py, as the server prints it. JSON is a
text to MariaDB and a document to kpipe, in which `true` counts as 1: expressions that tell them apart are left out.
"""

from __future__ import annotations

import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pymysql

from tests.kpipe.expressions.mysql.records import MARIADB, ROWS
from tests.servers.mariadb import MariaServer

__all__ = ["FAMILIES", "answers", "expressions", "names"]

FAMILIES = Path(__file__).parent / "families"


def names() -> list[str]:
    """Return the families, sorted."""
    return sorted(path.stem for path in FAMILIES.glob("*.sql"))


def expressions(family: str) -> list[str]:
    """Return the expressions of a family."""
    lines = (FAMILIES / f"{family}.sql").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line.strip() and not line.startswith("-- ")]


@cache
def answers(family: str) -> dict[str, list[str | None] | str]:
    """Return the server's answers: the text for each row, by expression, or its error, where some row has one."""
    found: dict[str, list[str | None] | str] = json.loads((FAMILIES / f"{family}.json").read_text(encoding="utf-8"))
    return found


class Asked:
    """A server with the records in a table.

    Args:
        server: a running one.
    """

    def __init__(self, server: MariaServer) -> None:
        # No converters: every value as the server prints it.
        self.connection = pymysql.connect(
            unix_socket=str(server.folder / "socket"),
            user="root",
            charset="utf8mb4",
            conv={pymysql.FIELD_TYPE.NULL: None},
            autocommit=True,
        )
        with self.connection.cursor() as cursor:
            cursor.execute("SET NAMES utf8mb4 COLLATE utf8mb4_nopad_bin")
            cursor.execute("SET time_zone = '+00:00', sql_mode = '', max_statement_time = 20")
            cursor.execute("CREATE DATABASE IF NOT EXISTS compared CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin")
            cursor.execute("USE compared")
            cursor.execute(f"CREATE OR REPLACE TABLE records (place INT, {MARIADB})")
        with (
            pymysql.connect(
                unix_socket=str(server.folder / "socket"), user="root", charset="utf8mb4", database="compared", autocommit=True
            ) as typed,
            typed.cursor() as cursor,
        ):
            for place, row in enumerate(ROWS):
                cursor.execute(f"INSERT INTO records VALUES ({', '.join(['%s'] * (len(row) + 1))})", (place, *row))

    def values(self, expression: str) -> list[str | None] | str:
        """Return the text of the value in each row, or the server's error."""
        try:
            with self.connection.cursor() as cursor:
                cursor.execute(f"SELECT {expression} FROM records ORDER BY place")
                return [_said(row[0]) for row in cursor.fetchall()]
        except pymysql.MySQLError as error:
            return f"error: {error.args[-1]}"


def _said(value: Any) -> str | None:
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return "0x" + value.hex()
    return None if value is None else str(value)


def main() -> None:
    """Ask the server about the families that are named, or about all."""
    with MariaServer() as server:
        asked = Asked(server)
        for family in sys.argv[1:] or names():
            found = {text: asked.values(text) for text in expressions(family)}
            for text, value in found.items():
                if isinstance(value, str):
                    print(f"{family}: {text}: {value}")
            lines = (
                f"{json.dumps(text, ensure_ascii=False)}: {json.dumps(value, ensure_ascii=False)}"
                for text, value in found.items()
            )
            (FAMILIES / f"{family}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
            print(f"{family}: {len(found)} expressions, {len(found) * len(ROWS)} values")


if __name__ == "__main__":
    main()
