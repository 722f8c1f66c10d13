"""CREATE, ALTER (but for offsets), DROP, SHOW: definitions of a home."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from kpipe.errors import InvalidStatement, KpipeError
from kpipe.pipeline import Pipeline
from kpipe.source import Part, part
from kpipe.sql.statements import Alter, Create, Drop, SetField, SetOffsets, ShowCreate
from kpipe.sql.writer import to_sql, write
from kpipe.targets import targets
from kpipe_assets.assembly import check_available
from kpipe_assets.requests import ask
from kpipe_assets.statements.result import Result
from kpipe_assets.states import state_of
from kpipe_assets.switch import Switches
from resources.destinations import open_destination
from resources.home import Home

__all__ = ["changed", "check", "create", "drop", "exists", "save", "show_create", "show_pipelines"]


class _Later(dict[str, str]):
    """The environment, with something for every variable that is not set: it is needed when the pipeline runs."""

    def get(self, key: str, default: Any = None) -> Any:
        return os.environ.get(key, default if default is not None else "x")


def check(pipeline: Pipeline) -> None:
    """Whether it could run here, as far as can be told without brokers: what CREATE and ALTER refuse.

    Raises:
        InvalidPipeline, NotAvailable: it could not.
    """
    from resources.kafka.config import client_config
    from resources.kafka.topics import KafkaTopics
    from resources.lookups.read import Lookups
    from resources.spark.stager import asked, selection, version

    check_available(pipeline)
    Lookups(pipeline, asked(map(selection, targets(pipeline))), environ=_Later()).check_files()
    client_config(pipeline.source, _Later())
    KafkaTopics(pipeline.source.model_copy(update={"credentials": {}, "config": {}}))
    version(pipeline)


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
    check(pipeline)
    destination = open_destination(pipeline, home)
    save(home, pipeline)
    _, ledger = destination.ledger()
    at = ", ".join(f"{source} at {offset}" for source, offset in sorted(ledger.positions().items()))
    done = "replaced" if there else "created"
    if not at:
        return Result(f"pipeline {pipeline.name} {done}: {destination.describe()}")
    before = "" if there else "; a pipeline of that name has written there before"
    return Result(f"pipeline {pipeline.name} {done}: {destination.describe()}; it goes on from {at}{before}")


def changed(pipeline: Pipeline, changes: list[SetField]) -> Pipeline:
    """The definition with other values.

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
        where = ".".join(str(part) for part in first["loc"])
        raise InvalidStatement(f"pipeline {pipeline.name}: {where}: {text[:1].lower() + text[1:]}") from None


def drop(home: Home, switches: Switches, statement: Drop) -> Result:
    """DROP PIPELINE, once it is stopped."""
    name = statement.pipeline
    if not exists(home, name):
        if statement.if_exists:
            return Result(f"there is no pipeline {name}")
        home.pipeline(name)  # says which there are
    try:
        kept = open_destination(home.pipeline(name), home).describe()
    except KpipeError:  # a definition that cannot be read can be dropped all the same
        kept = "its destination"
    home.remove(name)
    switches.forget(name)
    return Result(f"pipeline {name} dropped; rows, history and ledger stay in {kept}")


def show_pipelines(home: Home, switches: Switches) -> Result:
    """SHOW PIPELINES."""
    on = switches.on()
    return Result(columns=("pipeline", "state"), rows=[(name, state_of(home, name, name in on)) for name in home.names()])


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
