"""Validate a definition in named steps: fields, files of this machine, the table, the first records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum

from kpipe.definition.pipeline import Pipeline
from kpipe.errors import InvalidPipeline, KpipeError, NotAvailable, SchemaConflict
from kpipe.interfaces import Destination
from kpipe.schema.columns import Columns
from kpipe.tables.field_tables import check_by_field
from kpipe.tables.multi_table import check_tables
from kpipe.tables.topic_tables import check_by_topic
from kpipe_assets.validation import definition, expressions, table
from kpipe_assets.validation.case import Case, Later
from resources.home import Home

__all__ = ["STEPS", "Case", "Needs", "Step", "validate", "validate_case"]


class Needs(IntEnum):
    """The input of a step: only fields, files and settings of this machine, the table at its destination, or records."""

    FIELDS = 0
    FILES = 1
    TABLE = 2
    RECORDS = 3


@dataclass(frozen=True)
class Step:
    """A step of the validation.

    Attributes:
        name: name of the step.
        needs: input of the step.
        field: field of its errors that do not name one.
        run: raises the error.
    """

    name: str
    needs: Needs
    field: tuple[str, ...]
    run: Callable[[Case], None]


def _check_targets(case: Case) -> None:
    check_tables(case.pipeline)
    check_by_topic(case.pipeline)
    check_by_field(case.pipeline)


#: In order: a step may use the results of earlier ones.
STEPS = (
    Step("available", Needs.FIELDS, (), lambda case: definition.check_available(case.pipeline)),
    Step("targets", Needs.FIELDS, ("also",), _check_targets),
    Step("formats", Needs.FIELDS, ("format", "type"), lambda case: definition.check_formats(case.pipeline)),
    Step("expressions", Needs.FIELDS, (), expressions.check_expressions),
    Step("source", Needs.FILES, ("source",), definition.check_source),
    Step("program", Needs.FILES, ("transform",), definition.check_program),
    Step("destination", Needs.FILES, ("into", "type"), definition.check_destination),
    Step("lookups", Needs.FILES, ("lookups",), definition.check_lookups),
    Step("declared types", Needs.FILES, (), expressions.check_declared),
    Step("table", Needs.TABLE, ("into", "table"), table.check_table),
    Step("columns", Needs.TABLE, (), table.check_columns),
    Step("key", Needs.TABLE, ("into", "on_conflict"), table.check_key),
    Step("types", Needs.TABLE, (), expressions.check_types),
    Step("update", Needs.TABLE, ("into", "update"), table.check_update),
    Step("records", Needs.RECORDS, (), expressions.check_sampled),
    Step("update of records", Needs.RECORDS, ("into", "update"), table.check_update),
)
# Errors about the definition. Others (a server does not answer, a ledger does not match) are not.
_ABOUT_DEFINITION = (InvalidPipeline, NotAvailable, SchemaConflict)
_NOT_CONNECTED = (
    "columns, types and key were not checked: into.credentials refers to a file or a command, which a run reads, but no check"
)


def validate(
    pipeline: Pipeline,
    home: Home,
    needs: Needs = Needs.TABLE,
    destination: Destination | None = None,
    sample: Callable[[], Columns] | None = None,
    environ: Mapping[str, str] | None = None,
) -> list[str]:
    """Check a definition in steps, up to `needs`. Changes nothing.

    No file and no command of a credential is read. Without them a table may not be accessible, and is not checked. A
    destination that the caller has opened is always queried.

    - Loading a home's files or Dagster components: fields.
    - INFER, and runs before they connect: files.
    - CREATE, ALTER, REPLAY and runs (`Run.passes`): the table, if it exists and its server answers.
    - TEST: records.

    Args:
        pipeline: the definition.
        home: KPIPE_HOME.
        needs: the last input to check.
        destination: the pipeline's destination; default: opened when it is needed.
        sample: returns the columns of the first records, without expressions.
        environ: environment of the run; None: not a run, so variables may be unset.

    Returns:
        Notes about checks that were not possible, each a sentence.

    Raises:
        InvalidPipeline, NotAvailable, SchemaConflict: the first error; its `field` names the field.
    """
    return validate_case(Case(pipeline, home, destination, sample, Later() if environ is None else environ), needs)


def validate_case(case: Case, needs: Needs = Needs.TABLE) -> list[str]:
    """Check a definition and keep its destination open for the caller (`Case.destination`); see `validate`."""
    if needs >= Needs.TABLE and not case.connects:
        case.without_tables(_NOT_CONNECTED)
    for step in STEPS:
        if step.needs > needs or (step.needs == Needs.TABLE and case.unasked):
            continue
        try:
            step.run(case)
        except _ABOUT_DEFINITION as error:
            error.about(*step.field)
            raise
        except KpipeError as error:
            if step.needs != Needs.TABLE:
                error.about(*step.field)
                raise
            case.without_tables(f"columns, types and key were not checked: the table could not be read ({error.what})")
    return case.notes()
