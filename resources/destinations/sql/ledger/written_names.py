"""Remember the tables by a field that a pipeline has written: a query of all of its ranges takes longer with each batch."""

# ruff: noqa: S608 - names in statements are constants or quoted, values are always parameters
from __future__ import annotations

from dataclasses import dataclass

from resources.destinations.sql.ledger import multi_table
from resources.destinations.sql.ledger.table_definitions import BATCHES, COMMITS, PIPELINES, TARGETS
from resources.destinations.sql.sql_dialect import Connection, Dialect

__all__ = ["WrittenNames"]


@dataclass
class WrittenNames:
    """Names of the tables up to a commit of the pipeline. Later commits are read by their number.

    Attributes:
        seq: number of the commit; 0: no names are remembered.
        batch: its id. If the history has another commit of that number, or none, all ranges are read again.
        names: of the tables.
    """

    seq: int = 0
    batch: str = ""
    names: tuple[str, ...] = ()

    def read(self, connection: Connection, dialect: Dialect, pipeline: str) -> list[str]:
        """Return the names, sorted, and remember them.

        Args:
            connection: for reading: it must not see changes that may be rolled back.
            dialect: of the database.
            pipeline: its name.
        """
        # First the commit: names that another commit adds before the next query are read again later.
        row = connection.execute(
            f"SELECT seq, last_batch_id FROM {PIPELINES.sql} WHERE pipeline_name = $1", [pipeline]
        ).fetchone()
        found = self.current(connection, dialect, pipeline)
        if row is not None:
            self.seq, self.batch, self.names = int(row[0]), str(row[1]), tuple(found)
        return found

    def current(self, connection: Connection, dialect: Dialect, pipeline: str) -> list[str]:
        """Return the names, sorted, with those of later commits. Remember nothing."""
        known = f"SELECT 1 FROM {COMMITS.sql} WHERE batch_id = $1 AND pipeline_name = $2 AND seq = $3"
        if not self.seq or not connection.execute(known, [self.batch, pipeline, self.seq]).fetchall():
            return multi_table.targets(connection, dialect, pipeline)
        # Servers have no index of the ranges by table and number, but one of the batches by number, and one of ranges by batch.
        later = f"SELECT b.batch_id FROM {BATCHES.sql} AS b WHERE b.pipeline_name = $1 AND b.seq > $2"
        rows = connection.execute(
            f"SELECT target_table FROM {TARGETS.sql} WHERE pipeline_name = $1 AND NOT (target_table = '') AND seq > $2"
            f" AND batch_id IN ({later}) GROUP BY target_table ORDER BY max(seq), target_table",
            [pipeline, self.seq],
        ).fetchall()
        return sorted(multi_table.once(dialect, (*self.names, *(name for (name,) in rows))))
