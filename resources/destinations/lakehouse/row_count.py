"""Count the rows and dead letters of a table again, and compare them with the ledgers of all its pipelines."""

from __future__ import annotations

from collections.abc import Sequence

from kpipe.schema.columns import Columns
from kpipe.verification.recount import adopted
from kpipe.verification.verify import Recount
from resources.destinations.lakehouse import balance, commit_log
from resources.destinations.lakehouse import ledger_file as records
from resources.destinations.lakehouse import ledger_tables as tables
from resources.destinations.lakehouse.ledger_file import Record
from resources.destinations.lakehouse.table_format import State, Table
from resources.destinations.sql.ledger import recount as counting

__all__ = ["count_again"]


def count_again(lake: Table, table: str, pipeline: str, state: State, record: Record, key: Sequence[str], where: str) -> Recount:
    """Count at one version of the table.

    Args:
        lake: the table.
        table: its name.
        pipeline: name of the pipeline.
        state: the version.
        record: of the pipeline.
        key: key columns; none: duplicate keys are not counted.
        where: for messages.

    Raises:
        LedgerMismatch: a file of a ledger is missing; see `at_one_version`.
    """
    mine = list(commit_log.items(lake.ledger, record))
    writers = []
    with tables.desk(lake.ledger, mine) as (connection, files):
        for other in records.read_all(lake.ledger, state.pointer, where):
            writers.append(other)
            tables.lay_commits(connection, commit_log.items(lake.ledger, other), table)
        tables.lay_dead_letters(connection, mine, files, lake.place)
        tables.lay_balance(connection, balance.total(writers), table)
        folded = {"_kafka_partition", "_kafka_offset", "_kafka_topic", *(name.lower() for name in key)}
        held = Columns(tuple((name, kind) for name, kind in state.columns if name.lower() in folded))
        connection.register(table, lake.rows(state, list(held.names())))
        foreign = adopted([writer.ledger for writer in writers])
        found = counting.recount(connection, tables.DIALECT, pipeline, table, held, key, adopted=foreign)
        return Recount({table: found}, counting.dead_letters(connection, pipeline))
