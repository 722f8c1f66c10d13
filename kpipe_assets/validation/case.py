"""What the steps of a validation share: the definition, and what earlier steps have found."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

from kpipe.definition.pipeline import Pipeline
from kpipe.errors import InvalidPipeline, KpipeError
from kpipe.expressions.projection import Selection, field_of, shown_field
from kpipe.interfaces import Destination
from kpipe.schema.columns import Columns
from kpipe.tables.multi_table import targets
from resources.destinations import open_destination
from resources.home import Home
from resources.lookups.reference_table import Held

__all__ = ["PATIENCE_S", "Case", "Hurried", "Later", "located", "relocated"]

# Fields that each table has of its own.
_OF_TABLES = ("into", "select", "where", "set", "columns")


#: Longest wait for the server of a destination, where a person waits for the answer and it is no error if none comes.
PATIENCE_S = 5.0


@runtime_checkable
class Hurried(Protocol):
    """What a destination can besides: wait for its server as long as it is told."""

    def hurry(self, seconds: float) -> None:
        """Wait no longer than this for a server that does not answer."""
        ...


class Later(dict[str, str]):
    """The environment, with something for every variable that is not set: it is needed when the pipeline runs."""

    def get(self, key: str, default: Any = None) -> Any:
        """A variable's value, else the default, else something."""
        return os.environ.get(key, default if default is not None else "x")


@dataclass
class Case:
    """One definition that is validated.

    Attributes:
        pipeline: the definition.
        home: where its files lie.
        opened: its destination, where the caller has it.
        sample: gives the columns of the first records.
        environ: where variables of templates are taken from.
        selections: of each table, its expressions; filled by the step `expressions`.
        lookups: those that are files, read; filled by the step `lookups`.
        tables: of each table its columns, None where it does not exist; filled by the steps `table` and `records`.
        keys: of each table the columns of its key; none where rows have none or nothing says which.
        unasked: why the destination was not asked; empty: it was.
        said: what is no error, and worth a sentence.
    """

    pipeline: Pipeline
    home: Home
    opened: Destination | None = None
    sample: Callable[[], Columns] | None = None
    environ: Mapping[str, str] = field(default_factory=Later)
    selections: list[Selection | None] = field(default_factory=list)
    lookups: Mapping[str, Held] = field(default_factory=dict)
    tables: list[Columns | None] = field(default_factory=list)
    keys: list[tuple[str, ...]] = field(default_factory=list)
    unasked: str = ""
    said: list[str] = field(default_factory=list)

    @cached_property
    def parts(self) -> tuple[Pipeline, ...]:
        """The definition for each table."""
        return targets(self.pipeline)

    @cached_property
    def destination(self) -> Destination:
        """The pipeline's destination."""
        if self.opened is not None:
            return self.opened
        found = open_destination(self.pipeline, self.home)
        if isinstance(found, Hurried):
            found.hurry(PATIENCE_S)
        return found

    def without_tables(self, why: str) -> None:
        """Go on as if no table existed."""
        self.unasked = why
        self.tables, self.keys = [None] * len(self.parts), [()] * len(self.parts)

    def notes(self) -> list[str]:
        """What could not be checked, and what is no error."""
        return [*self.said, *([self.unasked] if self.unasked else [])]


@contextmanager
def relocated(at: int) -> Iterator[None]:
    """Name fields of a further table as the whole definition does; those of the first one are its own."""
    try:
        yield
    except KpipeError as error:
        if at and error.field and error.field[0] in _OF_TABLES:
            error.field = ("also", str(at - 1), *(error.field[1:] if error.field[0] == "into" else error.field))
        raise


@contextmanager
def located(pipeline: Pipeline, field: tuple[str, ...]) -> Iterator[None]:
    """Name the field, in messages and in `field`, where an expression does not know in which it stands."""
    try:
        yield
    except InvalidPipeline as error:
        shown = shown_field(field)
        what = error.what
        for said in (
            f"pipeline {pipeline.name}: ",
            f"{shown}: ",
            "into.update: ",
            f"{field[-1]}: ",
            f"set.{field[-1]}: ",
            "set: ",
        ):
            what = what.removeprefix(said)
        found = InvalidPipeline(f"pipeline {pipeline.name}: {shown}: {what}", error.hint)
        raise found.about(*field_of(pipeline, field), word=error.word) from error
