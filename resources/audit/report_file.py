"""The DuckDB file of a report: opened in a folder of its own, and bound to one audit."""

# ruff: noqa: S608 - names of the callers
from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import duckdb

from kpipe.errors import DestinationBusy, DestinationError, InvalidPipeline

__all__ = ["CHECKS_FILE", "ReportFile", "is_finished"]

_R = TypeVar("_R", bound="ReportFile")

_FILE, CHECKS_FILE = "report.duckdb", "checks.sql"
_CONFIG: dict[str, Any] = {
    "memory_limit": "96MB",
    "threads": "1",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
}
_FORMAT = 4


class ReportFile:
    """The file of a report in a folder; a context manager, which closes it.

    Args:
        folder: created if it is missing.
        identity: what is audited and how, in JSON's types. A report of another audit is rejected.
        tables: statements that create the tables; one of them is `audit`.
        rows: first rows of some of them, by table.

    Attributes:
        folder: of the report.

    Raises:
        InvalidPipeline: the report is finished, or belongs to a different audit, or the folder contains other files.
        DestinationBusy: another process writes it.
        DestinationError: the folder cannot be written.
    """

    def __init__(
        self, folder: Path, identity: Mapping[str, Any], tables: Sequence[str], rows: Mapping[str, Sequence[Sequence[Any]]]
    ) -> None:
        self.folder, self._db = folder, _open(folder, identity, tables, rows)

    def __enter__(self: _R) -> _R:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._db.close()

    @property
    def table(self) -> dict[str, Any] | None:
        """Facts that `save_table` has recorded; None: the table has not been read."""
        found = self._db.execute("SELECT table_read FROM audit").fetchone()
        return None if found is None or found[0] is None else dict(json.loads(found[0]))

    def _write_checks(self, template: str, **texts: str) -> None:
        """Write the SQL file, whose existence shows that the report is finished.

        Args:
            template: its text, with `{NAME}` in place of `texts`, and `{TABLE}` in place of the query of the table's own
                engine, which becomes a comment.
            texts: by name.
        """
        found = self._db.execute("SELECT table_sql FROM audit").fetchone()
        self._db.execute("CHECKPOINT")
        own = str((found and found[0]) or "") or "the table has no SQL engine"
        comment = "\n".join(f"--   {line}" for line in own.splitlines())
        for name, text in {**texts, "TABLE": comment}.items():
            template = template.replace(f"{{{name}}}", text)
        (self.folder / CHECKS_FILE).write_text(template, encoding="utf-8")


def _open(
    folder: Path, identity: Mapping[str, Any], tables: Sequence[str], rows: Mapping[str, Sequence[Sequence[Any]]]
) -> duckdb.DuckDBPyConnection:
    """Open the report in a folder, or begin one; see `ReportFile`."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if any(folder.iterdir()) and not (folder / _FILE).is_file():
            raise InvalidPipeline(f"{folder}: contains files, and no report", "name a new folder: --report")
        connection = duckdb.connect(str(folder / _FILE), config=_CONFIG)
    except OSError as error:
        raise DestinationError(f"cannot create {folder}: {error.strerror}", "name another folder: --report") from error
    except duckdb.Error as error:
        busy = "lock" in str(error)
        raise (DestinationBusy if busy else DestinationError)(
            f"cannot open {folder / _FILE}: {str(error).splitlines()[0]}",
            "another audit writes it" if busy else "name another folder: --report",
        ) from None
    connection.execute("SET preserve_insertion_order = false")
    connection.execute("SET enable_progress_bar = false")
    try:
        if not _is_begun(connection, folder, json.dumps(identity, sort_keys=True)):
            connection.execute("BEGIN")
            for statement in tables:
                connection.execute(statement)
            for table, items in rows.items():
                marks = ", ".join("?" * len(items[0]))
                connection.executemany(f"INSERT INTO {table} VALUES ({marks})", [list(item) for item in items])
            values = [json.dumps(identity, sort_keys=True), _FORMAT]
            connection.execute("INSERT INTO audit (identity, format, started) VALUES (?, ?, now())", values)
            connection.execute("COMMIT")
    except BaseException:
        connection.close()
        raise
    return connection


def _is_begun(connection: duckdb.DuckDBPyConnection, folder: Path, identity: str) -> bool:
    """Check what the file contains, and return whether it contains a report.

    Raises:
        InvalidPipeline: it contains something else, or the report of a different audit.
    """
    known = {name for (name,) in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()}
    if known and "audit" not in known:
        raise InvalidPipeline(f"{folder / _FILE}: not the report of an audit", "name a new folder: --report")
    if not known:
        return False
    found = connection.execute("SELECT identity, format, finished FROM audit").fetchone()
    if found is None or found[1] != _FORMAT:
        raise InvalidPipeline(f"{folder}: report of another version of kpipe", "name another folder: --report")
    if found[2] is not None:
        raise InvalidPipeline(f"{folder}: the report is finished", "name another folder: --report")
    old, new = json.loads(found[0]), json.loads(identity)
    changed = sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))
    if changed:
        key = changed[0]
        raise InvalidPipeline(
            f"{folder}: report of a different audit: {key}: expected {old.get(key)!r}, found {new.get(key)!r}",
            "name another folder: --report",
        )
    return True


def is_finished(folder: Path) -> bool:
    """Return whether a folder contains a finished report."""
    return (folder / CHECKS_FILE).exists()
