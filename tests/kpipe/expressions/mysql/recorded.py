"""Ask MariaDB and MySQL for the values of the expressions of a family, and write them to files that tests read.

    .venv/bin/python -m tests.kpipe.expressions.mysql.recorded          # all families (needs make mariadb, make mysql)
    .venv/bin/python -m tests.kpipe.expressions.mysql.recorded texts    # one

A family is a list of expressions in `families/NAME.sql`, one in a line; lines that begin with `-- ` are comments. The values
of MariaDB are in `families/NAME.json`: for each expression the text of its value in each row of records.py, as the server prints
it. Those of MySQL are in `families/NAME.mysql.json`, where they differ: by expression and number of the row. JSON is a text to
MariaDB and a document to kpipe, in which `true` counts as 1: expressions that tell them apart are left out.
"""

from __future__ import annotations

import json
import math
import re
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pymysql

from tests.kpipe.expressions.mysql.records import MARIADB, ROWS
from tests.servers.mariadb import MariaServer
from tests.servers.mysql import MySQLServer

__all__ = ["FAMILIES", "Answer", "answers", "expressions", "mysql_answers", "names", "same", "same_document"]

FAMILIES = Path(__file__).parent / "families"
#: The text for each row, or the server's error, where some row has one.
Answer = list[str | None] | str
# Of MySQL's errors those that say that it has no such function or syntax.
_NOT_THERE = re.compile(r"does not exist|SQL syntax|parameter count|interrupted")
_LONGEST = 300  # characters of a recorded value


def names() -> list[str]:
    """Return the families, sorted."""
    return sorted(path.stem for path in FAMILIES.glob("*.sql"))


def expressions(family: str) -> list[str]:
    """Return the expressions of a family."""
    lines = (FAMILIES / f"{family}.sql").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line.strip() and not line.startswith("-- ")]


@cache
def answers(family: str) -> dict[str, Answer]:
    """Return MariaDB's answers by expression."""
    found: dict[str, Answer] = json.loads((FAMILIES / f"{family}.json").read_text(encoding="utf-8"))
    return found


@cache
def mysql_answers(family: str) -> dict[str, dict[int, str | None] | str]:
    """Return MySQL's answers where they differ from MariaDB's: by expression the values of those rows, or the error."""
    found = json.loads((FAMILIES / f"{family}.mysql.json").read_text(encoding="utf-8"))
    return {
        said: value if isinstance(value, str) else {int(row): each for row, each in value.items()}
        for said, value in found.items()
    }


def same(ours: str | None, theirs: str | None) -> bool:
    """Whether two printed values are one: a fraction of a second may end in zeros, a DOUBLE may have more digits."""
    if ours is None or theirs is None or ours == theirs:
        return ours == theirs
    fraction = re.compile(r"(\d\d:\d\d:\d\d)(?:\.(\d*?)0*)?\Z")
    if fraction.search(ours) and fraction.search(theirs):
        return fraction.sub(_seconds, ours) == fraction.sub(_seconds, theirs)
    try:
        return math.isclose(float(ours), float(theirs), rel_tol=4e-15) and ("e" in (ours + theirs).lower() or "." in ours)
    except ValueError:
        return False


def same_document(ours: str | None, theirs: str | None) -> bool:
    """Whether two printed documents are one, to the last digit and in the order of keys.

    MariaDB prints `{"a": 1}`, SingleStore and kpipe `{"a":1}`: only the spaces between the parts may differ.
    """
    if ours is None or theirs is None:
        return ours == theirs
    one, other = (
        json.loads(said, parse_float=str, parse_int=str, object_pairs_hook=lambda pairs: ["object", *map(list, pairs)])
        for said in (ours, theirs)
    )
    return bool(one == other)


def _seconds(match: re.Match[str]) -> str:
    return f"{match[1]}.{match[2]}" if match[2] else match[1]


class Asked:
    """A server with the records in a table.

    Args:
        server: a running one.
    """

    def __init__(self, server: MariaServer) -> None:
        mysql = isinstance(server, MySQLServer)
        self.collation = collation = "utf8mb4_0900_bin" if mysql else "utf8mb4_nopad_bin"
        limit = "max_execution_time = 20000" if mysql else "max_statement_time = 20"
        # No converters: every value as the server prints it.
        self.connection = pymysql.connect(
            unix_socket=str(server.folder / "socket"),
            user="root",
            charset="utf8mb4",
            conv={pymysql.FIELD_TYPE.NULL: None},
            autocommit=True,
        )
        with self.connection.cursor() as cursor:
            cursor.execute(f"SET time_zone = '+00:00', sql_mode = '', {limit}")
            cursor.execute(f"CREATE DATABASE compared CHARACTER SET utf8mb4 COLLATE {collation}")
            cursor.execute("USE compared")
            cursor.execute(f"CREATE TABLE records (place INT, {MARIADB})")
        with (
            pymysql.connect(
                unix_socket=str(server.folder / "socket"), user="root", charset="utf8mb4", database="compared", autocommit=True
            ) as typed,
            typed.cursor() as cursor,
        ):
            cursor.execute("SET sql_mode = ''")
            for place, row in enumerate(ROWS):
                cursor.execute(f"INSERT INTO records VALUES ({', '.join(['%s'] * (len(row) + 1))})", (place, *row))

    def values(self, expression: str) -> Answer:
        """Return the text of the value in each row, or the server's error."""
        answer = self._values(expression, self.collation)
        if isinstance(answer, str) and "mix of collations" in answer:  # texts out of JSON have utf8mb4_bin in MySQL
            return self._values(expression, "utf8mb4_bin")
        return answer

    def _values(self, expression: str, collation: str) -> Answer:
        try:
            with self.connection.cursor() as cursor:
                cursor.execute(f"SET NAMES utf8mb4 COLLATE {collation}")
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


def _differing(mysql: Answer, mariadb: Answer) -> dict[int, str | None] | str | None:
    """Return what MySQL says where it differs; None: nowhere, or MySQL lacks the function."""
    if isinstance(mysql, str):
        return None if isinstance(mariadb, str) or _NOT_THERE.search(mysql) else mysql
    if isinstance(mariadb, str):
        return dict(enumerate(mysql))
    found = {row: ours for row, (ours, theirs) in enumerate(zip(mysql, mariadb, strict=True)) if not _equal(ours, theirs)}
    return {
        row: value if value is None or len(value) <= _LONGEST else f"{len(value)} characters" for row, value in found.items()
    } or None


def _equal(one: str | None, other: str | None) -> bool:
    try:
        return same(one, other) or same_document(one, other)
    except ValueError:  # they are not documents
        return False


def _write(name: str, found: dict[str, Any]) -> None:
    lines = (f"{json.dumps(said, ensure_ascii=False)}: {json.dumps(value, ensure_ascii=False)}" for said, value in found.items())
    (FAMILIES / name).write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def main() -> None:
    """Ask both servers about the families that are named, or about all."""
    with MariaServer() as maria_server, MySQLServer() as mysql_server:
        mariadb, mysql = Asked(maria_server), Asked(mysql_server)
        for family in sys.argv[1:] or names():
            found = {said: mariadb.values(said) for said in expressions(family)}
            for said, value in found.items():
                if isinstance(value, str):
                    print(f"{family}: {said}: {value}")
            _write(f"{family}.json", found)
            others = {said: _differing(mysql.values(said), value) for said, value in found.items()}
            differing = {said: value for said, value in others.items() if value is not None}
            _write(f"{family}.mysql.json", differing)
            print(f"{family}: {len(found)} expressions, {len(found) * len(ROWS)} values; {len(differing)} differ in MySQL")


if __name__ == "__main__":
    main()
