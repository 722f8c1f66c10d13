"""Find the indexes, constraints and dependent objects of a table, and copy its privileges."""

# ruff: noqa: S608 - names in statements are constants or quoted, values are always parameters
from __future__ import annotations

from collections.abc import Sequence

from resources.destinations.postgres.connection import Session
from resources.destinations.sql.sql_dialect import quote

__all__ = ["grant_as", "lost_by_exchange"]

_TABLE = "(SELECT oid FROM pg_class WHERE relname = $1 AND relnamespace = current_schema()::regnamespace)"
#: Objects that follow a table when it is renamed.
_DEPENDENT = (
    "SELECT DISTINCT 'view ' || c.oid::regclass::text FROM pg_depend AS d JOIN pg_rewrite AS r ON r.oid = d.objid"
    " JOIN pg_class AS c ON c.oid = r.ev_class WHERE d.classid = 'pg_rewrite'::regclass"
    f" AND d.refclassid = 'pg_class'::regclass AND d.refobjid = {_TABLE} AND c.oid <> d.refobjid"
    f" UNION ALL SELECT 'foreign key ' || conname FROM pg_constraint WHERE contype = 'f' AND confrelid = {_TABLE}"
    f" UNION ALL SELECT 'trigger ' || tgname FROM pg_trigger WHERE tgrelid = {_TABLE} AND NOT tgisinternal"
    f" UNION ALL SELECT 'policy ' || polname FROM pg_policy WHERE polrelid = {_TABLE}"
    " UNION ALL SELECT 'publication ' || pubname FROM pg_publication_rel AS r JOIN pg_publication AS p ON p.oid = r.prpubid"
    f" WHERE r.prrelid = {_TABLE} ORDER BY 1"
)
#: Indexes, constraints and defaults by what they do, without their names and the table's.
_OWN = (
    "SELECT regexp_replace(pg_get_indexdef(indexrelid), 'INDEX .+ ON .+ USING', 'INDEX USING') FROM pg_index"
    f" WHERE indrelid = {_TABLE} UNION SELECT pg_get_constraintdef(oid) FROM pg_constraint"
    f" WHERE contype IN ('c', 'p', 'u', 'x', 'f') AND conrelid = {_TABLE}"
    " UNION SELECT 'default of column ' || a.attname || ': ' || pg_get_expr(d.adbin, d.adrelid) FROM pg_attrdef AS d"
    f" JOIN pg_attribute AS a ON a.attrelid = d.adrelid AND a.attnum = d.adnum WHERE d.adrelid = {_TABLE}"
    f" UNION SELECT 'NOT NULL of column ' || attname FROM pg_attribute WHERE attrelid = {_TABLE} AND attnotnull"
    " AND attidentity = '' AND attnum > 0 AND NOT attisdropped"
    " UNION SELECT 'identity of column ' || attname FROM pg_attribute"
    f" WHERE attrelid = {_TABLE} AND attidentity <> '' AND NOT attisdropped ORDER BY 1"
)


def lost_by_exchange(connection: Session, live: str, rebuilt: str) -> Sequence[str]:
    """Return what would stay with the live table, or what the rebuilt one does not have, as text."""
    dependent = [text for (text,) in connection.execute(_DEPENDENT, [live]).fetchall()]
    mine, theirs = ([text for (text,) in connection.execute(_OWN, [name]).fetchall()] for name in (live, rebuilt))
    return [*dependent, *(text for text in mine if text not in theirs)]


def grant_as(connection: Session, live: str, rebuilt: str) -> None:
    """Grant the privileges of the live table on the rebuilt one."""
    rows = connection.execute(
        "SELECT CASE WHEN a.grantee = 0 THEN '' ELSE pg_get_userbyid(a.grantee)::text END, a.privilege_type, a.is_grantable"
        f" FROM pg_class AS c, aclexplode(c.relacl) AS a WHERE c.oid = {_TABLE} AND a.grantee <> c.relowner",
        [live],
    ).fetchall()
    for grantee, privilege, grantable in rows:
        if not privilege.isalpha():
            continue
        to = quote(grantee) if grantee else "PUBLIC"
        connection.execute(f"GRANT {privilege} ON {quote(rebuilt)} TO {to}{' WITH GRANT OPTION' if grantable else ''}")
