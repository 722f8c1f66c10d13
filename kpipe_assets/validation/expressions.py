"""Check expressions: their syntax, the columns they read, and their types."""

from __future__ import annotations

from typing import Any

from kpipe.definition.formats import VARIABLE
from kpipe.definition.pipeline import Pipeline
from kpipe.errors import InvalidPipeline
from kpipe.expressions.projection import Selection
from kpipe.ingest.staging import filled, wanted
from kpipe.schema.columns import Columns
from kpipe_assets.validation.case import Case, located, relocated

__all__ = ["check_declared", "check_expressions", "check_sampled", "check_types"]


def check_expressions(case: Case) -> None:
    """Check that each text is one expression over the fields of one record."""
    for at, part in enumerate(case.parts):
        with relocated(at):
            if Selection.of(part) is None and not part.into.update:
                case.selections.append(None)
                continue
            from resources.duckdb_engine.expression_checks import check, checked_selection

            case.selections.append(checked_selection(part))
            for column, text in part.into.update.items():
                with located(part, ("into", "update", column)):
                    check(_one_row(text, part.into.table), column)


def _one_row(text: str, table: str) -> str:
    """Convert an expression of ON DUPLICATE KEY UPDATE to one over a single row, to check it without types.

    Raises:
        InvalidPipeline: it is not an expression, or calls an unsupported function.
    """
    from sqlglot import exp

    from kpipe.expressions.duckdb_dialect import parsed, to_duckdb
    from kpipe.expressions.errors import Untranslated
    from kpipe.expressions.languages import is_mysql

    def rule(node: Any) -> Any:
        if isinstance(node, exp.Column) and len(node.parts) == 2 and node.parts[0].name.lower() in ("excluded", table.lower()):
            return exp.column(node.parts[1].name, quoted=True)
        return node

    if is_mysql(text):
        return text
    try:
        return str(parsed(to_duckdb(text)).transform(rule).sql(dialect="duckdb", comments=False))
    except Untranslated as error:
        raise InvalidPipeline(error.what, error.hint) from error


def check_declared(case: Case) -> None:
    """Check expressions against declared types. Other columns of the table may have any type."""
    for at, (part, selection) in enumerate(zip(case.parts, case.selections, strict=True)):
        with relocated(at):
            _typed(case, part.model_copy(update={"evolution": "evolve"}), selection, filled(part, part.declared), None, False)


def check_types(case: Case) -> None:
    """Check expressions against the columns of existing tables."""
    for at, (part, selection, table) in enumerate(zip(case.parts, case.selections, case.tables, strict=True)):
        if table is not None:
            with relocated(at):
                _typed(case, part, selection, wanted(part, table, Columns), None, True)


def check_sampled(case: Case) -> None:
    """Check expressions against the types of the first records, and infer the columns of tables that do not exist."""
    sample = case.sample() if case.sample is not None else None
    if sample is None:
        return
    for at, (part, selection) in enumerate(zip(case.parts, case.selections, strict=True)):
        table = case.tables[at] if case.tables else None
        with relocated(at):
            if table is not None:
                _typed(case, part, selection, wanted(part, table, Columns), sample, True)
                continue
            declared = filled(part, part.declared)
            chosen = selection or Selection()
            found = sample.without((*declared.names(), *chosen.targets))
            if chosen.outputs is not None:
                found = found.without([name for name in found.names() if name.lower() not in chosen.outputs])
            columns = Columns((*declared.items, *found.items))
            new = _typed(case, part.model_copy(update={"evolution": "evolve"}), selection, columns, sample, True)
            if case.tables:
                case.tables[at] = Columns((*columns.items, *new.items))


def _typed(
    case: Case, part: Pipeline, selection: Selection | None, columns: Columns, sample: Columns | None, whole: bool
) -> Columns:
    """Check each expression whose values all have a known type.

    Args:
        case: the validation.
        part: definition of one table.
        selection: its expressions.
        columns: columns of the table, possibly not all.
        sample: columns of the first records, or None.
        whole: whether `columns` are all columns of the table.

    Returns:
        Columns of expressions that are not in `columns`.
    """
    if selection is None:
        return Columns()
    from kpipe_assets.validation.probes import try_condition, try_values
    from resources.duckdb_engine.expressions import Assigned, Evaluator, in_duckdb
    from resources.spark.task.projection import inputs_of
    from resources.spark.task.projection_plan import shaped

    shape = shaped(part, selection, columns, lambda: sample or Columns())
    if shape is None:
        return Columns()
    unknown = set() if sample is not None else {name.lower() for name in shape.guessed}
    if not whole:
        unknown |= _undeclared(part, selection, columns)
    inputs = inputs_of(shape)
    inputs = _with_elements(part, selection, inputs, unknown)
    inputs = _with_lookups(case, selection, inputs, unknown)
    if selection.where and not _names(selection.where) & unknown:
        with located(part, ("where",)):
            used = inputs if _names(selection.where) else Columns()
            try_condition(Evaluator(used, selection.where, ()), used, selection.where)
    new = []
    for name, text in selection.assigned:
        if _names(text) & unknown:
            continue
        with located(part, ("set", name)):
            used, kind = inputs if _names(text) else Columns(), columns.get(name)
            # If the column's type is unknown, any value is valid.
            any_value = f"CAST(({in_duckdb(used, f'set.{name}', text)}\n) AS VARCHAR)"
            value = text if whole or kind is not None else any_value
            evaluator = Evaluator(used, "", [Assigned(name, value, kind)])
            try_values(evaluator, used, text)
        new += [(name, kind) for name, kind in evaluator.columns if name not in columns]
    return Columns(tuple(new))


def _undeclared(part: Pipeline, selection: Selection, columns: Columns) -> set[str]:
    """Return names that may be columns of the table, so that their types are unknown."""
    assigned = {name.lower() for name in selection.targets}
    declared = {name.lower() for name in (*columns.names(), *part.columns)}
    found = {name.lower() for name in selection.wanted if not VARIABLE.fullmatch(name)}
    return set() if part.format.type == "raw" else found - assigned - declared


def _with_elements(part: Pipeline, selection: Selection, inputs: Columns, unknown: set[str]) -> Columns:
    """Add the elements of the list in UNNEST to the inputs."""
    from resources.spark.task.unnest import Lists

    if selection.unnest is None:
        return inputs
    if _names(selection.unnest.text) & unknown:
        unknown |= {name.lower() for name in selection.unnest.names}
        return inputs
    with located(part, ("select", "UNNEST")):
        elements = Lists(selection.unnest, inputs).columns
    return Columns((*inputs.without(elements.names()).items, *elements.items))


def _with_lookups(case: Case, selection: Selection, inputs: Columns, unknown: set[str]) -> Columns:
    """Add the columns of lookups to the inputs, if all lookups are files."""
    from resources.lookups.join import Join

    keys = {name for call in selection.calls for key in call.keys for name in _names(key)}
    if not selection.calls or keys & unknown or not case.lookups:
        unknown |= {name.lower() for name in selection.of_lookups()}
        return inputs
    return Join(selection.calls, case.lookups, inputs).columns


def _names(text: str) -> set[str]:
    """Return the names that an expression reads, in lower case."""
    from kpipe.expressions.languages import names_of

    return {name.lower() for name in names_of(text)}
