"""State of a validation: the definition and the results of earlier steps."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from kpipe.definition.pipeline import Pipeline
from kpipe.definition.references import rotates
from kpipe.definition.yaml_codec import resolve
from kpipe.errors import InvalidPipeline, KpipeError
from kpipe.expressions.projection import Selection, field_of, shown_field
from kpipe.interfaces import Destination
from kpipe.schema.columns import Columns
from kpipe.tables.multi_table import field_of_table, table_pipelines
from resources.destinations import open_destination
from resources.home import Home
from resources.secret_references import PLACEHOLDER, secret

if TYPE_CHECKING:
    from resources.lookups.reference_table import LookupRows

__all__ = ["PATIENCE_S", "Case", "Hurried", "Later", "located", "relocated", "with_placeholders"]

# Fields that each table has.
_OF_TABLES = ("into", "select", "where", "set", "columns")


# Credentials that have a form.
_PLACEHOLDERS = {
    "url": "https://example.invalid/",
    "signing_secret": PLACEHOLDER * 24,
    "service.account.key": f'{{"client_email": "{PLACEHOLDER}", "private_key": "{PLACEHOLDER}"}}',
    "account.key": PLACEHOLDER * 4,  # in base64
}
#: Longest wait for a destination's server in a statement, where a missing answer is only a note.
PATIENCE_S = 5.0


@runtime_checkable
class Hurried(Protocol):
    """A destination with a limit on the wait for its server."""

    def hurry(self, seconds: float) -> None:
        """Wait at most this long for the server, over all connections."""
        ...


class Later(dict[str, str]):
    """The environment, with a placeholder for unset variables, which are required only when the pipeline runs."""

    def get(self, key: str, default: Any = None) -> Any:
        """Return a variable's value, else the default, else a placeholder."""
        return os.environ.get(key, default if default is not None else "x")


@dataclass
class Case:
    """A definition during its validation.

    Attributes:
        pipeline: the definition.
        home: KPIPE_HOME.
        opened: the destination, if the caller has opened it.
        sample: returns the columns of the first records.
        environ: values for templates.
        selections: expressions of each table; set by the step `expressions`.
        lookups: lookups from files, loaded; set by the step `lookups`.
        tables: columns of each table, or None if it does not exist; set by the steps `table` and `records`.
        keys: key columns of each table; empty without a key or if it is not defined yet.
        unasked: why the destination was not queried; empty if it was.
        remarks: notes that are not errors.
    """

    pipeline: Pipeline
    home: Home
    opened: Destination | None = None
    sample: Callable[[], Columns] | None = None
    environ: Mapping[str, str] = field(default_factory=Later)
    selections: list[Selection | None] = field(default_factory=list)
    lookups: Mapping[str, LookupRows] = field(default_factory=dict)
    tables: list[Columns | None] = field(default_factory=list)
    keys: list[tuple[str, ...]] = field(default_factory=list)
    unasked: str = ""
    remarks: list[str] = field(default_factory=list)

    @cached_property
    def parts(self) -> tuple[Pipeline, ...]:
        """Definition of each table."""
        return table_pipelines(self.pipeline)

    @property
    def connects(self) -> bool:
        """Return whether the destination may be queried: a check reads no file and runs no command of its credentials."""
        return self.opened is not None or not rotates(self.pipeline.into.credentials.values())

    @cached_property
    def destination(self) -> Destination:
        """Destination of the pipeline; unless `connects`, with placeholders for credentials."""
        if self.opened is not None:
            return self.opened
        destination = open_destination(self.pipeline if self.connects else with_placeholders(self.pipeline), self.home)
        if isinstance(destination, Hurried):
            destination.hurry(PATIENCE_S)
        return destination

    def without_tables(self, why: str) -> None:
        """Continue as if no table existed."""
        self.unasked = why
        self.tables, self.keys = [None] * len(self.parts), [()] * len(self.parts)

    def notes(self) -> list[str]:
        """Return the notes of the validation."""
        return [*self.remarks, *([self.unasked] if self.unasked else [])]


def with_placeholders(pipeline: Pipeline) -> Pipeline:
    """Return the definition with resolved credentials of `into`.

    Files, commands and unset variables, which only a run needs, are replaced by placeholders.

    Raises:
        InvalidPipeline: a template is invalid.
    """
    into, resolved = pipeline.into, {}
    for key, template in into.credentials.items():
        try:
            secret(template, Later(), read=False)
        except InvalidPipeline as error:
            # From None: tracebacks show chained errors, and the template itself may be the secret.
            raise InvalidPipeline(f"into.credentials: {key}: {error.what}", error.hint).about(
                "into", "credentials", key
            ) from None
        try:
            resolved[key] = resolve(template)
        except InvalidPipeline:  # it needs a file, a command or a variable that is not set
            resolved[key] = _PLACEHOLDERS.get(key, PLACEHOLDER)
    return pipeline.model_copy(update={"into": into.model_copy(update={"credentials": resolved})})


@contextmanager
def relocated(at: int) -> Iterator[None]:
    """Convert the field of an error about one table to its path in the whole definition."""
    try:
        yield
    except KpipeError as error:
        if error.field and error.field[0] in _OF_TABLES:
            error.field = field_of_table(at, *error.field)
        raise


@contextmanager
def located(pipeline: Pipeline, field: tuple[str, ...]) -> Iterator[None]:
    """Add the field to the message and `field` of an expression's error."""
    try:
        yield
    except InvalidPipeline as error:
        shown = shown_field(field)
        what = error.what
        for prefix in (
            f"pipeline {pipeline.name}: ",
            f"{shown}: ",
            "into.update: ",
            f"{field[-1]}: ",
            f"set.{field[-1]}: ",
            "set: ",
        ):
            what = what.removeprefix(prefix)
        located_error = InvalidPipeline(f"pipeline {pipeline.name}: {shown}: {what}", error.hint)
        raise located_error.about(*field_of(pipeline, field), word=error.word) from error
