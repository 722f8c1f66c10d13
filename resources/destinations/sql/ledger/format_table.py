"""Read and upgrade the format of the ledger's tables, which `kpipe_format` records (kpipe/ledger/format_version.py)."""

# ruff: noqa: S608 - names in statements are constants or quoted, values are always parameters
from __future__ import annotations

from collections.abc import Callable

from kpipe.ledger import format_version
from resources.destinations.sql.ledger import table_definitions
from resources.destinations.sql.ledger.table_definitions import FORMAT, LANES
from resources.destinations.sql.sql_dialect import Connection, Dialect

__all__ = ["STEPS", "check", "present", "upgrade", "version"]

_NAME = "ledger"


def _add_tails(connection: Connection, dialect: Dialect) -> None:
    dialect.add_column(connection, LANES.name, "tail", LANES.columns["tail"])


#: By the format that each step upgrades from. A step runs in the transaction of a commit. In MySQL, DDL commits at once, so a
#: step with DDL must be repeatable after each statement, and begins another transaction.
STEPS: dict[int, Callable[[Connection, Dialect], None]] = {0: format_version.unchanged, 1: _add_tails}


def present(connection: Connection, dialect: Dialect, exists: Callable[[str], bool]) -> bool:
    """Return whether the ledger's tables exist, in a format that this kpipe can read. Not inside of a transaction.

    Args:
        connection: for reading.
        dialect: of the database.
        exists: whether there is a table of that name.

    Raises:
        LedgerMismatch: only some of them exist.
        FormatTooNew: a newer kpipe has written them.
    """
    if not table_definitions.present(exists):
        return False
    check(connection, dialect, exists)
    return True


def check(connection: Connection, dialect: Dialect, exists: Callable[[str], bool]) -> None:
    """Reject tables that a newer kpipe has written; see `present`."""
    if exists(FORMAT.name):
        version(connection, dialect)


def upgrade(connection: Connection, dialect: Dialect, there: bool = True) -> None:
    """Upgrade the ledger's tables to the current format, inside the transaction of a commit.

    The row is locked against changes until the transaction ends, so no newer kpipe upgrades tables that a commit writes to.

    Args:
        connection: in a transaction.
        dialect: of the database.
        there: whether the table `kpipe_format` exists.

    Raises:
        FormatTooNew: a newer kpipe has written them.
    """
    if not there:
        connection.execute(FORMAT.ddl(dialect))
    found = version(connection, dialect, lock=dialect.share)
    older = format_version.UNVERSIONED if found is None else found
    if older == format_version.FORMAT_VERSION:
        return
    for step in format_version.pending(older, STEPS):
        step(connection, dialect)
    if found is None:
        FORMAT.insert(connection, dialect, [{"name": _NAME, "version": format_version.FORMAT_VERSION}])
        return
    # A step with DDL may have given up the lock.
    statement = f"UPDATE {FORMAT.sql} SET version = $1 WHERE name = $2 AND version = $3"
    if not dialect.change(connection, statement, [format_version.FORMAT_VERSION, _NAME, found]):
        version(connection, dialect, lock=dialect.share)


def version(connection: Connection, dialect: Dialect, more: str = "", lock: str = "") -> int | None:
    """Return the format that the tables record, or None if they record no format.

    Args:
        connection: for reading.
        dialect: of the database.
        more: further columns of the query, as SQL.
        lock: clause that locks the row.

    Raises:
        FormatTooNew: a newer kpipe has written them.
    """
    row = connection.execute(f"SELECT version{more} FROM {FORMAT.sql} WHERE name = $1{lock}", [_NAME]).fetchone()
    if row is None:
        return None
    if row[0] > format_version.FORMAT_VERSION:
        format_version.check(row[0], str(connection.execute(f"SELECT {dialect.place}").fetchone()[0]))
    return int(row[0])
