"""Insert the writes of a batch with a key into one temporary table."""

# ruff: noqa: S608 - names in statements are constants or quoted, values are always parameters
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kpipe.schema.columns import Type
from resources.destinations.mysql import insert_literals, text_lengths
from resources.destinations.mysql.session import Session
from resources.destinations.mysql.sql_dialect import MySQLDialect
from resources.destinations.sql.column_matching import Match
from resources.destinations.sql.ledger.history_tables import RANGES
from resources.destinations.sql.merge.keyed_batch import KeyedBatch
from resources.destinations.sql.merge.merge_staging import EMPTIED, GONE, KEPT, PLACE, RECORD, collect
from resources.destinations.sql.sql_dialect import quote

__all__ = ["EPOCHS", "FATES", "FOLDED", "ID", "MARKS", "MET", "ROWS", "TOUCHED", "WRITES", "copy", "duplicates"]

WRITES, MET, FATES, FOLDED, ROWS = "kpipe_writes", "kpipe_met", "kpipe_fates", "kpipe_folded", "kpipe_rows"
TOUCHED, EPOCHS, MARKS = "kpipe_touched", "kpipe_epochs", "kpipe_marks"
ID = '"kpipe: id"'
_KINDS = {"key": "LONGBLOB", "value": "LONGBLOB", "headers": "LONGTEXT"}


def duplicates(dialect: MySQLDialect) -> str:
    """Return a `SELECT` of the records whose rows were duplicates, as staged dead letters for `history_tables.letters`."""
    return (
        'SELECT r.topic, w._kafka_partition AS "partition", w._kafka_offset AS "offset", w._kafka_timestamp AS "timestamp",'
        f' w.{RECORD["key"]} AS "key", w.{RECORD["value"]} AS "value", w.{RECORD["headers"]} AS headers,'
        " 'duplicate_key' AS stage, 'a row of the same key is in the table' AS reason"
        f" FROM {FATES} AS f JOIN {WRITES} AS w ON w.{ID} = f.wid JOIN ({dialect.rows(RANGES, 7)}) AS r"
        " ON r.number = w._kafka_partition AND (f.tn = '' OR f.tn = r.topic) WHERE f.fate = 'duplicate'"
    )


def copy(session: Session, reader: Any, batch: KeyedBatch) -> list[str]:
    """Create `kpipe_writes`, which is dropped with the connection. For arguments, result and errors see `collect`.

    Raises:
        SchemaConflict: the table does not accept a value.
    """
    # Another table of the same commit may have left some.
    session.execute(f"DROP TEMPORARY TABLE IF EXISTS {WRITES}, {MET}, {FATES}, {FOLDED}, {ROWS}, {TOUCHED}, {EPOCHS}, {MARKS}")
    made = [
        f"{ID} BIGINT AUTO_INCREMENT PRIMARY KEY",
        f"{GONE} BOOLEAN",
        f"{PLACE} BIGINT",
        f"{KEPT} LONGTEXT",
        f"{EMPTIED} BOOLEAN",
    ]
    made += [f"{RECORD[name]} {kind}" for name, kind in _KINDS.items()]
    # Keys without the lengths of their columns: a delete of a longer key matches no row.
    most = {name: limit for name, limit in text_lengths.limits(session, batch.table).items() if name in batch.key}
    made += [f"{quote(name)} {limit.wide}" for name, limit in most.items()]
    # From the table, to get its types and collations; from an outer join, so that all columns are nullable.
    session.execute(
        f"CREATE TEMPORARY TABLE {WRITES} ({', '.join(made)}) ENGINE=InnoDB CHARACTER SET utf8mb4 AS"
        f" SELECT {', '.join(f't.{quote(name)}' for name in batch.known.names())} FROM (SELECT 1 AS one) AS o"
        f" LEFT JOIN {quote(batch.table)} AS t ON false WHERE o.one = 0"
    )

    def put(into: Sequence[str], first: Sequence[tuple[str, Type]], matches: Sequence[Match], paths: Sequence[str]) -> int:
        fields = [
            *(insert_literals.filled(value, kind) for value, kind in first),
            *(insert_literals.field(match) for match in matches),
        ]
        return insert_literals.insert(session, reader, WRITES, into, fields, paths, f"table {batch.table}")

    carried = collect(session, reader, WRITES, batch, put)
    text_lengths.check_keys(session, WRITES, batch.table, most)
    return carried
