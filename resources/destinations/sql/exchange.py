"""Exchange a pipeline's tables and ledger with rebuilt ones, in one transaction (kpipe/rebuild/exchange.py)."""

# ruff: noqa: S608 - names in statements are constants or quoted, values are always parameters
from __future__ import annotations

from collections.abc import Sequence

from kpipe.batch.batch import Commit
from kpipe.errors import InvalidStatement, LedgerMismatch, NotAvailable
from kpipe.failpoints import failpoint
from kpipe.ledger.ledger import Ledger
from kpipe.rebuild.exchange import Coordinates, Exchange, TableNames, check, marks
from kpipe.run_events import ledger_only
from resources.destinations.commit_protocol import Failure, Steps, land
from resources.destinations.ledger_rows import commit_row
from resources.destinations.sql.clearing import unwritten, written_by
from resources.destinations.sql.ledger import history_tables, ledger_table
from resources.destinations.sql.ledger.table_definitions import (
    BATCHES,
    COMMITS,
    ERRORS,
    HOLDINGS,
    LANES,
    PARTITIONS,
    PIPELINES,
    TARGETS,
)
from resources.destinations.sql.sql_dialect import Connection, Dialect, quote
from resources.destinations.sql.store import Store

__all__ = ["check_able", "check_rebuild", "differences", "discard", "exchange", "exchanged"]

_ELSEWHERE = "load into another table with a pipeline of another name, and move the readers"

#: Tables with the name of the pipeline in each row, and those of them with the name of the table.
_OF_PIPELINE = (PIPELINES, LANES, PARTITIONS, COMMITS, BATCHES, TARGETS, ERRORS)
_OF_TABLE = (PIPELINES, COMMITS, BATCHES, TARGETS)


def exchange(store: Store, work: Exchange) -> int:
    """Exchange the tables, and return the number of the commit; see `Exchanging.exchange`."""
    check_able(store)
    marker = Commit(work.id, work.pipelines.live, (), kind="exchange")

    def attempt() -> Failure | None:
        steps = Steps()
        try:
            _transaction(store, work, steps)
        except Exception as error:
            return store.failure(error, steps.current, marker)
        return None

    def read_back() -> tuple[int | None, Ledger]:
        failpoint("readback")
        return _landed(store, work.id), Ledger(work.pipelines.live)

    before = _landed(store, work.id)  # one whose answer was lost
    return land(marker, store.describe(), attempt, read_back).seq if before is None else before


def check_able(store: Store) -> None:
    """Check that the database can do it; see `Exchanging.check_exchange`."""
    if why := store.engine.exchange_refusal:
        raise NotAvailable(
            f"pipeline {store.pipeline}: {store.engine.describe()} cannot exchange a rebuilt table: {why}",
            _ELSEWHERE,
        )


def check_rebuild(store: Store, pipelines: TableNames, tables: Sequence[TableNames]) -> None:
    """Check that names are free and that the live tables are the pipeline's own; see `Exchanging.check_rebuild`."""
    check_able(store)
    nothing: None = None

    def read(connection: Connection) -> None:
        engine = store.engine
        known = engine.ledger_exists(connection)
        if known:
            _check_alone(connection, engine.dialect, pipelines, tables)
        for one in tables:
            for name in (one.rebuilt, one.replaced):
                if engine.table_exists(connection, name):
                    raise _taken(pipelines, f"table {name}")
        for name in (pipelines.rebuilt, pipelines.replaced) if known else ():
            if _registered(connection, name):
                raise _taken(pipelines, f"a ledger of pipeline {name}")

    store.read(read, nothing)


def exchanged(store: Store, id: str) -> bool:
    """Return whether an exchange has been committed."""
    return _landed(store, id) is not None


def _landed(store: Store, id: str) -> int | None:
    nothing: int | None = None

    def read(connection: Connection) -> int | None:
        if not store.engine.ledger_exists(connection):
            return None
        sql = f"SELECT seq FROM {COMMITS.sql} WHERE batch_id = $1 AND pipeline_name = $2"
        row = connection.execute(sql, [id, store.pipeline]).fetchone()
        return None if row is None else int(row[0])

    return store.read(read, nothing, fresh=True)


def _transaction(store: Store, work: Exchange, steps: Steps) -> None:
    engine, dialect, names = store.engine, store.engine.dialect, work.pipelines
    steps.enter("open")
    with store.writing() as connection:
        there = {name: engine.table_exists(connection, name) for one in work.tables for name in vars(one).values()}
        steps.enter("begin")
        known, _ = engine.begin(connection, store.pipeline, store.tables)
        if known:
            _lock(connection, dialect, [names.live, names.rebuilt])
        steps.enter("ledger")
        live, rebuilt = (_ledger(connection, name) if known else Ledger(name) for name in (names.live, names.rebuilt))
        check(work, live, rebuilt)
        _check_free(connection, work, there)
        for one in work.tables:
            _check_kept(engine.lost_by_exchange(connection, one.live, one.rebuilt), one)
        steps.enter("register")
        _rename_pipeline(connection, dialect, names.live, names.replaced, [(x.live, x.replaced) for x in work.tables])
        _rename_pipeline(connection, dialect, names.rebuilt, names.live, [(x.rebuilt, x.live) for x in work.tables])
        steps.enter("table")
        for one in work.tables:
            engine.grant_as(connection, one.live, one.rebuilt)
            _rename(connection, dialect, one.live, one.replaced)
            _rename(connection, dialect, one.rebuilt, one.live)
        _check_alone(connection, dialect, names, work.tables)  # the renamed tables are locked now
        steps.enter("history")
        commit = ledger_only(names.live, "exchange", marks(work, rebuilt), work.note, (), work.run_id, work.version, work.id)
        ledger_table.swap(connection, dialect, commit)
        seq, _ = history_tables.register(connection, dialect, commit, work.tables[0].live, work.config)
        COMMITS.insert(connection, dialect, [commit_row(commit, work.tables[0].live, seq)])
        steps.enter("before")
        engine.commit(connection)
        steps.enter("after")


def _lock(connection: Connection, dialect: Dialect, pipelines: Sequence[str]) -> None:
    """Wait for commits of both pipelines, and exclude others until the transaction ends."""
    for name in sorted(pipelines):
        connection.execute(f"UPDATE {PIPELINES.sql} SET seq = seq WHERE pipeline_name = $1", [name])


def _ledger(connection: Connection, pipeline: str) -> Ledger:
    uid, ledger = ledger_table.read(connection, pipeline)
    if not uid:
        raise LedgerMismatch(f"pipeline {pipeline}: nothing committed, so nothing can be exchanged", f"kpipe run {pipeline}")
    return ledger


def _registered(connection: Connection, pipeline: str) -> bool:
    return connection.execute(f"SELECT 1 FROM {PIPELINES.sql} WHERE pipeline_name = $1", [pipeline]).fetchone() is not None


def _taken(pipelines: TableNames, what: str) -> InvalidStatement:
    return InvalidStatement(
        f"pipeline {pipelines.live}: {what} exists: kpipe rebuild {pipelines.live} would use its name",
        'drop or rename it, if nothing needs it: docs/how-to/operate/rebuild.md, "Names that are taken"',
    )


def _check_alone(connection: Connection, dialect: Dialect, pipelines: TableNames, tables: Sequence[TableNames]) -> None:
    """Check that no other pipeline has rows in the live tables: they would stay in the old ones."""
    for one in tables:
        others = [name for name in written_by(connection, dialect, [one.live]) if name not in vars(pipelines).values()]
        if others:
            raise InvalidStatement(f"table {one.live} has rows of pipeline {', '.join(others)}", _ELSEWHERE)


def _check_free(connection: Connection, work: Exchange, there: dict[str, bool]) -> None:
    name = work.pipelines.replaced
    taken = [one.replaced for one in work.tables if there[one.replaced]]
    if _registered(connection, name) or taken:
        raise InvalidStatement(
            f"pipeline {work.pipelines.live}: {', '.join(taken) or name} is left from an earlier rebuild",
            f"kpipe rebuild {work.pipelines.live} --drop-replaced; or, if it is your own, rename it",
        )
    gone = [name for one in work.tables for name in (one.live, one.rebuilt) if not there[name]]
    if gone:
        raise InvalidStatement(
            f"pipeline {work.pipelines.live}: table {gone[0]} does not exist",
            "no record became a row of it yet: run the pipeline first",
        )


def _check_kept(lost: Sequence[str], names: TableNames) -> None:
    if lost:
        raise InvalidStatement(
            f"table {names.live}: an exchange would lose: {'; '.join(lost)}",
            f"create them on {names.rebuilt}, or drop them from {names.live} first",
        )


def _rename_pipeline(connection: Connection, dialect: Dialect, old: str, new: str, tables: Sequence[tuple[str, str]]) -> None:
    """Give the ledger, the history and the dead letters of a pipeline another name, and its tables theirs."""
    for table in _OF_PIPELINE:
        connection.execute(f"UPDATE {table.sql} SET pipeline_name = $1 WHERE pipeline_name = $2", [new, old])
    for before, after in tables:
        same = dialect.same_name.format("target_table", "$3")
        for table in _OF_TABLE:
            connection.execute(
                f"UPDATE {table.sql} SET target_table = $1 WHERE pipeline_name = $2 AND {same}", [after, new, before]
            )
        connection.execute(f"UPDATE {HOLDINGS.sql} SET target_table = lower($1) WHERE target_table = lower($2)", [after, before])


def _rename(connection: Connection, dialect: Dialect, old: str, new: str) -> None:
    connection.execute(f"ALTER TABLE {dialect.name(old)} RENAME TO {quote(new)}")


def discard(store: Store, pipeline: str, tables: Sequence[str]) -> None:
    """Drop tables of a pipeline with its ledger; see `Exchanging.discard`."""
    check_able(store)

    def write(connection: Connection) -> None:
        engine, dialect = store.engine, store.engine.dialect
        # Before the transaction: in DuckDB, a query of a missing table would abort it.
        there = [name for name in tables if engine.table_exists(connection, name)]
        known = engine.begin(connection, pipeline, store.tables)[0]
        for name in there:
            _check_own(pipeline, name, written_by(connection, dialect, [name]) if known else [])
            if number := unwritten(connection, dialect, name):
                raise InvalidStatement(
                    f"table {name}: no pipeline has written {number} of its rows; nothing was dropped",
                    f"copy the rows to keep, drop table {name} by hand, and repeat the command",
                )
        for table in _OF_PIPELINE if known else ():
            connection.execute(f"DELETE FROM {table.sql} WHERE pipeline_name = $1", [pipeline])
        for name in tables:
            if known:
                connection.execute(f"DELETE FROM {HOLDINGS.sql} WHERE target_table = lower($1)", [name])
            connection.execute(f"DROP TABLE IF EXISTS {dialect.name(name)}")
        engine.commit(connection)

    if store.engine.exists():
        store.write(write)


def _check_own(pipeline: str, table: str, names: Sequence[str]) -> None:
    """Check that the pipeline, and no other one, has written the table."""
    if others := [name for name in names if name != pipeline]:
        raise InvalidStatement(f"table {table} has rows of pipeline {', '.join(others)}", "drop it by hand")
    if not names:
        raise InvalidStatement(
            f"table {table}: pipeline {pipeline} has not written it, so it may be yours; nothing was dropped",
            "rename it, or drop it by hand, and repeat the command",
        )


def differences(store: Store, names: TableNames, limit: int) -> Coordinates:
    """Return coordinates that only one of the two tables has; see `Exchanging.differences`."""

    def read(connection: Connection) -> Coordinates:
        known = [store.engine.columns(connection, name).names() for name in (names.live, names.rebuilt)]
        topic = "_kafka_topic" if all("_kafka_topic" in columns for columns in known) else "''"
        tables = [
            f"SELECT {topic} AS a, _kafka_partition AS b, _kafka_offset AS c FROM {store.engine.dialect.name(name)}"
            for name in (names.live, names.rebuilt)
        ]
        found = []
        for one, other in (tables, tables[::-1]):
            rows = connection.execute(f"{one} EXCEPT {other} ORDER BY 1, 2, 3 LIMIT {int(limit)}").fetchall()
            found.append([(str(a), int(b), int(c)) for a, b, c in rows if c is not None])
        return Coordinates(*found)

    return store.read(read, Coordinates())
