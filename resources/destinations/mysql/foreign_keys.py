"""Find out whether a replaced row may be deleted and inserted, which deletes rows of other tables by ON DELETE CASCADE.

Only accounts with the right PROCESS see all foreign keys: `information_schema.referential_constraints` hides those of tables on
which the account has no rights.
"""

# ruff: noqa: S608 - names in statements are constants, values are always parameters
from __future__ import annotations

import re
from collections.abc import Sequence

from resources.destinations.mysql.session import Session

__all__ = ["has_other_unique", "refer"]


def has_other_unique(session: Session, table: str, key: Sequence[str]) -> bool:
    """Return whether values of a UNIQUE index can move between rows, which no single UPDATE can do: it lacks a key column."""
    names = ", ".join(f"${at + 2}" for at in range(len(key)))
    row = session.execute(
        "SELECT index_name FROM information_schema.statistics"
        " WHERE table_schema = database() AND table_name = $1 AND non_unique = 0 GROUP BY index_name"
        f" HAVING sum(CASE WHEN column_name IN ({names}) THEN 1 ELSE 0 END) < {len(key):d} LIMIT 1",
        [table, *key],
    ).fetchone()
    return row is not None


def refer(session: Session, table: str) -> bool | None:
    """Return whether a foreign key refers to the table; None: the account lacks the right to see it."""
    view = "innodb_sys_foreign" if session.maria else "innodb_foreign"
    # InnoDB encodes characters of names as in file names. A pattern that also fits another table only forbids the delete.
    name = "/".join(re.sub(r"[^0-9A-Za-z_]", "%", part) for part in (session.database, table))
    found = session.permitted(
        f"SELECT 1 FROM information_schema.{view} WHERE lower(ref_name) LIKE lower($1) LIMIT 1",
        [name],
    )
    return None if found is None else bool(found)
