"""Adapt a MariaDB or MySQL connection to the ledger's code: session settings, parameters, transactions."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import date, datetime, time, timezone
from decimal import Decimal
from time import monotonic, sleep
from typing import Any

import pymysql
from pymysql.constants import SERVER_STATUS

from kpipe.errors import DestinationError, SchemaConflict

__all__ = ["CHANGING", "READ", "RIGHTS", "WRITE", "Session", "literal", "unwilling"]

#: Each statement sees the current commits. Decisions depend on the ledger's lanes only, which are locked before they are read.
WRITE = "READ COMMITTED"
#: All statements of a transaction see one state.
READ = "REPEATABLE READ"
#: MySQL's error of a statement that reads information_schema while another session changes the definition of a table.
CHANGING = 1684
#: Errors of an account that lacks a right.
RIGHTS = {1044, 1142, 1143, 1227, 1370}

# Strict: no value is changed to fit, nor is 0 replaced by the next number of AUTO_INCREMENT. `"` quotes names, as in other
# databases. Backslashes escape, which is the default: literals here and in insert_literals.py depend on it.
_MODE = (
    "ANSI_QUOTES,STRICT_ALL_TABLES,STRICT_TRANS_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE,ERROR_FOR_DIVISION_BY_ZERO,"
    "NO_ENGINE_SUBSTITUTION,ONLY_FULL_GROUP_BY,NO_AUTO_VALUE_ON_ZERO"
)
# A parameter; or a name or a text, which may contain a `$` that is not a parameter.
_TOKEN = re.compile(r'"(?:[^"]|"")*"|\'(?:[^\'\\]|\'\'|\\.)*\'|\$(\d+)')


# What the end of a transaction does not undo.
_STAYS = re.compile(r"\s*(?:CREATE|DROP)\s+TEMPORARY|\s*SET\s+SESSION", re.IGNORECASE)


class Session:
    """A connection that detects changed values and ended transactions, which MySQL does not report as errors.

    A transaction begins with the first statement, or with BEGIN.

    Args:
        raw: PyMySQL's connection.
        lock_timeout_s: longest wait for a lock.
        idle_timeout_s: a run that is suspended inside a transaction loses its connection, and its locks, after this time.
        mode: isolation level of its transactions.

    Raises:
        DestinationError: the server does not accept the required settings.
    """

    def __init__(self, raw: Any, lock_timeout_s: float, idle_timeout_s: float, mode: str) -> None:
        self.raw, self._mode, self._open, self._broken, self._marked = raw, mode, False, False, False
        wait, idle = max(1, math.ceil(lock_timeout_s)), max(1, math.ceil(idle_timeout_s))
        self._wait = wait
        self._run(
            f"SET SESSION sql_mode = '{_MODE}', time_zone = '+00:00', innodb_lock_wait_timeout = {wait:d},"
            f" lock_wait_timeout = {wait:d}, wait_timeout = {idle:d}, autocommit = 0,"
            " sql_quote_show_create = 1,"  # names in expressions are found by their quotes
            " sql_notes = 1"  # `insert` depends on it: the server cuts blanks with a note only
        )
        found = self._run(
            "SELECT database(), @@sql_mode, @@version, @@version_comment, @@max_allowed_packet,"
            " @@lower_case_table_names, @@read_only"
        ).fetchone()
        self.database, modes, self.version, self.comment, self.packet, self.folds, self.read_only = found
        missing = {"ANSI_QUOTES", "STRICT_ALL_TABLES", "NO_AUTO_VALUE_ON_ZERO"} - set(modes.upper().split(","))
        if missing or "NO_BACKSLASH_ESCAPES" in modes.upper():
            raise DestinationError(
                f"{self.comment} {self.version} does not accept sql_mode = '{_MODE}'", "allow it; see the guide"
            )

        self._marked = False

    def has_left(self) -> bool:
        """Roll back an open transaction. Return whether nothing of this session stays in the connection."""
        try:
            self.leave()
        except pymysql.err.Error:
            return False
        in_transaction = self.raw.server_status & SERVER_STATUS.SERVER_STATUS_IN_TRANS
        return not (self._marked or self._broken or in_transaction)

    @property
    def maria(self) -> bool:
        """Return whether this is MariaDB, which has other names for some collations than MySQL."""
        return "mariadb" in f"{self.version} {self.comment}".lower()

    def execute(self, statement: str, parameters: Sequence[Any] = (), /) -> Any:
        """Run one statement; parameters are `$1` and so on."""
        if statement == "BEGIN":
            self.begin()
            return None
        if statement == "COMMIT":
            self.commit()
            return None
        if not self._open:
            self.begin()
        return self._run(bound(statement, parameters))

    def permitted(self, statement: str, parameters: Sequence[Any] = ()) -> Sequence[Any] | None:
        """Return the rows of a SELECT, or None if the account lacks the right to run it: the transaction continues."""
        broken = self._broken
        try:
            return list(self.execute(statement, parameters).fetchall())
        except pymysql.err.Error as error:
            if error.args[0] not in RIGHTS:
                raise
            self._broken = broken
            return None

    def begin(self, mode: str = "", snapshot: bool = False) -> None:
        """Begin a transaction; roll back an open one.

        Args:
            mode: isolation level; empty: the session's own.
            snapshot: whether it sees the state of now, not of its first statement.
        """
        self.leave()
        self._run(f"SET TRANSACTION ISOLATION LEVEL {mode or self._mode}")
        self._run("START TRANSACTION" + (" WITH CONSISTENT SNAPSHOT" if snapshot else ""))
        self._open, self._broken = True, False

    def leave(self) -> None:
        """Roll back an open transaction: DDL would commit it."""
        if self._open:
            self._run("ROLLBACK")
        self._open = False

    def define(self, statement: str) -> None:
        """Run a DDL statement, which MySQL commits at once."""
        self.leave()
        self._run(statement)

    def commit(self) -> None:
        """Commit.

        Raises:
            DestinationError: a statement of the transaction failed (MySQL would commit the others); or the server has ended the
                transaction before, which it reports only by its status.
        """
        if self._broken or not self.raw.server_status & SERVER_STATUS.SERVER_STATUS_IN_TRANS:
            why = "one of its statements failed" if self._broken else "the server ended it before"
            raise DestinationError(f"the transaction cannot be committed: {why}", "nothing was written; run it again")
        self._run("COMMIT")
        self._open = False

    def insert(self, statement: bytes, where: str) -> int:
        """Run an INSERT of literals, and return the number of inserted rows.

        Raises:
            SchemaConflict: the server has changed a value.
        """
        cursor = self._run(statement)
        if cursor.warning_count:
            row = self._run("SHOW WARNINGS LIMIT 1").fetchone()  # None with max_error_count = 0
            text = f": {row[2]} ({row[1]})" if row else ""
            raise SchemaConflict(
                f"{where}: the server would change a value{text}; nothing was written",
                "change the column's type, or declare another one under `columns`",
            )
        return int(cursor.rowcount)

    def _run(self, statement: str | bytes) -> Any:
        cursor, until = self.raw.cursor(), monotonic() + self._wait
        self._marked = self._marked or (isinstance(statement, str) and _STAYS.match(statement) is not None)
        try:
            while True:
                try:
                    cursor.execute(statement)
                    break
                except pymysql.err.Error as error:
                    if error.args[:1] != (CHANGING,) or monotonic() > until:
                        raise
                    sleep(0.02)
        except pymysql.err.Error:
            self._broken = True
            raise
        except RuntimeError as error:
            self._broken = True
            raise unwilling(error, "the database server") from None
        return cursor


def unwilling(error: RuntimeError, server: str) -> DestinationError:
    """Return the error of a request that PyMySQL does not support.

    Either the server requested a file, which any server can do instead of a response; or the package for its method of
    authentication is missing.
    """
    if "LOAD_LOCAL" in str(error):
        return DestinationError(
            f"{server} requested a file of this machine instead of responding; no file was sent",
            "check which server runs at that address: kpipe never sends LOAD DATA LOCAL",
        )
    return DestinationError(f"{server}: {error}", "install the missing package, or change the account's authentication method")


def bound(statement: str, parameters: Sequence[Any]) -> str:
    """Replace the parameters of a statement with literals: MySQL has parameters in prepared statements only."""
    texts = [literal(value) for value in parameters]
    return _TOKEN.sub(lambda found: texts[int(found[1]) - 1] if found[1] else found[0], statement) if texts else statement


def literal(value: Any) -> str:
    """Return a value as an SQL literal."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, (int, Decimal)):
        return str(value)
    if isinstance(value, float):
        return f"{value!r}e0" if "e" not in repr(value) else repr(value)
    if isinstance(value, bytes):
        return f"x'{value.hex()}'"
    if isinstance(value, datetime):
        utc = value.astimezone(timezone.utc).replace(tzinfo=None) if value.tzinfo is not None else value
        return f"'{utc.isoformat(' ', 'microseconds')}'"
    if isinstance(value, (date, time)):
        return f"'{value.isoformat()}'"
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "''") + "'"
    msg = f"no literal for {type(value).__name__}"
    raise TypeError(msg)
