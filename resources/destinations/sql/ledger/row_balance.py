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

__all__ = ["NOWHERE", "TOPIC", "begin", "kept", "known", "move", "named", "opening", "written"]

NOWHERE = -1  #: partition of rows that kpipe has not written
TOPIC = "_kafka_topic"

# Rows that batches have inserted and not deleted, of the table with the name $1.
_WRITTEN = f"coalesce((SELECT sum(inserted) - sum(deleted) FROM {WRITTEN} AS w WHERE lower(target_table) = lower($1)), 0)"


def known(connection: Connection, table: str) -> bool:
    """Return whether some pipeline writes the table with a key."""
    return bool(connection.execute(f"SELECT 1 FROM {HOLDINGS.sql} WHERE target_table = lower($1) LIMIT 1", [table]).fetchall())


def begin(connection: Connection, dialect: Dialect, table: str, names: Sequence[str] | None) -> None:
    """Count the table before the first commit with a key changes it. Do nothing at later commits.

    The baseline of the balance is its number of rows minus those in the ledger: rows of other programs; see `opening`.

    Args:
        connection: inside the transaction of the commit.
        dialect: of the database.
        table: name of the table.
        names: of its columns; None: the table does not exist yet.
    """
    if known(connection, table):
        return
    found = _counted(connection, dialect, table, names) if names is not None else {}
    folded = {name.lower() for name in names or ()}
    numbered = names is None or "_kafka_partition" in folded
    rows, sums = _written_by_part(connection, table)
    held, baseline = opening(found, rows, numbered, sums if "_kafka_offset" in folded else {})
    for name, item in held.items():
        topic, number = in_order(name)
        connection.execute(
            f"INSERT INTO {HOLDINGS.sql} VALUES (lower($1), $2, $3, $4, $5, $6)",
            [table, topic, number, item.rows, item.offsets, baseline if name == NOWHERE else 0],
        )


def opening(
    found: Mapping[Part, Holding], written: Mapping[Part, int], numbered: bool, sums: Mapping[Part, int] | None = None
) -> tuple[dict[Part, Holding], int]:
    """Return balance and baseline of a table before the first commit with a key.

    Rows of the ledger that are missing in the table stay in the balance, with their offsets, so that they are reported until
    they are restored. Where rows of a number do not name their topic, all rows of that number are compared together.

    Args:
        found: rows of the table, by partition.
        written: rows that batches have inserted and not deleted, by topic and partition.
        numbered: whether rows name their partition; otherwise the baseline is negative if rows are missing.
        sums: sums of the offsets of these rows, by topic and partition, where they are known.
    """
    held: dict[Part, Holding] = {NOWHERE: Holding(), **found}
    places: dict[Part, list[Part]] = {}
    for name in written if numbered else ():
        number = in_order(name)[1]
        places.setdefault(number if number in found else name, []).append(name)
    for place, names in places.items():
        same = [item for other, item in found.items() if other == place or in_order(other)[1] == place]
        missing = sum(written[name] for name in names) - sum(item.rows for item in same)
        if missing < 0:
            continue  # beside rows of others
        known, offsets = held.get(place, Holding()), 0
        if sums and all(name in sums for name in names):
            offsets = sum(sums[name] for name in names) - sum(item.offsets for item in same)
        held[place] = Holding(known.rows + missing, known.offsets + offsets)
    return held, sum(item.rows for item in held.values()) - sum(written.values())


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
    found, repeated = _counted(connection, dialect, table, known.names()), 0
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


def _written_by_part(connection: Connection, table: str) -> tuple[dict[Part, int], dict[Part, int]]:
    """Return the rows that batches have inserted and not deleted, and the sums of their offsets where all ranges have one."""
    rows = connection.execute(
        "SELECT topic, batch_source_partition_id, sum(inserted) - sum(deleted),"
        f" CASE WHEN count(twice) = count(*) THEN sum(twice) END FROM {WRITTEN} AS w"
        " WHERE lower(target_table) = lower($1) GROUP BY topic, batch_source_partition_id",
        [table],
    ).fetchall()
    return (
        {named(topic, number): int(count) for topic, number, count, _ in rows},
        {named(topic, number): int(twice) // 2 for topic, number, _, twice in rows if twice is not None},
    )


def named(topic: str, number: int) -> Part:
    """Return the partition of rows that name this topic; an empty topic: the rows do not name it."""
    return f"{topic}:{number}" if topic else number


def _counted(connection: Connection, dialect: Dialect, table: str, names: Sequence[str]) -> dict[Part, Holding]:
    folded = {name.lower() for name in names}
    number = f"coalesce(_kafka_partition, {NOWHERE})" if "_kafka_partition" in folded else f"{NOWHERE}"
    topic = f"CASE WHEN {number} = {NOWHERE} THEN '' ELSE coalesce({TOPIC}, '') END" if TOPIC in folded else "''"
    offsets = "coalesce(sum(_kafka_offset), 0)" if "_kafka_offset" in folded else "0"
    rows = connection.execute(  # grouped by position: a column of the table may have any name
        f"SELECT {topic} AS topic_name, {number} AS number, count(*), {offsets} FROM {dialect.name(table)} GROUP BY 1, 2"
    ).fetchall()
    return {named(told, number): Holding(count, int(total)) for told, number, count, total in rows}
