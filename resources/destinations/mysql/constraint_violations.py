"""Find the staged rows that a constraint of a MariaDB or MySQL table rejects: CHECK (MariaDB, MySQL 8) and NOT NULL."""

# ruff: noqa: S608 - names in statements are constants or quoted
from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from kpipe.batch.batch import Commit
from kpipe.schema.columns import Columns, Type
from resources.destinations.mysql import insert_literals, target_table, text_lengths
from resources.destinations.mysql.session import Session
from resources.destinations.sql import constraint_violations as relational
from resources.destinations.sql.column_matching import Match
from resources.destinations.sql.engine import Violation
from resources.destinations.sql.merge.merge_staging import KEPT
from resources.destinations.sql.sql_dialect import quote
from resources.destinations.staged_file_check import Proven

__all__ = ["checks", "violations"]

_TRIED = "kpipe_tried"
_CHECK = re.compile(
    r'CONSTRAINT (?P<name>`(?:[^`]|``)+`|"(?:[^"]|"")+") CHECK \((?P<condition>.+)\)(?P<off> /\*!80016 NOT ENFORCED \*/)?,?'
)


def checks(made: str) -> list[tuple[str, str]]:
    """Return names and conditions of the CHECKs that MySQL 8 enforces, from SHOW CREATE TABLE: one per line, names quoted."""
    found = []
    for line in made.splitlines():
        match = _CHECK.fullmatch(line.strip())
        if match is not None and not match["off"]:
            mark = match["name"][0]
            found.append((match["name"][1:-1].replace(mark * 2, mark), match["condition"]))
    return found


def columns_of(condition: str) -> set[str]:
    """Return the names in a condition as the server writes it: it quotes each of them."""
    found = re.findall(r'`((?:[^`]|``)+)`|"((?:[^"]|"")+)"', condition)
    return {tick.replace("``", "`") or double.replace('""', '"') for tick, double in found}


def violations(
    session: Session, reader: Any, table: str, commit: Commit, staged: Sequence[Proven], known: Columns
) -> list[Violation]:
    """See `relational.found`."""
    rules: Iterable[tuple[str, str]]
    if session.maria:
        rules = session.execute(
            "SELECT constraint_name, check_clause FROM information_schema.check_constraints"
            " WHERE constraint_schema = database() AND table_name = $1",
            [table],
        ).fetchall()
    else:
        # MySQL's check_constraints contains no table name, and escapes conditions twice: they would be invalid SQL.
        rules = checks(session.execute(f"SHOW CREATE TABLE {quote(table)}").fetchone()[1])
    session.execute(f"DROP TEMPORARY TABLE IF EXISTS {_TRIED}")  # left by another table of the batch
    # From an outer join, so that all columns are nullable; checks are not copied. A longer text would be an error.
    most = text_lengths.limits(session, table)
    wide = "".join(f", {quote(name)} {limit.wide}" for name, limit in most.items() if name in known)
    columns = ", ".join(f"t.{quote(name)}" for name in known.names())
    session.execute(
        f"CREATE TEMPORARY TABLE {_TRIED} ({KEPT} longtext{wide}) ENGINE=InnoDB AS SELECT {columns}"
        f" FROM (SELECT 1 AS one) AS o LEFT JOIN {quote(table)} AS t ON false WHERE o.one = 0"
    )

    def put(into: Sequence[str], first: Sequence[tuple[str, Type]], matches: Sequence[Match], paths: Sequence[str]) -> int:
        fields = [insert_literals.filled(value, kind) for value, kind in first]
        fields += [insert_literals.field(match) for match in matches]
        return insert_literals.insert(session, reader, _TRIED, into, fields, paths, f"table {table}")

    required, given = target_table.required(session, table), target_table.given(session, table)
    found: list[relational.Check] = [(name, condition, columns_of(condition)) for name, condition in rules]
    found += [(f"{name} {limit.type}", limit.fits(quote(name)), [name]) for name, limit in most.items() if name in known]
    return relational.found(session, reader, _TRIED, found, required, given, commit, staged, known, put)
