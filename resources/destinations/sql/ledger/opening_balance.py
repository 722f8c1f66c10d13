"""Count a table before its first commit with a key: the opening of the balance that each commit then changes (row_balance.py)."""

# ruff: noqa: S608 - names in statements are constants or quoted, values are always parameters
from __future__ import annotations

from collections.abc import Mapping, Sequence

from kpipe.topics import Part, in_order
from kpipe.verification.clearing import CLEARED
from kpipe.verification.verify import Holding
from resources.destinations.sql.ledger.adopted import adopted_offsets, foreign, is_alone
from resources.destinations.sql.ledger.multi_table import WRITTEN
from resources.destinations.sql.ledger.row_balance import NOWHERE, TOPIC, counted, known, named
from resources.destinations.sql.ledger.table_definitions import HOLDINGS
from resources.destinations.sql.sql_dialect import Connection, Dialect

__all__ = ["begin", "has_unplaced", "opening"]


def begin(connection: Connection, dialect: Dialect, pipeline: str, table: str, names: Sequence[str] | None) -> None:
    """Count the table before the first commit with a key changes it. Do nothing at later commits.

    The baseline of the balance is its number of rows minus those in the ledger: rows of other programs; see `opening`.

    Args:
        connection: inside the transaction of the commit.
        dialect: of the database.
        pipeline: that commits.
        table: name of the table.
        names: of its columns; None: the table does not exist yet.
    """
    if known(connection, table):
        return
    found = counted(connection, dialect, table, names) if names is not None else {}
    folded = {name.lower() for name in names or ()}
    rows, sums = _written_by_part(connection, table)
    others: Mapping[Part, Holding] = {}
    relation = dialect.name(table)
    placed = {"_kafka_partition", "_kafka_offset"} <= folded
    if not placed or has_unplaced(connection, relation):
        sums = {}
    if placed:
        before = adopted_offsets(connection, dialect, pipeline, table)
        alone = is_alone(before, rows)
        others = foreign(connection, relation, TOPIC in folded, before, alone) if alone or TOPIC in folded else {}
    numbered = names is None or "_kafka_partition" in folded
    held, baseline = opening(found, rows, numbered, sums, others)
    for name, item in held.items():
        topic, number = in_order(name)
        connection.execute(
            f"INSERT INTO {HOLDINGS.sql} VALUES (lower($1), $2, $3, $4, $5, $6)",
            [table, topic, number, item.rows, item.offsets, baseline if name == NOWHERE else 0],
        )


def opening(
    found: Mapping[Part, Holding],
    written: Mapping[Part, int],
    numbered: bool,
    sums: Mapping[Part, int] | None = None,
    others: Mapping[Part, Holding] | None = None,
) -> tuple[dict[Part, Holding], int]:
    """Return balance and baseline of a table before the first commit with a key.

    Rows of the ledger that are missing in the table stay in the balance, with their offsets: they are reported until they are
    restored. Where rows of a number do not name their topic, all rows of that number are compared together.

    Args:
        found: rows of the table, by partition.
        written: rows that batches have inserted and not deleted, by topic and partition.
        numbered: whether rows name their partition; otherwise the baseline is negative if rows are missing.
        sums: sums of the offsets of these rows, by topic and partition, where they are known.
        others: rows at offsets that another loader has read, by partition as in `found`, which has them, too.
    """
    held: dict[Part, Holding] = {NOWHERE: Holding(), **found}
    places: dict[Part, list[Part]] = {}
    for name in written if numbered else ():
        number = in_order(name)[1]
        places.setdefault(number if number in found else name, []).append(name)
    for place, names in places.items():
        same = [
            item.less((others or {}).get(other, Holding()))
            for other, item in found.items()
            if other == place or in_order(other)[1] == place
        ]
        missing = sum(written[name] for name in names) - sum(item.rows for item in same)
        if missing < 0:
            continue  # beside rows of others
        known, offsets = held.get(place, Holding()), 0
        if sums and all(name in sums for name in names):
            offsets = sum(sums[name] for name in names) - sum(item.offsets for item in same)
        held[place] = Holding(known.rows + missing, known.offsets + offsets)
    return held, sum(item.rows for item in held.values()) - sum(written.values())


def has_unplaced(connection: Connection, relation: str) -> bool:
    """Return whether rows of a partition have no offset, as output of a program: then sums of offsets do not show lost rows."""
    found = f"SELECT 1 FROM {relation} AS t WHERE t._kafka_partition IS NOT NULL AND t._kafka_offset IS NULL LIMIT 1"
    return bool(connection.execute(found).fetchall())


def _written_by_part(connection: Connection, table: str) -> tuple[dict[Part, int], dict[Part, int]]:
    """Return the rows that batches have inserted and not deleted, and the sums of their offsets where all ranges have one.

    Of ranges from before the table was cleared, no row is left to have an offset.
    """
    live = "seq > coalesce(since, 0)"
    rows = connection.execute(
        "WITH kpipe_cleared AS (SELECT pipeline_name AS reader, max(seq) AS since"
        f"  FROM {WRITTEN} AS g WHERE closed_by = '{CLEARED}' AND lower(target_table) = lower($1) GROUP BY pipeline_name)"
        " SELECT topic, batch_source_partition_id, sum(inserted) - sum(deleted),"
        f" CASE WHEN count(CASE WHEN {live} THEN twice END) = sum(CASE WHEN {live} THEN 1 ELSE 0 END)"
        f"  THEN coalesce(sum(CASE WHEN {live} THEN twice END), 0) END"
        f" FROM {WRITTEN} AS w LEFT JOIN kpipe_cleared AS c ON c.reader = pipeline_name"
        " WHERE lower(target_table) = lower($1) GROUP BY topic, batch_source_partition_id",
        [table],
    ).fetchall()
    return (
        {named(topic, number): int(count) for topic, number, count, _ in rows},
        {named(topic, number): int(twice) // 2 for topic, number, _, twice in rows if twice is not None},
    )
