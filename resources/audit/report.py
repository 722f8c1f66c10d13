"""Report of an audit: a folder with a DuckDB file, the offsets of the table, and SQL that proves the result again.

The DuckDB file is also the checkpoint: each window is recorded in one transaction.
"""

# ruff: noqa: S608 - names and numbers of this module
from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from kpipe.audit.outcomes import EXPLAINED, MEANINGS, Outcome, State, Summary
from kpipe.audit.windows import Window
from resources.audit.compare import Rules, Runs, compare
from resources.audit.report_file import ReportFile
from resources.audit.report_sql import CHECKS, DECLARED_OFFSETS, MISNUMBERED, NOTHING_DECLARED, NUMBERED_CHECK, TABLES
from resources.duckdb_engine.sandbox import literal

__all__ = ["DECLARED", "NUMBERED", "ROWS", "Report"]

ROWS, DECLARED, NUMBERED = "rows.parquet", "declared.parquet", "numbered_rows.parquet"


class Report(ReportFile):
    """The report in a folder; see `ReportFile`.

    Args:
        folder: created if it is missing.
        identity: what is audited and how, in JSON's types.
    """

    def __init__(self, folder: Path, identity: Mapping[str, Any]) -> None:
        words: dict[str, Mapping[Any, str]] = {"outcomes": MEANINGS, "states": dict.fromkeys(State, "")}
        rows = {table: [[int(code), code.name.lower(), text] for code, text in items.items()] for table, items in words.items()}
        super().__init__(folder, identity, TABLES, rows)

    def save_table(
        self, facts: Mapping[str, Any], bounds: Sequence[Sequence[int | None]], samples: Sequence[str], sql: str
    ) -> None:
        """Record that the offsets of the table are in the folder.

        Args:
            facts: about the table and its rows, in JSON's types.
            bounds: rows of the table `partitions`.
            samples: rows that identify no record, as text.
            sql: query of the table's own engine.
        """
        self._db.execute("BEGIN")
        self._db.execute("UPDATE audit SET table_read = ?, table_sql = ?", [json.dumps(facts), sql])
        self._db.executemany("INSERT INTO partitions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", [list(row) for row in bounds])
        if samples:
            self._db.executemany("INSERT INTO invalid_rows VALUES (?)", [[text] for text in samples])
        self._db.execute("COMMIT")

    def save_records(self) -> None:
        """Write each record that has rows once to `ROWS`, from the rows with their numbers."""
        aside = self.folder / f".{ROWS}.{os.getpid()}"
        rows = f'SELECT DISTINCT "partition", "offset" FROM read_parquet({literal(str(self.folder / NUMBERED))}) ORDER BY ALL'
        try:
            self._db.execute(f"COPY ({rows}) TO {literal(str(aside))} (FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE 1048576)")
            with aside.open("rb") as file:
                os.fsync(file.fileno())
            os.replace(aside, self.folder / ROWS)
        finally:
            aside.unlink(missing_ok=True)

    def misnumbered(self, most: int) -> tuple[int, list[str]]:
        """Return how many records of the audited ranges have rows that are not numbered once each, and some of them as text."""
        found = MISNUMBERED.replace(f"'{NUMBERED}'", literal(str(self.folder / NUMBERED)))
        count = self._db.execute(f"SELECT count(*) FROM ({found})").fetchone()
        rows = self._db.execute(f'SELECT * FROM ({found}) ORDER BY "partition", "offset" LIMIT {most:d}').fetchall()
        assert count is not None
        return int(count[0]), [
            f"partition {partition}, offset {offset}: {number} row{'s' * (number != 1)}, numbers {low} to {high}"
            for partition, offset, number, low, high in rows
        ]

    def windows(self) -> set[Window]:
        """Return the windows that are recorded."""
        return {Window(*row) for row in self._db.execute('SELECT "partition", "start", "end" FROM windows').fetchall()}

    def save_window(self, window: Window, rows: int, tally: Mapping[Outcome, int], log: Runs, findings: Runs) -> None:
        """Record a window.

        Args:
            window: its offsets.
            rows: of the window.
            tally: its offsets by outcome.
            log: runs of offsets that are not committed records with a value.
            findings: runs of offsets that are not one record with one row.
        """
        self._db.execute("BEGIN")
        self._db.execute("INSERT INTO windows VALUES (?, ?, ?, ?, now())", [window.partition, window.start, window.end, rows])
        if tally:
            self._db.executemany(
                "INSERT INTO totals VALUES (?, ?, ?, ?)",
                [[window.partition, window.start, int(outcome), count] for outcome, count in tally.items()],
            )
        for table, runs in (("log_runs", log), ("findings", findings)):
            if len(runs):
                self._insert(table, window.partition, runs)
        self._db.execute("COMMIT")

    def _insert(self, table: str, partition: int, runs: Runs) -> None:
        block = pa.table(
            {
                "partition": pa.array(np.full(len(runs), partition, np.int32)),
                "start": pa.array(runs.starts),
                "end": pa.array(runs.ends),
                "code": pa.array(runs.codes),
                "n": pa.array(runs.rows),
            }
        )
        self._db.register("block", block)
        self._db.execute(f"INSERT INTO {table} SELECT * FROM block")
        self._db.unregister("block")

    def counts(self) -> tuple[dict[int, Counter[Outcome]], int]:
        """Return the recorded offsets by partition and outcome, and the recorded rows."""
        found: dict[int, Counter[Outcome]] = {}
        for partition, outcome, count in self._db.execute(
            'SELECT "partition", outcome, sum(offsets)::BIGINT FROM totals GROUP BY ALL'
        ).fetchall():
            found.setdefault(partition, Counter())[Outcome(outcome)] = count
        rows = self._db.execute("SELECT coalesce(sum(rows), 0)::BIGINT FROM windows").fetchone()
        assert rows is not None
        return found, int(rows[0])

    def tails(self) -> dict[int, int]:
        """Return the recorded records without a row above the last row of each partition."""
        wanted = ", ".join(str(int(item)) for item in (Outcome.MISSING, Outcome.MISSING_TOMBSTONE, Outcome.MISSING_ABORTED))
        found = self._db.execute(
            'SELECT f."partition", sum(f."end" - f."start")::BIGINT FROM findings AS f JOIN partitions AS p USING ("partition")'
            f' WHERE f.outcome IN ({wanted}) AND f."start" > coalesce(p.last_row, -1) GROUP BY ALL'
        ).fetchall()
        return dict(found)

    def findings(self, isolation: str, most: int) -> list[tuple[int, int, int, Outcome, int]]:
        """Return unexplained runs in order, at most this many: partition, start, end, outcome, rows."""
        wanted = ", ".join(str(int(item)) for item in Outcome if item not in EXPLAINED[isolation])
        rows = self._db.execute(
            f'SELECT "partition", "start", "end", outcome, rows FROM findings WHERE outcome IN ({wanted})'
            ' ORDER BY "partition", "start" LIMIT ?',
            [most],
        ).fetchall()
        return [(partition, start, end, Outcome(code), count) for partition, start, end, code, count in rows]

    def finish(self, summary: Summary, rules: Rules) -> None:
        """Record the verdict, and write the SQL file."""
        wanted = ", ".join(str(int(item)) for item in EXPLAINED[summary.isolation])
        self._db.execute(
            "UPDATE audit SET finished = now(), verdict = ?, problems = ?, notes = ?",
            [summary.verdict, summary.problems(), json.dumps(vars(summary.notes))],
        )
        numbered = NUMBERED_CHECK.lstrip() + "\n" if (self.folder / NUMBERED).is_file() else ""
        declared = DECLARED_OFFSETS if (self.folder / DECLARED).is_file() else NOTHING_DECLARED
        self._write_checks(CHECKS, EXPLAINED=wanted, NUMBERED=numbered, RULES=_values(rules), DECLARED=declared)


def _values(rules: Rules) -> str:
    """Return rows of VALUES: state, number of rows, whether the offset is declared, and the outcome."""
    states, lines = np.array(list(State), np.uint8), list[str]()
    for declared in (False, True):
        for rows in range(3):
            found = compare(np.full(len(states), rows, np.uint16), states, rules, np.full(len(states), declared))
            lines += [f"    ({at}, {rows}, {declared}, {code})" for at, code in zip(states, found, strict=True)]
    return ",\n".join(lines)
