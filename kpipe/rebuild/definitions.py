"""Definitions of a rebuild: of the pipeline that loads the new table, and of the old table after the exchange."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from kpipe.definition.pipeline import Pipeline
from kpipe.definition.secret_values import shown
from kpipe.errors import InvalidPipeline, InvalidStatement, NotAvailable
from kpipe.rebuild.exchange import TableNames
from kpipe.tables.field_tables import refused_by_field
from kpipe.tables.upsert import rows_first

__all__ = ["REBUILD", "REPLACED", "check", "check_unchanged", "rebuilding", "renamed", "table_names"]

#: Endings of the names of a pipeline and its tables: while it is rebuilt, and of the old ones after the exchange.
REBUILD, REPLACED = "_rebuild", "_replaced"


def check(live: Pipeline, new: Pipeline) -> None:
    """Check that a pipeline can be rebuilt with a new definition.

    Raises:
        InvalidPipeline: the definitions differ in what a rebuild does not change.
        NotAvailable: a field of the definition excludes a rebuild.
    """
    for name in ("name", "into.type", "into.database"):
        before, after = (_value(pipeline, name) for pipeline in (live, new))
        if before != after:
            expected, found = (shown(tuple(name.split(".")), value) for value in (before, after))
            raise InvalidPipeline(
                f"pipeline {live.name}: {name}: a rebuild keeps it: expected {expected}, found {found}", "undo the change"
            ).about(*name.split("."))
    before, after = ([table.table for table in pipeline.tables] for pipeline in (live, new))
    if before != after:
        raise InvalidPipeline(
            f"pipeline {live.name}: a rebuild keeps the tables: expected {', '.join(before)}, found {', '.join(after)}",
            "load other tables with a pipeline of another name",
        )
    for pipeline in (live, new):
        refused_by_field(pipeline, "kpipe rebuild", "load other tables with a pipeline of another name and another template")
        if pipeline.into.by_topic:
            raise NotAvailable(
                f"pipeline {live.name}: into.table {pipeline.into.table}: a table for each topic cannot be rebuilt",
                "load the topics into other tables with a pipeline of another name and another template",
            )
        if pipeline.source.end is not None:
            raise NotAvailable(f"pipeline {live.name}: source.end: a bounded pipeline cannot be rebuilt", "use another name")
        if rows_first(pipeline):
            raise NotAvailable(
                f"pipeline {live.name}: delivery: at_least_once: rows commit before the ledger, so a batch that was planned"
                " before the exchange could put rows into the new table",
                "set delivery: exactly_once first",
            )


def check_unchanged(live: str, pipeline: Pipeline, before: Mapping[str, Any]) -> None:
    """Check that a definition is still that of the beginning of the rebuild: the exchange stores the one given there.

    Args:
        live: name of the pipeline that is rebuilt.
        pipeline: the present definition, of the live pipeline or of its rebuild.
        before: its fields when the rebuild began.

    Raises:
        InvalidStatement: a field was edited.
    """
    now = pipeline.to_dict()
    if edited := sorted(name for name in {**now, **before} if now.get(name) != before.get(name)):
        raise InvalidStatement(
            f"pipeline {pipeline.name} was edited after its rebuild had begun: {', '.join(edited)}; the exchange would undo that",
            f"undo the edit; or kpipe rebuild {live} --cancel, then begin again with the edited definition: --file",
        )


def rebuilding(new: Pipeline, start: Any) -> Pipeline:
    """Return the definition of the pipeline that loads the new tables, from a start position.

    Raises:
        InvalidPipeline: a name is too long, or the position is invalid.
    """
    fields = _named(new, REBUILD)
    fields["source"] = {**fields["source"], "start": start}
    fields["source"].pop("group", None)  # the group follows the live pipeline
    return _made(fields)


def renamed(live: Pipeline) -> Pipeline:
    """Return the definition of the old tables after the exchange, with which `kpipe verify` proves them."""
    fields = _named(live, REPLACED)
    fields["source"].pop("group", None)
    return _made(fields)


def table_names(live: Pipeline) -> tuple[TableNames, ...]:
    """Return the names of each table before and after the exchange."""
    return tuple(TableNames(one.table, one.table + REBUILD, one.table + REPLACED) for one in live.tables)


def _named(pipeline: Pipeline, ending: str) -> dict[str, Any]:
    fields = pipeline.to_dict()
    fields["name"] = pipeline.name + ending
    fields["into"] = _of_table(fields["into"], pipeline.into.table, ending)
    if "errors" in fields:  # dead letters are written to the topic under the live pipeline's name only
        fields["errors"] = {name: value for name, value in fields["errors"].items() if name != "topic"}
    if pipeline.also:
        fields["also"] = [_of_table(one, one["table"], ending) for one in fields["also"]]
    return fields


def _of_table(fields: Mapping[str, Any], table: str, ending: str) -> dict[str, Any]:
    """Return the fields of a table with its new name, by which expressions of `update` may qualify columns."""
    found = {**fields, "table": table + ending}
    if "update" in fields:
        from kpipe.expressions.languages import requalified  # loads the compilers of expressions

        found["update"] = {column: requalified(text, table, table + ending) for column, text in fields["update"].items()}
    return found


def _made(fields: Mapping[str, Any]) -> Pipeline:
    try:
        return Pipeline.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        if first["loc"][:2] == ("source", "start"):
            raise InvalidPipeline(
                f"pipeline {fields['name']}: source.start: not a position",
                """write earliest, latest, a time such as 2026-11-26T00:00:00Z, or offsets such as '{"0": 120}'""",
            ) from None
        path = ".".join(map(str, first["loc"]))
        raise InvalidPipeline(f"pipeline {fields['name']}: {path}: {first['msg']}", "use a shorter name") from None


def _value(pipeline: Pipeline, name: str) -> Any:
    found: Any = pipeline
    for part in name.split("."):
        found = getattr(found, part)
    return found
