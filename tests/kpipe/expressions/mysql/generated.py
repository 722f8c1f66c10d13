"""Generate expressions at random, of operators and conditions; print those that a MariaDB answers in another way.

    .venv/bin/python -m tests.kpipe.expressions.mysql.generated 1 2000      # seed and number

What was wrong goes into `families/found.sql`; a part of the others is `families/generated.sql`.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator

import duckdb

from kpipe.expressions.errors import Untranslated
from kpipe.expressions.mysql.columns import of_columns
from kpipe.expressions.mysql.compiler import compiled
from kpipe.expressions.mysql.values import text
from kpipe.schema.columns import Columns
from tests.kpipe.expressions.mysql.recorded import Asked, same
from tests.kpipe.expressions.mysql.records import COLUMNS, DUCKDB, ROWS, TYPES
from tests.servers.mariadb import MariaServer

_LEAVES = [
    "n", "n", "i", "d", "d2", "f", "b", "t", "t2", "dt", "at", "NULL", "1", "2", "0", "-1", "3", "7", "1.5", "0.25",
    "2.50", "'1'", "'2.5'", "'abc'", "''", "2e0", "0.1e0", "TRUE", "FALSE", "1.0", "255", "'2024-02-29'", "10", "0x1F",
    "1000000",
]  # fmt: skip
_BINARY = [
    "+", "-", "*", "/", "DIV", "%", "=", "<>", "<", "<=", ">", ">=", "<=>", "AND", "OR", "XOR", "&", "|", "^", "<<",
    ">>", "MOD", "&&",
]  # fmt: skip
_LONGEST = 160


def expressions(seed: int, count: int) -> Iterator[str]:
    """Yield so many different expressions; the same ones for a seed."""
    chance, seen = random.Random(seed), set[str]()
    while len(seen) < count:
        said = _expression(chance, chance.choice((1, 2, 2, 2, 3)))
        if said not in seen and len(said) <= _LONGEST and "--" not in said:
            seen.add(said)
            yield said


def _expression(chance: random.Random, depth: int) -> str:
    if depth == 0:
        return chance.choice(_LEAVES)
    a, b, c = (_expression(chance, depth - 1) for _ in range(3))
    negated = chance.choice(("", "NOT "))
    forms = {
        f"{a} {chance.choice(_BINARY)} {b}": 55,
        f"{chance.choice(('-', '~', 'NOT ', '!', '+'))}{a}": 8,
        f"({a})": 9,
        f"{a} {negated}IN ({b}, {chance.choice(_LEAVES)})": 4,
        f"{a} {negated}BETWEEN {b} AND {c}": 4,
        f"{a} IS {negated}{chance.choice(('NULL', 'TRUE', 'FALSE', 'UNKNOWN'))}": 4,
        f"CASE WHEN {a} THEN {b} ELSE {c} END": 4,
        f"CASE {a} WHEN {b} THEN {c} END": 3,
        f"IF({a}, {b}, {c})": 4,
        f"IFNULL({a}, {b})": 2,
        f"ABS({a})": 3,
    }
    return chance.choices(list(forms), list(forms.values()))[0]


_AROUND = [
    "CONV({}, 10, 16)", "({} BETWEEN 1 AND 5)", "(i BETWEEN {} AND n)", "ELT({}, 'a', t, 'c')", "FIELD({}, 'a', 3)",
    "({} IN (1, 'b', d))",
    "NULLIF({}, 1)", "LEAST({}, t)", "CAST({} AS YEAR)", "CAST({} AS DATETIME)", "ADDTIME({}, '1')",
    "CAST({} AS UNSIGNED)", "CAST({} AS DECIMAL(9, 2))", "CAST({} AS BINARY(5))", "CAST({} AS TIME)", "({} = dt)", "(f = {})",
    "STR_TO_DATE({}, '%Y-%m-%d')", "(CASE {} WHEN 1 THEN 2 WHEN t THEN 4 END)", "(CASE 1 WHEN {} THEN 2 END)",
    "INTERVAL({}, 1, 5)",
    "({} << 2)", "(7 >> {})", "({} & 3)", "({} / 3)", "({} + 1)", "({} DIV 2)", "({} % 7)", "ROUND({}, 1)", "IF(b, {}, 'x')",
    "(NOT {})",
    "IFNULL({}, 1)", "SUBSTRING('abc', {}, 2)", "LPAD({}, 9, '0')", "MAKE_SET({}, 'a', 'b')", "INET_ATON({})", "TIMEDIFF({}, tm)",
    "(at + INTERVAL {} DAY_HOUR)", "DATE_ADD({}, INTERVAL 1 MONTH)", "EXTRACT(DAY_SECOND FROM {})", "DATE_FORMAT({}, '%D %U')",
]  # fmt: skip


def nestings(seed: int, count: int, depth: int) -> Iterator[list[str]]:
    """Yield so many lists of forms; each form holds the next one."""
    chance = random.Random(seed)
    for _ in range(count):
        yield [chance.choice(_AROUND) for _ in range(depth)]


def difference(connection: duckdb.DuckDBPyConnection, asked: Asked, said: str) -> str | None:
    """Return how the answers differ; None: they do not, or neither takes the expression."""
    theirs = asked.values(said)
    try:
        sql = text(compiled(said, of_columns(Columns.of({name: TYPES[name.rstrip("2")] for name in COLUMNS})))).sql
        ours = [row[0] for row in connection.execute(f"SELECT {sql} FROM records ORDER BY place").fetchall()]
    except (Untranslated, duckdb.Error) as error:
        return None if isinstance(theirs, str) else f"{error}; MariaDB {theirs[:5]}"
    if isinstance(theirs, str):
        return f"{ours[:5]}; MariaDB: {theirs}"
    wrong = [f"record {at}: {a!r}, MariaDB {b!r}" for at, (a, b) in enumerate(zip(ours, theirs, strict=True)) if not same(a, b)]
    return "; ".join(wrong[:3]) or None


def main() -> None:
    """Compare so many expressions of a seed."""
    seed, count = (int(word) for word in sys.argv[1:3])
    with duckdb.connect(":memory:", config={"threads": 1}) as connection, MariaServer() as server:
        connection.execute(f"CREATE TABLE records (place INTEGER, {DUCKDB})")
        marks = ", ".join(["?"] * (len(COLUMNS) + 1))
        connection.executemany(f"INSERT INTO records VALUES ({marks})", [[at, *row] for at, row in enumerate(ROWS)])
        asked, wrong = Asked(server), 0
        for said in expressions(seed, count):
            found = difference(connection, asked, said)
            if found is not None:
                wrong += 1
                print(f"{said}\n    {found}")
        print(f"{count} expressions, {wrong} differ")


if __name__ == "__main__":
    main()
