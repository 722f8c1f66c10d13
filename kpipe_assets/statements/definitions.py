"""CREATE, ALTER (but for offsets), DROP, SHOW: definitions of a home."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import ValidationError

from kpipe.definition.pipeline import Pipeline
from kpipe.errors import InvalidPipeline, InvalidStatement, KpipeError
from kpipe.interfaces import Keyed, Resuming
from kpipe.sql.renderer import to_sql, write
from kpipe.sql.source_positions import Places, pointing
from kpipe.sql.statements import Alter, Create, Drop, SetField, SetOffsets, ShowCreate
from kpipe.topics import Part, part
from kpipe_assets.runs.status import state_of
from kpipe_assets.runs.stop_requests import ask
from kpipe_assets.sensors.sensor_state import Switches
from kpipe_assets.statements.result import Result
from kpipe_assets.validation import validate
from resources.destinations import open_destination
from resources.home import Home

__all__ = ["changed", "create", "drop", "exists", "save", "show_create", "show_pipelines"]


def exists(home: Home, name: str) -> bool:
    """Whether the home defines a pipeline of that name."""
    return name in home.names()


def save(home: Home, pipeline: Pipeline) -> None:
    """Write the definition; runs that are started by themselves take it with their next batch."""
    home.save(pipeline)
    ask(home, pipeline.name, "restart")


def create(home: Home, statement: Create) -> Result:
    """CREATE PIPELINE: stopped, until it is started.

    Raises:
        InvalidStatement: there is one of that name.
        InvalidPipeline, NotAvailable: it could not run.
    """
    pipeline = statement.pipeline
    there = exists(home, pipeline.name)
    if there and statement.if_not_exists:
        return Result(f"pipeline {pipeline.name} exists already; it stays as it is")
    if there and not statement.or_replace:
        raise InvalidStatement(
            f"pipeline {pipeline.name} exists already", "write CREATE OR REPLACE, which keeps where it reads, or IF NOT EXISTS"
        )
    with pointing(statement.places, pipeline.name):
        pipeline, note = _fitting(home, pipeline)
        notes = "".join(f"; {more}" for more in validate(pipeline, home)) + note
        destination = open_destination(pipeline, home)
    save(home, pipeline)
    _, ledger = destination.ledger()
    at = ", ".join(f"{source} at {offset}" for source, offset in sorted(ledger.positions().items()))
    done = "replaced" if there else "created"
    if not at:
        return Result(f"pipeline {pipeline.name} {done}: {destination.describe()}{notes}")
    before = "" if there else "; a pipeline of that name has written there before"
    return Result(f"pipeline {pipeline.name} {done}: {destination.describe()}; it goes on from {at}{before}{notes}")


def _fitting(home: Home, pipeline: Pipeline) -> tuple[Pipeline, str]:
    """The definition for the table that is there, and a note of what it no longer says.

    Rows of a table without a key are no duplicates of each other: as in SingleStore, SKIP DUPLICATE KEY ERRORS skips none of
    them there, and so does SKIP ALL ERRORS.
    """
    into = pipeline.into
    if into.on_conflict != "ignore" or into.key is not None:
        return pipeline, ""
    destination = open_destination(pipeline, home)
    if not isinstance(destination, Keyed):
        return pipeline, ""
    try:
        destination.key()
    except InvalidPipeline:
        note = (
            f"\nnote: SKIP DUPLICATE KEY ERRORS is left out: table {into.table} has no primary key, so no row is a duplicate;"
            " KEY (column) behind INTO TABLE would make it one"
        )
        return pipeline.model_copy(update={"into": into.model_copy(update={"on_conflict": "error"})}), note
    return pipeline, ""


def changed(pipeline: Pipeline, changes: list[SetField], places: Places | None = None) -> Pipeline:
    """The definition with other values, which stand at those places of a statement.

    Raises:
        InvalidStatement: a value is wrong.
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
        wrong = InvalidStatement(f"pipeline {pipeline.name}: {'.'.join(path)}: {text[:1].lower() + text[1:]}").about(*path)
        raise (places.pointed(wrong, pipeline.name) if places is not None else None) or wrong from None


def drop(home: Home, switches: Switches, statement: Drop) -> Result:
    """DROP PIPELINE, once it is stopped."""
    name = statement.pipeline
    if not exists(home, name):
        if statement.if_exists:
            return Result(f"there is no pipeline {name}")
        home.pipeline(name)  # says which there are
    begun = None
    try:
        destination = open_destination(home.pipeline(name), home)
        kept = destination.describe()
        begun = destination.unfinished() if isinstance(destination, Resuming) else None
    except KpipeError:  # a definition that cannot be read can be dropped all the same
        kept = "its destination"
    home.remove(name)
    switches.forget(name)
    left = f"; batch {begun.id} is not finished: a new pipeline {name} with this ledger finishes it first" if begun else ""
    return Result(f"pipeline {name} dropped; rows, history and ledger stay in {kept}{left}")


def show_pipelines(home: Home, switches: Switches) -> Result:
    """SHOW PIPELINES."""
    on, served = switches.on(), switches.is_served()
    rows = [(name, state_of(home, name, name in on, served)) for name in home.names()]
    return Result(columns=("pipeline", "state"), rows=rows)


def show_create(home: Home, statement: ShowCreate) -> Result:
    """SHOW CREATE PIPELINE; extended, also the statement that brings a copy to the same offsets."""
    pipeline = home.pipeline(statement.pipeline)
    text = to_sql(pipeline)
    if statement.extended:
        positions = _positions(home, pipeline)
        if positions:
            text += "\n" + write(Alter(pipeline.name, (SetOffsets(dict(positions)),)))
    return Result(columns=("pipeline", "statement"), rows=[(pipeline.name, text)], text=True)


def _positions(home: Home, pipeline: Pipeline) -> Mapping[Part, int]:
    """Next offsets by partition; none where several ids of a topic share a name."""
    _, ledger = open_destination(pipeline, home).ledger()
    found = ledger.positions()
    numbers = {part(source, pipeline.source.several): offset for source, offset in sorted(found.items())}
    return numbers if len(numbers) == len(found) else {}
