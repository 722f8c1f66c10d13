"""Copy the writes of a batch with a key into one temporary table."""

# ruff: noqa: S608 - names in statements are constants or quoted, values are always parameters
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg

from kpipe.schema.columns import Type
from resources.destinations.postgres import target_table, text_lengths
from resources.destinations.postgres.connection import Session
from resources.destinations.sql import csv_copy
from resources.destinations.sql.column_matching import Match
from resources.destinations.sql.merge.keyed_batch import KeyedBatch
from resources.destinations.sql.merge.merge_staging import EMPTIED, GONE, KEPT, PLACE, RECORD, collect
from resources.destinations.sql.sql_dialect import quote

__all__ = ["DUPLICATES", "EPOCHS", "FATES", "FOLDED", "MARKS", "ROWS", "TOUCHED", "WRITES", "copy"]

WRITES, FATES = "pg_temp.kpipe_writes", "pg_temp.kpipe_fates"
FOLDED, ROWS, TOUCHED = "pg_temp.kpipe_folded", "pg_temp.kpipe_rows", "pg_temp.kpipe_touched"
EPOCHS, MARKS = "pg_temp.kpipe_epochs", "pg_temp.kpipe_marks"
_KINDS = {"key": "bytea", "value": "bytea", "headers": "json"}

#: Selects the records whose rows were duplicates, in the columns of staged dead letters. $7 and $8 are the topics and partitions
#: of the batch. It works until the transaction ends.
DUPLICATES = (
    "SELECT coalesce(nullif(f.tn, ''), ($7::VARCHAR[])[array_position($8::INTEGER[], w._kafka_partition)]) AS topic,"
    " w._kafka_partition AS partition,"
    f' w._kafka_offset AS "offset", w._kafka_timestamp AS "timestamp", w.{RECORD["key"]} AS key,'
    f" w.{RECORD['value']} AS value, w.{RECORD['headers']} AS headers, 'duplicate_key' AS stage,"
    f" 'a row of the same key is in the table' AS reason FROM {WRITES} AS w JOIN {FATES} AS f ON f.wid = w.ctid"
    " WHERE f.fate = 'duplicate' ORDER BY f.tn, f.p, f.o, f.place"
)


def copy(session: Session, reader: Any, batch: KeyedBatch) -> list[str]:
    """Create `kpipe_writes`, which is dropped when the transaction ends. For arguments, result and errors see `collect`.

    If the rule has expressions, columns that the rows do not fill get the table's defaults: an inserted row has these values,
    and an update expression reads them.

    Raises:
        SchemaConflict: PostgreSQL does not accept a value.
    """
    # Another table of the same commit may have left some.
    session.execute(f"DROP TABLE IF EXISTS {WRITES}, {FATES}, {FOLDED}, {ROWS}, {TOUCHED}, {EPOCHS}, {MARKS}")
    originals = [f"NULL::{kind} AS {RECORD[name]}" for name, kind in _KINDS.items()]
    most = text_lengths.limits(session, batch.table)
    # From the table, to get its collations: texts of different collations cannot be compared. Keys without its limits of texts: a
    # delete of a longer key matches no row, and COPY would cut blanks off of the key.
    keys = {name.lower() for name in batch.key} & {name.lower() for name in most}
    columns = [f"{quote(name)}::text AS {quote(name)}" if name.lower() in keys else quote(name) for name in batch.known.names()]
    session.execute(
        f"CREATE TEMP TABLE kpipe_writes ON COMMIT DROP AS SELECT NULL::boolean AS {GONE}, NULL::bigint AS {PLACE},"
        f" NULL::text AS {KEPT}, NULL::boolean AS {EMPTIED},"
        f" {', '.join([*originals, *columns])} FROM {quote(batch.table)} WITH NO DATA"
    )
    if batch.rule.update:
        for name, value in target_table.defaults(session, batch.table).items():
            session.execute(f"ALTER TABLE {WRITES} ALTER COLUMN {quote(name)} SET DEFAULT {value}")

    deletes = {file.path for file in batch.files.deletes}

    def put(into: Sequence[str], first: Sequence[tuple[str, Type]], matches: Sequence[Match], paths: Sequence[str]) -> int:
        if deletes.isdisjoint(paths):
            text_lengths.check_files(reader, batch.table, most, matches, paths)
        fields = [csv_copy.filled(value, kind) for value, kind in first]
        try:
            return session.copy(
                f"COPY {WRITES} ({', '.join(into)}) FROM STDIN (FORMAT csv)",
                csv_copy.blocks(reader, csv_copy.lines(matches, first=fields), [list(paths)]),
            )
        except psycopg.DataError as error:
            raise target_table.explained(error, reader, matches, paths, batch.table) from error

    carried = collect(session, reader, WRITES, batch, put)
    session.execute(f"ANALYZE {WRITES}")
    return carried
