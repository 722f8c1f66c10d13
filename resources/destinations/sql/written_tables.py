"""List the tables that a pipeline with a template as its table's name has written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from resources.destinations.sql.ledger import multi_table
from resources.destinations.sql.store import Store

__all__ = ["WrittenTables"]


class WrittenTables:
    """The part of a destination that lists its tables by topic or by a field; see `TopicTables` and `FieldTables`."""

    store: Store

    def rows_of_tables(self) -> Mapping[str, int]:
        """Return the number of rows of each table that was written; see `TopicTables`."""
        nothing: dict[str, int] = {}
        dialect = self.store.engine.dialect
        return self.store.read_ledger(lambda connection: multi_table.rows(connection, dialect, self.store.pipeline), nothing)

    def tables_written(self) -> Sequence[str]:
        """Return the tables of a field's values that were written; see `FieldTables`."""
        nothing: list[str] = []
        store = self.store
        return store.read_ledger(lambda found: store.names.read(found, store.engine.dialect, store.pipeline), nothing)

    def topics_written(self) -> Mapping[str, str]:
        """Return the newest table of each topic; see `TopicTables`."""
        nothing: dict[str, str] = {}
        return self.store.read_ledger(lambda connection: multi_table.topics(connection, self.store.pipeline), nothing)

    def topics_of_tables(self) -> Mapping[str, Sequence[str]]:
        """Return the topics of which each table has rows; see `TopicTables`."""
        return self.store.read_ledger(lambda connection: multi_table.topics_of_tables(connection, self.store.pipeline), {})
