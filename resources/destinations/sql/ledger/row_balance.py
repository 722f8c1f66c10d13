"""Keep the balance of a table with a key: its number of rows and the sum of their offsets, by partition.

A row with a key may be replaced and deleted later, so the ranges of the ledger do not define the rows of the table. The balance
does: each commit changes it in its transaction by the rows that it removes and adds (docs/design.md, section 11).
"""

# ruff: noqa: S608 - names in statements are constants or quoted, values are always parameters
from __future__ import annotations

from collections.abc import Mapping, Sequence

from kpipe.schema.columns import VARCHAR, Columns
from kpipe.topics import Part, in_order
from kpipe.verification.verify import Holding, Keeping
from resources.destinations.sql.ledger.multi_table import WRITTEN
from resources.destinations.sql.ledger.table_definitions import HOLDINGS
from resources.destinations.sql.sql_dialect import Connection, Dialect, quote

__all__ = ["NOWHERE", "TOPIC", "counted", "kept", "known", "move", "named", "written"]

NOWHERE = -1  #: partition of rows that kpipe has not written
TOPIC = "_kafka_topic"

# Rows that batches have inserted and not deleted, of the table with the name $1.
_WRITTEN = f"coalesce((SELECT sum(inserted) - sum(deleted) FROM {WRITTEN} AS w WHERE lower(target_table) = lower($1)), 0)"


def known(connection: Connection, table: str) -> bool:
    """Return whether some pipeline writes the table with a key."""
    return bool(connection.execute(f"SELECT 1 FROM {HOLDINGS.sql} WHERE target_table = lower($1) LIMIT 1", [table]).fetchall())


def move(connection: Connection, dialect: Dialect, table: str, delta: Mapping[Part, Holding]) -> None:
    """Add rows to the balance, by partition; negative numbers remove them."""
    for name, item in delta.items():
        topic, number = in_order(name)
        changed = dialect.change(
            connection,
            f'UPDATE {HOLDINGS.sql} SET "rows" = "rows" + $1, offsets = offsets + $2 WHERE target_table = lower($3)'
            ' AND topic = $4 AND "partition" = $5',
            [item.rows, item.offsets, table, topic, number],
        )
        if not changed:
            connection.execute(
                f"INSERT INTO {HOLDINGS.sql} VALUES (lower($1), $2, $3, $4, $5, 0)",
                [table, topic, number, item.rows, item.offsets],
            )


def kept(connection: Connection, dialect: Dialect, table: str, known: Columns, key: Sequence[str]) -> Keeping | None:
    """Return the balance of the commits and the count of the table; None if no pipeline writes it with a key.

    Args:
        connection: inside a read transaction.
        dialect: of the database.
        table: name of the table, which exists.
        known: its columns.
        key: key columns; none: duplicate keys are not counted.
    """
    rows = connection.execute(
        f'SELECT topic, "partition", "rows", offsets, baseline FROM {HOLDINGS.sql} WHERE target_table = lower($1)', [table]
    ).fetchall()
    if not rows:
        return None
    found, repeated = counted(connection, dialect, table, known.names()), 0
    if key and all(name in known for name in key):
        columns = ", ".join(dialect.key_part(quote(name), known.get(name) == VARCHAR) for name in key)
        row = connection.execute(
            f"SELECT count(*) FROM (SELECT 1 FROM {dialect.name(table)} GROUP BY {columns} HAVING count(*) > 1) AS k"
        ).fetchone()
        repeated = int(row[0])
    return Keeping(
        expected={
            named(topic, number): Holding(count, int(offsets)) for topic, number, count, offsets, _ in rows if number != NOWHERE
        },
        found={name: item for name, item in found.items() if name != NOWHERE},
        repeated_keys=repeated,
        unbalanced=sum(count - baseline for _, _, count, _, baseline in rows) - written(connection, table),
        missing=max(0, -sum(baseline for *_, baseline in rows)),
    )


def written(connection: Connection, table: str) -> int:
    """Return how many rows all batches have inserted and not deleted. The ledger's tables must exist."""
    row = connection.execute(f"SELECT {_WRITTEN}", [table]).fetchone()
    return int(row[0])


def named(topic: str, number: int) -> Part:
    """Return the partition of rows that name this topic; an empty topic: the rows do not name it."""
    return f"{topic}:{number}" if topic else number


def counted(connection: Connection, dialect: Dialect, table: str, names: Sequence[str]) -> dict[Part, Holding]:
    """Count the rows of a table and sum their offsets, by partition.

    Args:
        connection: for reading.
        dialect: of the database.
        table: name of the table.
        names: of its columns.
    """
    folded = {name.lower() for name in names}
    number = f"coalesce(_kafka_partition, {NOWHERE})" if "_kafka_partition" in folded else f"{NOWHERE}"
    topic = f"CASE WHEN {number} = {NOWHERE} THEN '' ELSE coalesce({TOPIC}, '') END" if TOPIC in folded else "''"
    offsets = "coalesce(sum(_kafka_offset), 0)" if "_kafka_offset" in folded else "0"
    rows = connection.execute(  # grouped by position: a column of the table may have any name
        f"SELECT {topic} AS topic_name, {number} AS number, count(*), {offsets} FROM {dialect.name(table)} GROUP BY 1, 2"
    ).fetchall()
    return {named(told, number): Holding(count, int(total)) for told, number, count, total in rows}
