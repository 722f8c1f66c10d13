"""Execute TRUNCATE TABLE, DELETE and RESET PIPELINE: clear tables and load them again so that `kpipe verify` still passes."""

from __future__ import annotations

import getpass
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from kpipe.definition.pipeline import Pipeline
from kpipe.errors import InvalidStatement, KpipeError, NotAvailable, OutcomeUnknown
from kpipe.interfaces import Destination
from kpipe.ledger.ledger import ADOPTED, Ledger
from kpipe.offsets import Range
from kpipe.planning.seek import Decision, set_offsets
from kpipe.sql.statements import Reset, Stop, Truncate
from kpipe.tables.field_tables import FieldTables, of_table, routes_of
from kpipe.tables.multi_table import table_pipelines
from kpipe.tables.topic_tables import TopicTables, of_topic, table_of_topic
from kpipe.topics import PartitionId, TopicSnapshot
from kpipe.verification.clearing import Clearing
from kpipe.verification.commit_order import why_in_order
from kpipe_assets.runs.run_locks import is_running
from kpipe_assets.sensors.sensor_state import SensorStates
from kpipe_assets.statements.result import Result
from kpipe_assets.statements.seek import decide, survey
from kpipe_assets.statements.start_stop import start_again, stop
from kpipe_assets.wording import count
from resources.destinations import open_destination
from resources.home import Home

__all__ = ["reset", "truncate"]


def truncate(home: Home, statement: Truncate) -> Result:
    """Execute TRUNCATE TABLE: delete all rows, and mark their offsets as skipped in the ledger of each writing pipeline.

    Raises:
        InvalidStatement: no pipeline writes the table, several destinations have it, or a pipeline is running.
        InvalidPipeline: the definition of a pipeline that has written the table is invalid.
        NotAvailable: the destination does not support it, or rows of the same records are in another table.
    """
    table = statement.table
    known, invalid = _definitions(home)
    named = [each for each in known if table.lower() in _written(home, each)]
    writers = named or _former(known, home, table)
    if not writers:
        for error in invalid.values():  # that definition may contain the table
            raise error
        raise InvalidStatement(
            f"table {table}: no pipeline of this home has written it",
            "use a client of the database for tables that pipelines do not load",
        )
    table = _written(home, named[0])[table.lower()] if named else table
    places = {_place(home, each): each for each in writers}
    if len(places) > 1:
        raise InvalidStatement(
            f"table {table} is in several destinations: {', '.join(sorted(places))}",
            f"use RESET PIPELINE {writers[0].name}, which clears and loads the table of this pipeline"
            if named
            else "create a pipeline that writes the table in one of them, and clear it there",
        )
    for each in writers:
        _check_delivery(each)
        if is_running(home, each.name):
            raise InvalidStatement(
                f"pipeline {each.name} is running, and {'writes' if named else 'has written'} table {table}",
                f"STOP PIPELINE {each.name} first",
            )
    destination = _clearing(open_destination(writers[0], home))
    for name in destination.writers(table) if invalid else ():
        if name in invalid:
            raise invalid[name]
    done = destination.clear([table], _who())
    words = [f"table {table}: {count(sum(done.rows.values()), 'row')} deleted", *_skipped(done.pipelines)]
    return Result("; ".join([*words, *_reads_again(home, known, writers if not named else (), list(done.pipelines))]))


def _definitions(home: Home) -> tuple[list[Pipeline], dict[str, KpipeError]]:
    """Return the definitions of a home, and the errors of invalid ones by name."""
    found, invalid = list[Pipeline](), dict[str, KpipeError]()
    for name in home.names():
        try:
            found.append(home.pipeline(name))
        except KpipeError as error:
            invalid[name] = error
    return found, invalid


def _former(known: Sequence[Pipeline], home: Home, table: str) -> list[Pipeline]:
    """Return pipelines that wrote a table which no definition contains any more. Unreachable destinations are ignored."""
    writers = []
    for each in known:
        destination = open_destination(each, home)
        try:
            if isinstance(destination, Clearing) and each.name in destination.writers(table):
                writers.append(each)
        except KpipeError:
            continue
    return writers


def _reads_again(home: Home, known: Sequence[Pipeline], former: Sequence[Pipeline], names: Sequence[str]) -> list[str]:
    """Return messages that name the statement to load the rows again, into the current table of each pipeline."""
    if not names:
        return []
    if len(names) > 1 and not former:
        return [f"RESET PIPELINE {', '.join(names)} reads them again"]
    into = {each.name: f", into table {each.into.table}" for each in former}
    defined = {each.name: each for each in known}
    return [f"{_rereading(home, name, defined.get(name))}{into.get(name, '')}" for name in names]


def _rereading(home: Home, name: str, pipeline: Pipeline | None) -> str:
    """Name the statement. While another table still has rows, kpipe refuses SET OFFSETS EARLIEST without REREAD."""
    earliest = f"ALTER PIPELINE {name} SET OFFSETS EARLIEST"
    if pipeline is None or not _has_read(home, pipeline):
        return f"{earliest} reads them again"
    if why_in_order(pipeline):
        return f"{earliest} REREAD reads all records again, also those of the rows that another table still has"
    return f"BACKFILL PIPELINE {name} reads them again"


def _has_read(home: Home, pipeline: Pipeline) -> bool:
    """Return whether the ledger still has offsets that were read, or adopted; False if it cannot be read now."""
    try:
        _, ledger = open_destination(pipeline, home).ledger()
    except KpipeError:  # the table is cleared: only the message depends on it
        return False
    return any(ledger.committed(source).ranges or ledger.unread(source, ADOPTED).ranges for source in ledger.sources())


def reset(home: Home, sensor_states: SensorStates, statement: Reset, report: Callable[[str], None]) -> Result:
    """Execute RESET PIPELINE: stop, clear the tables, seek to the earliest offsets, and start again if it was started.

    Checks all pipelines before any change.

    Raises:
        InvalidStatement: Kafka does not have all records of the rows any more, of the pipeline or of the loader before it.
        NotAvailable: the destination does not support it, or another pipeline has rows in the tables.
        KpipeError: the brokers or the destination do not answer, or an operator must decide first.
    """
    pipelines = [home.pipeline(name) for name in dict.fromkeys(statement.pipelines)]
    for each in pipelines:
        _check_delivery(each)
        destination = _clearing(open_destination(each, home))
        snapshot, ledger = survey(home, each).look()
        _check_kept(home, each, ledger, snapshot, destination)
    for destination, tables, names in _places(home, pipelines):
        destination.check_clear(tables, names)
    on = [each.name for each in pipelines if each.name in sensor_states.on()]
    rows: dict[str, int] = {}
    with _interrupted(sensor_states, [each.name for each in pipelines], on, rows):
        for each in pipelines:
            stop(home, sensor_states, Stop(each.name, if_running=True), report)
        for destination, tables, names in _places(home, pipelines):  # a run may have written further tables of a template
            rows |= destination.clear(tables, _who(), names).rows
        templates = {each.into.table for each in pipelines if each.into.by_field}
        words = [f"table {table}: {count(number, 'row')} deleted" for table, number in rows.items() if table not in templates]
        for each in pipelines:
            moved = decide(home, each, _earliest)
            words.append(f"pipeline {each.name} reads from the earliest offsets" + ("" if moved else ", as before"))
        words += [start_again(home, sensor_states, name) for name in on]
    return Result("; ".join(words))


def _places(home: Home, pipelines: Sequence[Pipeline]) -> Iterator[tuple[Clearing, list[str], list[str]]]:
    """Yield each destination with the tables and the names of its pipelines, which one transaction clears."""
    by_place: dict[str, list[Pipeline]] = {}
    for each in pipelines:
        by_place.setdefault(_place(home, each), []).append(each)
    for group in by_place.values():
        tables = {key: table for each in group for key, table in _tables(home, each).items()}
        yield _clearing(open_destination(group[0], home)), list(tables.values()), [each.name for each in group]


@contextmanager
def _interrupted(
    sensor_states: SensorStates, names: Sequence[str], on: Sequence[str], cleared: Collection[str]
) -> Iterator[None]:
    """Start the pipelines again if RESET fails before a table is cleared; else report what is left to do.

    Args:
        sensor_states: sensor states of the home.
        names: the pipelines.
        on: those whose sensor was running.
        cleared: tables that are cleared, added while inside.
    """
    try:
        yield
    except BaseException as error:
        untouched = not cleared and not isinstance(error, OutcomeUnknown)
        with suppress(KpipeError):
            for name in on if untouched else ():
                sensor_states.turn(name, on=True)
        if isinstance(error, KpipeError):
            stopped = [name for name in on if name not in sensor_states.on()]
            state = f"; table {', '.join(cleared)} was cleared" if cleared else "; nothing was cleared" if untouched else ""
            if stopped:
                state += f"; pipeline {', '.join(stopped)} is stopped"
            elif on and untouched:
                state += f"; pipeline {', '.join(on)} is started again"
            error.what += state
            if stopped or not untouched:
                steps = [f"repeat RESET PIPELINE {', '.join(names)}", *(f"START PIPELINE {name}" for name in stopped)]
                error.hint = ", then ".join([*([error.hint] if error.hint else []), *steps])
        raise


def _earliest(ledger: Ledger, snapshot: TopicSnapshot) -> Iterable[Decision]:
    # reread: offsets whose rows are in a former table of the definition are read and counted again.
    return set_offsets(ledger, snapshot, {source: state.log_start for source, state in snapshot.partitions.items()}, reread=True)


def _check_delivery(pipeline: Pipeline) -> None:
    """Reject at-least-once delivery: it commits rows before the ledger, and a clear between the two would not be recorded.

    Raises:
        NotAvailable: the pipeline's delivery is at_least_once.
    """
    if pipeline.delivery == "at_least_once":
        raise NotAvailable(
            f"pipeline {pipeline.name}: delivery: at_least_once does not support this: its rows and ledger commit separately",
            "load into another table with a pipeline of another name",
        )


def _check_kept(home: Home, pipeline: Pipeline, ledger: Ledger, snapshot: TopicSnapshot, destination: Clearing) -> None:
    """Reject clearing rows that could not be loaded again: of the pipeline, or of the loader whose position it has adopted.

    Raises:
        InvalidStatement: their offsets do not exist in Kafka any more.
        DestinationError: the tables cannot be read.
    """
    lose = f"to lose these rows: TRUNCATE TABLE {pipeline.into.table}, then ALTER PIPELINE {pipeline.name} SET OFFSETS EARLIEST"
    for source in ledger.sources():
        adopted = ledger.unread(source, ADOPTED)
        for deleted in _deleted(ledger.committed(source), source, snapshot):
            raise InvalidStatement(
                f"pipeline {pipeline.name}: {source} {deleted} was read and is missing in Kafka: its rows could not be"
                " loaded again",
                f"{lose}{' REREAD' if adopted else ''} reads the others",
            )
        for deleted in _deleted(adopted, source, snapshot):
            for table in _tables(home, pipeline).values():
                if others := destination.other_rows(table):
                    raise InvalidStatement(
                        f"pipeline {pipeline.name}: {source} {deleted} was read by another loader and is missing in Kafka: its"
                        f" rows could not be loaded again; no pipeline has written {count(others, 'row')} of table {table}",
                        f"{lose} REREAD reads the others",
                    )


def _deleted(ranges: Iterable[Range], source: PartitionId, snapshot: TopicSnapshot) -> Iterator[Range]:
    """Yield what Kafka does not have any more of each range."""
    state = snapshot.partitions.get(source)
    for item in ranges:
        end = item.end if state is None else min(item.end, state.log_start)
        if end > item.start:
            yield Range(item.start, end)


def _tables(home: Home, pipeline: Pipeline) -> dict[str, str]:
    """Return the tables of the definition by name in lower case; with a table for each topic, those of the topics that were read.

    Raises:
        DestinationError: they cannot be read.
    """
    parts = table_pipelines(pipeline)
    if pipeline.into.by_topic:
        destination = open_destination(pipeline, home)
        topics = destination.topics_written() if isinstance(destination, TopicTables) else {}
        current = [of_topic(pipeline, topic) for topic, table in topics.items() if table == table_of_topic(pipeline, topic)]
        parts = tuple(current) or parts
    if pipeline.into.by_field:  # the ledger's ranges name the template
        destination = open_destination(pipeline, home)
        written = destination.tables_written() if isinstance(destination, FieldTables) else ()
        parts = (*parts, *(of_table(pipeline, name) for name in routes_of(pipeline, written).names))
    return {part.into.table.lower(): part.into.table for part in parts}


def _written(home: Home, pipeline: Pipeline) -> dict[str, str]:
    """Return the tables of the definition as `_tables`; none if they are in a destination that is unreachable."""
    try:
        return _tables(home, pipeline)
    except KpipeError:
        return {}


def _place(home: Home, pipeline: Pipeline) -> str:
    """Return the description of the destination without the table."""
    return open_destination(pipeline, home).describe().rpartition(", table ")[0]


def _clearing(destination: Destination) -> Clearing:
    if not isinstance(destination, Clearing):
        raise NotAvailable(
            f"{destination.describe()}: this type of destination cannot clear rows and record it in the ledger",
            "load into another table with a pipeline of another name",
        )
    return destination


def _skipped(pipelines: Mapping[str, Sequence[str]]) -> list[str]:
    return [f"pipeline {name}: skipped now: {', '.join(words)}" for name, words in pipelines.items() if words]


def _who() -> str:
    return f"{getpass.getuser()} in kpipe sql"
