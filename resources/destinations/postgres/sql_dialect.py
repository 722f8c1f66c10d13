"""Find and create the ledger's tables in a schema, and define PostgreSQL's SQL."""

from __future__ import annotations

from kpipe.errors import SchemaConflict
from resources.destinations.postgres.connection import Session
from resources.destinations.sql.ledger import format_table, table_definitions
from resources.destinations.sql.sql_dialect import Dialect, quote

__all__ = ["DIALECT", "THIS", "create", "exists", "keep_out", "present", "take_turns"]

DIALECT = Dialect(
    schema="",  # a session sees one schema
    create_view="CREATE OR REPLACE VIEW ",
    same_name="{0} = {1}",
    micros="(extract(epoch FROM {0}) * 1000000)::BIGINT",
    # width_bucket is a binary search in the ranges of a partition; a join on both bounds would compare every row with each.
    hits=(
        "SELECT r.id, x.at, x.n FROM ("
        "  SELECT b.ids[width_bucket(t._kafka_offset, b.starts)] AS id, t._kafka_offset AS at, count(*) AS n"
        "  FROM {table} AS t JOIN (SELECT batch_source_partition_id, topic,"
        "    array_agg(batch_earliest_offset ORDER BY batch_earliest_offset) AS starts,"
        "    array_agg(id ORDER BY batch_earliest_offset) AS ids FROM kpipe_ranges"
        "    GROUP BY batch_source_partition_id, topic) AS b"
        "  ON t._kafka_partition = b.batch_source_partition_id {topic}"
        "  WHERE t._kafka_offset >= b.starts[1] GROUP BY 1, 2) AS x"
        " JOIN kpipe_ranges AS r ON r.id = x.id WHERE x.at < r.batch_latest_offset"
    ),
    lock=" FOR UPDATE",
    share=" FOR SHARE",
    place="concat('PostgreSQL database ', current_database(), ', schema ', current_schema())",
    types={"HEADERS": "JSON"},  # not JSONB, which rejects a NUL in a header's name
)
#: The table whose name is $1, in the schema of kpipe's tables.
THIS = "(SELECT oid FROM pg_class WHERE relname = $1 AND relnamespace = current_schema()::regnamespace)"

# Queries of runs, sensors and views stay fast with many commits.
_INDEXES = (
    "CREATE INDEX IF NOT EXISTS kpipe_commits_waiting ON kpipe_commits (pipeline_name, seq)"
    " WHERE published_at IS NULL AND metadata IS NOT NULL",
    "CREATE INDEX IF NOT EXISTS kpipe_batches_order ON kpipe_batches (pipeline_name, seq)",
    "CREATE INDEX IF NOT EXISTS kpipe_errors_order ON kpipe_errors (pipeline_name, error_id)",
)
_KINDS = {"v": "a view", "m": "a materialized view", "f": "a foreign table", "S": "a sequence", "c": "a type", "i": "an index"}


def exists(session: Session, name: str) -> bool:
    """Return whether the schema has a table of that name.

    Raises:
        SchemaConflict: the name is another object, or a table of which a crash of the server would empty all or a partition.
    """
    row = session.execute(
        "SELECT p.relkind, p.relpersistence, CASE WHEN p.relkind = 'p' THEN (SELECT min(c.relname::text)"
        "  FROM pg_partition_tree(p.oid) AS t JOIN pg_class AS c ON c.oid = t.relid"
        "  WHERE c.relpersistence <> 'p' OR c.relkind = 'f') END"
        " FROM pg_class AS p WHERE p.relname = $1 AND p.relnamespace = current_schema()::regnamespace",
        [name],
    ).fetchone()
    if row is None:
        return False
    kind, persistence = (value.decode() if isinstance(value, bytes) else value for value in row[:2])
    if kind not in ("r", "p"):
        raise SchemaConflict(f"{name}: not a table: found {_KINDS.get(kind, 'another object')}", "set into.table to a table")
    if persistence != "p":
        raise SchemaConflict(
            f"table {name} is UNLOGGED: a crash of the server would empty it, but not the ledger",
            f'ALTER TABLE "{name}" SET LOGGED',
        )
    if row[2] is not None:
        raise SchemaConflict(
            f"table {name}: partition {row[2]} is UNLOGGED or a foreign table: its rows could be lost or stay alone, without the"
            " ledger",
            f'ALTER TABLE "{row[2]}" SET LOGGED, or ALTER TABLE "{name}" DETACH PARTITION "{row[2]}"',
        )
    return True


def present(session: Session) -> bool:
    """Return whether the ledger's tables exist.

    Raises:
        LedgerMismatch: only some of them exist.
        FormatTooNew: a newer kpipe has written them.
    """
    return format_table.present(session, DIALECT, lambda name: exists(session, name))


def create(session: Session) -> None:
    """Create missing tables and views of the ledger, inside the current transaction; one transaction at a time."""
    take_turns(session, "")
    table_definitions.create(session, DIALECT)
    for statement in _INDEXES:
        session.execute(statement)
    format_table.upgrade(session, DIALECT)


def keep_out(session: Session, table: str) -> None:
    """Lock the table against other writers until the transaction ends, so that a join by key stays valid; all may read it.

    A policy of row security would hide rows from the join: with `row_security` off, PostgreSQL raises an error instead.

    Raises:
        SchemaConflict: another table's name differs from this one in case only, so both would share one balance.
    """
    session.execute("SELECT set_config('row_security', 'off', true)")
    session.execute(f"LOCK TABLE {quote(table)} IN SHARE ROW EXCLUSIVE MODE")
    other = session.execute(
        "SELECT relname FROM pg_class WHERE lower(relname) = lower($1) AND relname <> $1 AND relkind IN ('r', 'p')"
        " AND relnamespace = current_schema()::regnamespace",
        [table],
    ).fetchone()
    if other is not None:
        raise SchemaConflict(
            f"tables {table} and {other[0]}: names differ in case only, which into.key does not support", "rename one"
        )


def take_turns(session: Session, pipeline: str) -> None:
    """Wait until no other transaction that has called this for the pipeline is in flight.

    Fencing does not depend on it, but on the compare-and-swap and the lock of the pipeline's row. It waits for a commit whose
    response was lost, and keeps a late run from copying rows in vain. The lock ends with the transaction.
    """
    session.execute(
        "SELECT pg_advisory_xact_lock(hashtextextended('kpipe:' || current_schema() || ':' || $1::text, 0))", [pipeline]
    )
