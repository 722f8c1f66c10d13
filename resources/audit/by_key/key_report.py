"""Report of an audit by key: hashes of records and rows, findings, and SQL that proves the result again.

The DuckDB file is also the checkpoint: each part of the topic, and each compared bucket, is recorded in one transaction.
"""

# ruff: noqa: S608 - names and numbers of this package
from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import duckdb

from kpipe.audit.key_outcomes import EXPLAINED, MEANINGS, KeyOutcome, KeySummary, Read
from resources.audit.by_key.comparison_sql import CHECKS, TABLES
from resources.audit.by_key.spill import finished_files
from resources.audit.report_file import ReportFile
from resources.duckdb_engine.memory_limit import VARIABLE, engine_setting
from resources.duckdb_engine.sandbox import literal

__all__ = ["RECORDS", "ROWS", "KeyReport"]

RECORDS, ROWS, _SPILL = "records", "rows", ".spill"
_ALWAYS = ", ".join(str(int(item)) for item in sorted(EXPLAINED))
_MEMORY = "160MB"


class KeyReport(ReportFile):
    """The report in a folder; see `ReportFile`.

    Args:
        folder: created if it is missing.
        identity: what is audited and how, in JSON's types.
    """

    def __init__(self, folder: Path, identity: Mapping[str, Any]) -> None:
        words = [[int(code), code.name.lower(), text] for code, text in MEANINGS.items()]
        super().__init__(folder, identity, TABLES, {"outcomes": words})

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        super().__exit__(kind, error, trace)
        shutil.rmtree(self.folder / _SPILL, ignore_errors=True)

    def save_table(self, facts: Mapping[str, Any], sql: str) -> None:
        """Record that the rows of the table are in the folder; `sql`: query of the table's own engine."""
        self._db.execute("UPDATE audit SET table_read = ?, table_sql = ?", [json.dumps(facts), sql])

    def parts(self) -> int:
        """Return the number of parts of the topic that are recorded."""
        found = self._db.execute("SELECT count(*) FROM parts").fetchone()
        assert found is not None
        return int(found[0])

    def save_part(self, part: int, read: Read, unreadable: Sequence[tuple[int, int, str]]) -> None:
        """Record a part of the topic."""
        counts = {name: sorted(value) if isinstance(value, set) else value for name, value in vars(read).items()}
        self._db.execute("BEGIN")
        self._db.execute("INSERT INTO parts VALUES (?, ?)", [part, json.dumps(counts)])
        if unreadable:
            self._db.executemany("INSERT INTO unreadable VALUES (?, ?, ?)", [list(item) for item in unreadable])
        self._db.execute("COMMIT")

    def read(self) -> Read:
        """Return the sum of the recorded parts."""
        total = Read()
        for (text,) in self._db.execute("SELECT counts FROM parts").fetchall():
            counts: dict[str, Any] = json.loads(text)
            for name, value in counts.items():
                counts[name] = set(value) if isinstance(value, list) else value
            total.add(Read(**counts))
        return total

    def compare(self, bucket: int, parts: int, columns: int, query: str) -> None:
        """Compare the records and the rows of a bucket, and record the result; a recorded one is left out."""
        if self._db.execute("SELECT 1 FROM buckets WHERE bucket = ?", [bucket]).fetchone() is not None:
            return
        with duckdb.connect(":memory:") as engine:
            self._limit(engine)
            for name, side, count in (("records", RECORDS, parts), ("found_rows", ROWS, 1)):
                files = ", ".join(map(literal, finished_files(self.folder / side, count, columns, bucket)))
                engine.execute(f"CREATE TEMP VIEW {name} AS SELECT * FROM read_parquet([{files}])")
            engine.execute(f"CREATE TEMP TABLE result AS {query}")
            totals = engine.execute("SELECT outcome, sum(count)::BIGINT FROM result GROUP BY outcome").fetchall()
            self._db.execute("BEGIN")
            self._db.execute("INSERT INTO buckets VALUES (?)", [bucket])
            if totals:
                self._db.executemany("INSERT INTO totals VALUES (?, ?, ?)", [[bucket, *row] for row in totals])
            wanted = f"SELECT * FROM result WHERE outcome NOT IN ({_ALWAYS})"
            with engine.sql(wanted).to_arrow_reader(10_000) as reader:
                for block in reader:
                    self._db.register("block", block)
                    self._db.execute("INSERT INTO findings SELECT * FROM block")
                    self._db.unregister("block")
            self._db.execute("COMMIT")

    def _limit(self, engine: duckdb.DuckDBPyConnection) -> None:
        limit = engine_setting() if os.environ.get(VARIABLE) else _MEMORY
        place = str(self.folder)
        for statement in (
            f"SET memory_limit = {literal(limit)}",
            "SET threads = 1",
            f"SET temp_directory = {literal(str(self.folder / _SPILL))}",
            "SET preserve_insertion_order = false",
            "SET enable_progress_bar = false",
            "SET autoinstall_known_extensions = false",
            "SET autoload_known_extensions = false",
            f"SET allowed_directories = [{literal(place)}]",
            "SET enable_external_access = false",
            "SET lock_configuration = true",
        ):
            engine.execute(statement)

    def totals(self) -> Counter[KeyOutcome]:
        """Return the recorded counts by outcome."""
        found = self._db.execute("SELECT outcome, sum(count)::BIGINT FROM totals GROUP BY outcome").fetchall()
        return Counter({KeyOutcome(code): count for code, count in found})

    def findings(self, explained: frozenset[KeyOutcome], most: int) -> list[dict[str, Any]]:
        """Return the first findings of each outcome: key, outcome, count, numbers of columns, coordinates, rows."""
        names = ("key", "outcome", "count", "columns", "partition", "offset", "rows")
        found: list[dict[str, Any]] = []
        for outcome in sorted(set(KeyOutcome) - explained):
            rows = self._db.execute(
                'SELECT key, count, "columns", "partition", "offset", rows FROM findings WHERE outcome = ? ORDER BY key LIMIT ?',
                [int(outcome), most],
            ).fetchall()
            found += [dict(zip(names, [row[0], outcome, *row[1:]], strict=True)) for row in rows]
        return found

    def unreadable(self, most: int) -> list[tuple[int, int, str]]:
        """Return some records whose key cannot be read: partition, offset, reason."""
        return self._db.execute('SELECT * FROM unreadable ORDER BY "partition", "offset" LIMIT ?', [most]).fetchall()

    def finish(self, summary: KeySummary, columns: Sequence[tuple[int, str, str, bool]], query: str) -> None:
        """Record the verdict and the columns, and write the SQL file."""
        self._db.execute("BEGIN")
        if columns:
            self._db.executemany('INSERT INTO "columns" VALUES (?, ?, ?, ?)', [list(item) for item in columns])
        self._db.execute("UPDATE audit SET finished = now(), verdict = ?, problems = ?", [summary.verdict, summary.problems()])
        self._db.execute("COMMIT")
        texts = {"COMPARE": query, "ALWAYS": _ALWAYS, "EXPLAINED": ", ".join(str(int(item)) for item in summary.explained)}
        self._write_checks(CHECKS, **texts)
