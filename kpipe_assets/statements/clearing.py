"""TRUNCATE, DELETE and RESET PIPELINE: tables cleared on purpose, and loaded again, in a way that `kpipe verify` can prove."""

from __future__ import annotations

import getpass
from collections.abc import Callable, Iterable, Mapping, Sequence

from kpipe.definition.pipeline import Pipeline
from kpipe.errors import InvalidStatement, KpipeError, NotAvailable
from kpipe.interfaces import Destination
from kpipe.ledger.ledger import Ledger
from kpipe.offsets import Range
from kpipe.planning.seek import Decision, set_offsets
from kpipe.sql.statements import Reset, Stop, Truncate
from kpipe.tables.multi_table import targets
from kpipe.topics import TopicSnapshot
from kpipe.verification.clearing import Clearing
from kpipe_assets.runs.run_locks import is_running
from kpipe_assets.sensors.sensor_state import Switches
from kpipe_assets.statements.result import Result
from kpipe_assets.statements.seek import decide, survey
from kpipe_assets.statements.start_stop import start_again, stop
from kpipe_assets.wording import count
from resources.destinations import open_destination
from resources.home import Home

__all__ = ["reset", "truncate"]


def truncate(home: Home, statement: Truncate) -> Result:
    """TRUNCATE TABLE: all rows go, and the ledger of each pipeline that wrote them has their offsets as skipped.

    Raises:
        InvalidStatement: no pipeline writes the table, several places have it, or one is running.
        NotAvailable: the destination cannot, or rows of the same records are in another table.
    """
    table = statement.table
    named = [each for each in map(home.pipeline, home.names()) if table.lower() in _tables([each])]
    writers = named or _former(home, table)
    if not writers:
        raise InvalidStatement(
            f"no pipeline of this home has written table {table}",
            "kpipe sql clears what pipelines have loaded; other tables are for a client of the database",
        )
    table = _tables(named)[table.lower()] if named else table
    places = {_place(home, each): each for each in writers}
    if len(places) > 1:
        raise InvalidStatement(
            f"table {table} is in several places: {', '.join(sorted(places))}",
            f"RESET PIPELINE {writers[0].name} clears the one that this pipeline writes, and loads it again"
            if named
            else "name it in a pipeline of one place again, and clear it there",
        )
    for each in writers:
        _check_delivery(each)
        if is_running(home, each.name):
            raise InvalidStatement(
                f"pipeline {each.name} is running, and {'writes' if named else 'has written'} table {table}",
                f"STOP PIPELINE {each.name} first",
            )
    done = _clearing(open_destination(writers[0], home)).clear([table], _who())
    words = [f"table {table}: {count(sum(done.rows.values()), 'row')} deleted", *_skipped(done.pipelines)]
    return Result("; ".join([*words, *_reads_again(writers if not named else (), list(done.pipelines))]))


def _former(home: Home, table: str) -> list[Pipeline]:
    """Pipelines that have written a table that no definition names any more. A place that cannot be asked is passed over."""
    found = []
    for each in map(home.pipeline, home.names()):
        destination = open_destination(each, home)
        try:
            if isinstance(destination, Clearing) and each.name in destination.writers(table):
                found.append(each)
        except KpipeError:
            continue
    return found


def _reads_again(former: Sequence[Pipeline], names: Sequence[str]) -> list[str]:
    """How the rows are loaded again: of a former table into the one that the definition names now."""
    if not names:
        return []
    if len(names) > 1 and not former:
        return [f"RESET PIPELINE {', '.join(names)} reads them again"]
    into = {each.name: f", into table {each.into.table}" for each in former}
    return [f"ALTER PIPELINE {name} SET OFFSETS EARLIEST reads them again{into.get(name, '')}" for name in names]


def reset(home: Home, switches: Switches, statement: Reset, tell: Callable[[str], None]) -> Result:
    """RESET PIPELINE: stop, clear the tables, go back to the earliest offsets; started again where it was on.

    What can be seen to be wrong is said before anything is changed.

    Raises:
        InvalidStatement: Kafka no longer has all records whose rows would be cleared.
        NotAvailable: the destination cannot, or another pipeline has rows in the tables.
        KpipeError: the brokers or the destination do not answer, or an operator must decide first.
    """
    pipelines = [home.pipeline(name) for name in dict.fromkeys(statement.pipelines)]
    for each in pipelines:
        _check_delivery(each)
        _clearing(open_destination(each, home))
        snapshot, ledger = survey(home, each).look()
        _check_kept(each, ledger, snapshot)
    on = [each.name for each in pipelines if each.name in switches.on()]
    for each in pipelines:
        stop(home, switches, Stop(each.name, if_running=True), tell)
    by_place: dict[str, list[Pipeline]] = {}
    for each in pipelines:
        by_place.setdefault(_place(home, each), []).append(each)
    rows: dict[str, int] = {}
    for group in by_place.values():
        names = [each.name for each in group]
        done = _clearing(open_destination(group[0], home)).clear(list(_tables(group).values()), _who(), names)
        rows |= done.rows
    words = [f"table {table}: {count(number, 'row')} deleted" for table, number in rows.items()]
    for each in pipelines:
        moved = decide(home, each, _earliest)
        words.append(f"pipeline {each.name} reads from the earliest offsets" + ("" if moved else ", where it stood"))
    words += [start_again(home, switches, name) for name in on]
    return Result("; ".join(words))


def _earliest(ledger: Ledger, snapshot: TopicSnapshot) -> Iterable[Decision]:
    # Offsets whose rows are in a table that the definition named before are read again, and counted again.
    return set_offsets(ledger, snapshot, {source: state.log_start for source, state in snapshot.partitions.items()}, reread=True)


def _check_delivery(pipeline: Pipeline) -> None:
    """Refuse what commits rows before its ledger: a clear between the two would be lost to the ledger.

    Raises:
        NotAvailable: the pipeline's delivery is at_least_once.
    """
    if pipeline.delivery == "at_least_once":
        raise NotAvailable(
            f"pipeline {pipeline.name} delivers at least once: rows and ledger commit one after the other",
            "load into another table, by a pipeline of another name",
        )


def _check_kept(pipeline: Pipeline, ledger: Ledger, snapshot: TopicSnapshot) -> None:
    """Refuse to clear rows that could not be loaded again.

    Raises:
        InvalidStatement: offsets that were read are gone from Kafka.
    """
    for source in ledger.sources():
        state = snapshot.partitions.get(source)
        for item in ledger.committed(source):
            gone = Range(item.start, max(item.start, item.end if state is None else min(item.end, state.log_start)))
            if len(gone):
                raise InvalidStatement(
                    f"pipeline {pipeline.name}: {source} {gone} was read and is gone from Kafka: its rows could not be loaded"
                    " again",
                    f"TRUNCATE TABLE {pipeline.into.table} clears all the same, and ALTER PIPELINE {pipeline.name} SET OFFSETS"
                    " EARLIEST reads what is left",
                )


def _tables(pipelines: Sequence[Pipeline]) -> dict[str, str]:
    """Tables of their definitions, by name in lower case."""
    return {part.into.table.lower(): part.into.table for each in pipelines for part in targets(each)}


def _place(home: Home, pipeline: Pipeline) -> str:
    """Where it writes, without the table."""
    return open_destination(pipeline, home).describe().rpartition(", table ")[0]


def _clearing(destination: Destination) -> Clearing:
    if not isinstance(destination, Clearing):
        raise NotAvailable(
            f"{destination.describe()}: rows cannot be cleared there in a way that stays proven",
            "load into another table, by a pipeline of another name",
        )
    return destination


def _skipped(pipelines: Mapping[str, Sequence[str]]) -> list[str]:
    return [f"pipeline {name}: skipped now: {', '.join(words)}" for name, words in pipelines.items() if words]


def _who() -> str:
    return f"{getpass.getuser()} in kpipe sql"
