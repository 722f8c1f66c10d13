"""Execute CREATE and DROP PIPELINE, and change fields of a definition for ALTER."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from pydantic import ValidationError

from kpipe.definition.pipeline import Pipeline
from kpipe.definition.references import rotates
from kpipe.errors import DefinitionChanged, DestinationBusy, InvalidPipeline, InvalidStatement, KpipeError
from kpipe.interfaces import Keyed, Resuming
from kpipe.rebuild.definitions import REBUILD
from kpipe.sql.source_positions import Places, pointing
from kpipe.sql.statements import Create, Drop, SetField
from kpipe_assets.runs import rebuilt
from kpipe_assets.runs.stop_requests import ask
from kpipe_assets.sensors.sensor_state import SensorStates
from kpipe_assets.statements.result import Result
from resources.definition_lock import defining
from resources.destinations import open_destination
from resources.home import Home

if TYPE_CHECKING:
    from kpipe_assets.validation import Case

__all__ = ["changed", "changing", "check_rebuild", "create", "drop", "exists"]


def exists(home: Home, name: str) -> bool:
    """Return whether the home defines a pipeline of this name."""
    return name in home.names()


@contextmanager
def changing(home: Home, before: Pipeline | None, after: Pipeline) -> Iterator[None]:
    """Write a definition at the end, unless another one was written since it was read; meanwhile none is.

    Runs that Dagster's sensor started restart with it after their current batch.

    Args:
        home: KPIPE_HOME.
        before: the definition that `after` was made from; None: there was none.
        after: the definition.

    Raises:
        DefinitionChanged: another one has been written since.
    """
    with defining(home):
        now = home.pipeline(after.name).to_dict() if exists(home, after.name) else None
        if now != (None if before is None else before.to_dict()):
            raise DefinitionChanged(
                f"pipeline {after.name} was changed at the same time: nothing was written",
                f"check it with SHOW CREATE PIPELINE {after.name}, and repeat the statement",
            )
        yield
        home.save(after)
    ask(home, after.name, "restart")


def create(home: Home, statement: Create) -> Result:
    """Execute CREATE PIPELINE. A new pipeline is stopped.

    Raises:
        InvalidStatement: the pipeline exists.
        DefinitionChanged: it was made from a definition that another one has replaced since.
        InvalidPipeline, NotAvailable: the definition is invalid, or the pipeline cannot run here.
    """
    pipeline = statement.pipeline
    existing = exists(home, pipeline.name)
    if existing and statement.if_not_exists:
        return Result(f"pipeline {pipeline.name} exists already and is unchanged")
    if existing and not statement.or_replace:
        raise InvalidStatement(
            f"pipeline {pipeline.name} exists already", "use CREATE OR REPLACE, which keeps its offsets, or IF NOT EXISTS"
        )
    if existing:
        rebuilt.finish(home, pipeline.name)  # else the next run would write that definition over this one
    with pointing(statement.places, pipeline.name):
        from kpipe_assets.validation import Case, validate_case

        case = Case(pipeline, home)
        fitting, note = _fitting(case)
        if fitting is not pipeline:
            pipeline, case = fitting, Case(fitting, home)
        notes = "".join(f"; {more}" for more in validate_case(case)) + note
        destination = case.destination
    if existing and statement.based_on is None:
        with defining(home):
            home.save(pipeline)
        ask(home, pipeline.name, "restart")
    else:
        with changing(home, statement.based_on, pipeline):
            pass
    done = "replaced" if existing else "created"
    if not case.connects:
        if not existing:
            home.note(pipeline.name, "stopped")  # else the state would be read from the ledger, which needs the credentials
        # Not described by the destination: even its address may be a credential.
        return Result(f"pipeline {pipeline.name} {done}: {pipeline.into.type}, table {pipeline.into.table}{notes}")
    try:
        at = ", ".join(f"{source} at {offset}" for source, offset in sorted(destination.ledger()[1].positions().items()))
    except DestinationBusy:  # already in the notes
        at = ""
    if not at:
        return Result(f"pipeline {pipeline.name} {done}: {destination.describe()}{notes}")
    before = "" if existing else "; a pipeline of that name has written there before"
    return Result(f"pipeline {pipeline.name} {done}: {destination.describe()}; it continues from {at}{before}{notes}")


def _fitting(case: Case) -> tuple[Pipeline, str]:
    """Adapt the definition to the existing table, and return it with a note about the removed clause.

    As in SingleStore, SKIP DUPLICATE KEY ERRORS and SKIP ALL ERRORS skip no rows in a table without a key.
    """
    pipeline, into = case.pipeline, case.pipeline.into
    if into.on_conflict != "ignore" or into.key is not None or not case.connects:
        return pipeline, ""
    destination = case.destination
    if not isinstance(destination, Keyed):
        return pipeline, ""
    try:
        destination.key()
    except DestinationBusy:  # the validation reports it
        pass
    except InvalidPipeline:
        note = (
            f"\nnote: SKIP DUPLICATE KEY ERRORS is left out: table {into.table} has no primary key, so no row is a duplicate;"
            " to define a key, write KEY (column) after INTO TABLE"
        )
        return pipeline.model_copy(update={"into": into.model_copy(update={"on_conflict": "error"})}), note
    return pipeline, ""


def changed(pipeline: Pipeline, changes: list[SetField], places: Places | None = None) -> Pipeline:
    """Return the definition with changed fields. Errors name their position in the statement.

    Raises:
        InvalidStatement: a value is invalid.
    """
    fields = pipeline.to_dict()
    for change in changes:
        group = fields
        for name in change.path[:-1]:
            group = group.setdefault(name, {})
        if change.value is None:
            group.pop(change.path[-1], None)
        else:
            group[change.path[-1]] = change.value
    try:
        return Pipeline.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        text = first["msg"].removeprefix("Value error, ")
        path = tuple(str(part) for part in first["loc"])
        invalid = InvalidStatement(f"pipeline {pipeline.name}: {'.'.join(path)}: {text[:1].lower() + text[1:]}").about(*path)
        raise (places.pointed(invalid, pipeline.name) if places is not None else None) or invalid from None


def drop(home: Home, sensor_states: SensorStates, statement: Drop) -> Result:
    """Execute DROP PIPELINE for a stopped pipeline.

    Raises:
        InvalidStatement: its rebuild has begun.
    """
    name = statement.pipeline
    if not exists(home, name):
        if statement.if_exists:
            return Result(f"pipeline {name} does not exist")
        home.pipeline(name)  # raises with the existing names
    from kpipe_assets.validation.case import with_placeholders

    check_rebuild(home, name)
    begun, kept = None, "its destination"
    try:
        pipeline = home.pipeline(name)
        kept = f"{pipeline.into.type}, table {pipeline.into.table}"
        # Placeholders suffice: batches that are not finished are beside the ledger, not where the rows go.
        destination = open_destination(with_placeholders(pipeline), home)
        begun = destination.unfinished() if isinstance(destination, Resuming) else None
        kept = kept if rotates(pipeline.into.credentials.values()) else destination.describe()
    except KpipeError:  # an unreadable definition can be dropped, too
        pass
    with defining(home):
        home.remove(name)
    rebuilt.dropped(home, name)
    sensor_states.forget(name)
    left = f"; batch {begun.id} is not finished: a new pipeline {name} with this ledger finishes it first" if begun else ""
    return Result(f"pipeline {name} dropped; rows, history and ledger stay in {kept}{left}")


def check_rebuild(home: Home, name: str) -> None:
    """Check that no rebuild of the pipeline has begun: it would exchange the tables of another pipeline of this name.

    Without NAME_rebuild, which an operator may have dropped, nothing is left to exchange; `dropped` forgets the rebuild.

    Raises:
        InvalidStatement: one has begun.
    """
    with suppress(KpipeError):  # a destination that does not answer: the exchange is completed later
        rebuilt.finish(home, name)
    if rebuilt.load(home, name) is not None and exists(home, name + REBUILD):
        raise InvalidStatement(
            f"pipeline {name}: its rebuild has begun",
            f"kpipe rebuild {name} --cancel; or, if its database is lost, DROP PIPELINE {name}{REBUILD}",
        )
