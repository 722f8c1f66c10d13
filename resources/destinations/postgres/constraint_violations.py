"""Find the staged rows that a constraint of a PostgreSQL table rejects."""

# ruff: noqa: S608 - names in statements are constants or quoted
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kpipe.batch.batch import Commit
from kpipe.schema.columns import Columns, Type
from resources.destinations.postgres import target_table, text_lengths
from resources.destinations.postgres.connection import Session
from resources.destinations.postgres.sql_dialect import THIS
from resources.destinations.sql import constraint_violations as relational
from resources.destinations.sql import csv_copy
from resources.destinations.sql.column_matching import Match
from resources.destinations.sql.engine import Violation
from resources.destinations.sql.merge.merge_staging import KEPT
from resources.destinations.sql.sql_dialect import quote
from resources.destinations.staged_file_check import Proven

__all__ = ["violations"]

_TRIED = "pg_temp.kpipe_tried"


def violations(
    session: Session, reader: Any, table: str, commit: Commit, staged: Sequence[Proven], known: Columns
) -> list[Violation]:
    """See `relational.found`; the current transaction has widened the table."""
    rules: list[relational.Check] = session.execute(
        "SELECT conname, pg_get_expr(conbin, conrelid),"
        " ARRAY(SELECT attname::text FROM pg_attribute WHERE attrelid = conrelid AND attnum = ANY(conkey))"
        f" FROM pg_constraint WHERE contype = 'c' AND conrelid = {THIS}",
        [table],
    ).fetchall()
    session.execute(f"DROP TABLE IF EXISTS {_TRIED}")  # left by another table of the batch
    session.execute(f"CREATE TEMP TABLE kpipe_tried ON COMMIT DROP AS SELECT * FROM {quote(table)} WITH NO DATA")
    for name, most in text_lengths.limits(session, table).items():  # a longer text would be an error, or lose its blanks
        session.execute(f"ALTER TABLE {_TRIED} ALTER COLUMN {quote(name)} TYPE text")
        rules.append((f"{name} character varying({most})", f"char_length({quote(name)}) <= {most:d}", [name]))

    session.execute(f"ALTER TABLE {_TRIED} ADD COLUMN {KEPT} text")

    def put(into: Sequence[str], first: Sequence[tuple[str, Type]], matches: Sequence[Match], paths: Sequence[str]) -> int:
        statement = f"COPY {_TRIED} ({', '.join(into)}) FROM STDIN (FORMAT csv)"
        fields = [csv_copy.filled(value, kind) for value, kind in first]
        return session.copy(statement, csv_copy.blocks(reader, csv_copy.lines(matches, first=fields), [list(paths)]))

    required, given = target_table.required(session, table), target_table.given(session, table)
    return relational.found(session, reader, _TRIED, rules, required, given, commit, staged, known, put)
