"""The one validation of a definition: named steps, from what it says by itself to what its table and its brokers say."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum

from kpipe.definition.pipeline import Pipeline
from kpipe.errors import InvalidPipeline, KpipeError, NotAvailable, SchemaConflict
from kpipe.interfaces import Destination
from kpipe.schema.columns import Columns
from kpipe.tables.multi_table import check_targets
from kpipe_assets.validation import definition, expressions, table
from kpipe_assets.validation.case import Case, Later
from kpipe_assets.validation.formats import check_formats
from resources.home import Home

__all__ = ["STEPS", "Needs", "Step", "validate"]


class Needs(IntEnum):
    """What a step reads: fields alone, files and settings of this machine, the table at its destination, records."""

    FIELDS = 0
    FILES = 1
    TABLE = 2
    RECORDS = 3


@dataclass(frozen=True)
class Step:
    """One question to a definition.

    Attributes:
        name: of the step.
        needs: what it asks.
        field: what its errors are about, where they do not say it themselves.
        run: raises what is wrong.
    """

    name: str
    needs: Needs
    field: tuple[str, ...]
    run: Callable[[Case], None]


#: In order: a step may rely on what those before it have found.
STEPS = (
    Step("available", Needs.FIELDS, (), lambda case: definition.check_available(case.pipeline)),
    Step("targets", Needs.FIELDS, ("also",), lambda case: check_targets(case.pipeline)),
    Step("formats", Needs.FIELDS, ("format", "type"), lambda case: check_formats(case.pipeline)),
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
# Anything else that a destination answers (it cannot be reached, its ledger does not fit) is nothing that the definition says.
_ABOUT_DEFINITION = (InvalidPipeline, NotAvailable, SchemaConflict)


def validate(
    pipeline: Pipeline,
    home: Home,
    needs: Needs = Needs.TABLE,
    destination: Destination | None = None,
    sample: Callable[[], Columns] | None = None,
    environ: Mapping[str, str] | None = None,
) -> list[str]:
    """Check a definition, step by step, as far as `needs` allows. Changes nothing.

    - files of a home and Dagster's components, as they are loaded: fields.
    - INFER, and runs before they connect: files.
    - CREATE, ALTER, REPLAY and runs (`Run.passes`): the table, where there is one and it can be asked.
    - TEST: records.

    Args:
        pipeline: the definition.
        home: where its files lie.
        needs: what may be asked.
        destination: the pipeline's; opened when it is needed.
        sample: gives the columns of the first records, as they are without expressions.
        environ: of a run; None: that of a run is not known yet, and variables need not be set.

    Returns:
        What could not be checked, each as a sentence.

    Raises:
        InvalidPipeline, NotAvailable, SchemaConflict: the first thing that is wrong; `field` names where.
    """
    case = Case(pipeline, home, destination, sample, Later() if environ is None else environ)
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
            case.without_tables(f"its table could not be asked ({error.what}), so that columns, types and key were not checked")
    return case.notes()
