"""Run statements for one pipeline, and convert the errors of the database client to those of kpipe."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from kpipe.batch.batch import Commit
from kpipe.definition.table_template import field_of, is_template
from kpipe.errors import DestinationBusy, DestinationError, KpipeError, LedgerMismatch, SchemaConflict
from resources.destinations.commit_protocol import Failure
from resources.destinations.sql.engine import Engine, ErrorClass, TargetTable
from resources.destinations.sql.ledger.table_definitions import PIPELINES
from resources.destinations.sql.ledger.written_names import WrittenNames
from resources.destinations.sql.sql_dialect import Connection

__all__ = ["Store"]

# Commits that conflict in the shared tables: each round, one of them succeeds, so this many can run at once.
_TRIES = 20
_T = TypeVar("_T")


@dataclass(frozen=True)
class Store:
    """One pipeline's tables in a database. Each call takes a connection and gives it back.

    Attributes:
        engine: of the database.
        pipeline: name of the pipeline.
        tables: that it loads; the first one names the destination. With tables by topic, or by a field, it is a template, until
            `of_commit`.
        name: of the destination's table, or the template; empty: that of the first table.
        names: of the tables by a field that it has written.
        config: the pipeline's definition, for display, without secrets.
    """

    engine: Engine
    pipeline: str
    tables: tuple[TargetTable, ...]
    config: Mapping[str, Any]
    name: str = ""
    names: WrittenNames = field(default_factory=WrittenNames, compare=False)

    @property
    def table(self) -> str:
        """Return the name of the first table, or the template of tables by topic."""
        return self.name or self.tables[0].name

    @property
    def by_topic(self) -> bool:
        """Return whether each topic has a table of its own (kpipe/tables/topic_tables.py)."""
        return is_template(self.table)

    @property
    def by_field(self) -> bool:
        """Return whether each value of a field has a table of its own (kpipe/tables/field_tables.py)."""
        return field_of(self.table) is not None

    def of_tables(self, names: Iterable[str]) -> Store:
        """Return the store of these tables, all with the rule of the template."""
        rule = self.tables[0].rule
        return replace(self, tables=tuple(TargetTable(name, rule) for name in names), name=self.table)

    def of_commit(self, commit: Commit) -> Store:
        """Return the store of the tables that a commit writes: those of the definition, unless its name is a template."""
        if not (self.by_topic or self.by_field) or not commit.tables:
            return self
        return self.of_tables(write.table for write in commit.tables)

    @property
    def is_keyed(self) -> bool:
        """Return whether rows of some table are merged by a key."""
        return any(table.rule is not None for table in self.tables)

    def describe(self) -> str:
        """Return system, address and table, without secrets."""
        return f"{self.engine.describe()}, table {self.table}"

    def writing(self, row_bytes: int = 0) -> AbstractContextManager[Any]:
        """Open a connection for a commit. Closing it rolls back what is not committed; see `Engine.writing`."""
        return self.engine.writing(self.is_keyed, row_bytes)

    def read(self, work: Callable[[Connection], _T], default: _T, fresh: bool = False) -> _T:
        """Return the result of `work` over a connection, or the default if there is no database.

        Args:
            work: reads.
            default: of a database that does not exist.
            fresh: whether the connection must be new; see `Engine.reading_fresh`.

        Raises:
            LedgerMismatch: the ledger's tables are damaged.
            DestinationError: the database cannot be read.
        """
        if not self.engine.exists():
            return default
        try:
            with self.engine.reading_fresh() if fresh else self.engine.reading() as connection:
                return work(connection)
        except self.engine.errors as error:
            if self.engine.classify(error, "").damage:
                raise self.damaged(error) from error
            raise DestinationError(f"{self.describe()}: cannot be read: {error}") from error

    def read_ledger(self, work: Callable[[Connection], _T], default: _T) -> _T:
        """Run `read`, but also return the default if the ledger's tables do not exist."""
        return self.read(lambda connection: work(connection) if self.engine.ledger_exists(connection) else default, default)

    def is_registered(self) -> bool:
        """Return whether the pipeline has committed."""

        def read(connection: Connection) -> bool:
            found = f"SELECT 1 FROM {PIPELINES.sql} WHERE pipeline_name = $1"  # noqa: S608 - a constant
            return connection.execute(found, [self.pipeline]).fetchone() is not None

        return self.read_ledger(read, False)

    def write(self, work: Callable[[Connection], _T]) -> _T:
        """Return the result of `work`, which commits. Repeat it after a conflict with another transaction.

        Raises:
            LedgerMismatch: the ledger's tables are damaged.
            DestinationBusy: the database was not available in time.
            DestinationError: the statements failed.
        """
        for attempt in range(_TRIES):
            try:
                with self.writing() as connection:
                    return work(connection)
            except self.engine.errors as error:
                meaning = self.engine.classify(error, "")
                if meaning.damage:
                    raise self.damaged(error) from error
                if meaning.busy:
                    raise DestinationBusy(f"{self.describe()}: {error}", meaning.busy) from error
                if not meaning.conflict or attempt == _TRIES - 1:
                    raise DestinationError(f"{self.describe()}: {error}", "run it again") from error
                time.sleep(random.uniform(0, 0.01 * (attempt + 1)))  # jitter: two transactions do not keep colliding
        raise AssertionError

    def failure(self, error: Exception, step: str, commit: Commit) -> Failure:
        """Convert an error that a step of the commit's transaction raised."""
        sent, at_table = step in ("before", "after"), step in ("table", "data")
        if isinstance(error, KpipeError):
            return Failure(error, sent)
        meaning = self.engine.classify(error, step) if isinstance(error, self.engine.errors) else ErrorClass()
        text = str(error).splitlines()[0] if meaning.hint else error
        what = f"{self.describe()}: batch {commit.id}, step {step}: {text}"
        if meaning.busy:
            return Failure(DestinationBusy(f"{self.describe()}: {error}", meaning.busy), sent)
        if not at_table and meaning.damage:
            return Failure(self.damaged(error), sent)
        if (at_table or step == "open") and meaning.refused and not meaning.conflict:  # MySQL creates and widens tables in `open`
            reason, hint = (
                f"rejected by the table: {str(error).splitlines()[0]}",
                "change the table or the records; nothing was written",
            )
            return Failure(SchemaConflict(what, hint, reason, not meaning.rights), sent)
        # A key of the ledger's own tables can only be a duplicate if another commit was first.
        again = meaning.conflict or (meaning.taken and not at_table)
        return Failure(DestinationError(what, f"nothing was written; {meaning.hint or 'run it again'}"), sent, again)

    def damaged(self, error: Exception) -> LedgerMismatch:
        """Return the error of ledger tables that are missing or changed."""
        return LedgerMismatch(
            f"{self.describe()}: kpipe's own tables were changed by hand, or are another version's: {str(error).splitlines()[0]}",
            self.engine.recovery_hint,
        )
