"""What a definition says of tables: columns that are not there, rules that need a key, and what changes the row of one."""

from __future__ import annotations

import re

from kpipe.definition.pipeline import Pipeline
from kpipe.errors import InvalidPipeline, SchemaConflict
from kpipe.ingest.prefetch import wanted
from kpipe.interfaces import Constrained, Keyed
from kpipe.schema.columns import Columns, Struct
from kpipe.tables.multi_table import paired
from kpipe.tables.upsert import KeyRule
from kpipe_assets.validation.case import Case, located, relocated
from kpipe_assets.validation.probes import try_values
from resources.duckdb_engine.expressions import Assigned, Evaluator
from resources.type_compatibility import COORDINATES

__all__ = ["check_columns", "check_key", "check_table", "check_update"]

_NULL = re.compile(r"(?:mysql:)?[\s(]*NULL[\s)]*", re.IGNORECASE)
_CLAUSES = {"replace": "REPLACE", "ignore": "SKIP DUPLICATE KEY ERRORS", "update": "ON DUPLICATE KEY UPDATE"}


def check_table(case: Case) -> None:
    """Ask for the columns of the tables that there are."""
    for at, (_, place) in enumerate(paired(case.pipeline, case.destination)):
        with relocated(at):
            case.tables.append(place.columns())


def check_columns(case: Case) -> None:
    """Whether the tables have the columns that are named, or will be given them, with types that go together."""
    for at, (part, table) in enumerate(zip(case.parts, case.tables, strict=True)):
        if table is None:
            continue
        with relocated(at):
            try:
                wanted(part, table, Columns)
            except SchemaConflict as error:
                error.about("columns")
                raise
            if part.evolution != "evolve":
                _check_named(case, at, part, table)
            _check_null(case, at, part)


def _check_named(case: Case, at: int, part: Pipeline, table: Columns) -> None:
    where = f"table {part.into.table} has no column"
    selection = case.selections[at]
    for name in selection.targets if selection is not None else ():
        if name not in table:
            raise SchemaConflict(
                f"pipeline {part.name}: set.{name}: {where} {name}, and schema is {part.evolution}",
                "add the column, or set schema: evolve",
            ).about("select" if part.select is not None else "set", name, word=name)
    spelt = (*(part.format.mapping or ()), *(part.format.fields or ())) if part.evolution == "fail" else ()
    chosen = {name.lower() for name in (selection.targets if selection is not None else ())}
    for name in spelt:
        if not name.startswith("@") and name not in table and name.lower() not in chosen:
            raise SchemaConflict(
                f"pipeline {part.name}: {where} {name}, and schema is fail",
                f"add the column, or name a variable, @{name}, if expressions alone take it",
            ).about("format", "columns", name, word=name)


def _check_null(case: Case, at: int, part: Pipeline) -> None:
    """Whether a column that takes no NULL is set to NULL for every record."""
    selection, (_, place) = case.selections[at], list(paired(case.pipeline, case.destination))[at]
    nulls = [name for name, text in (selection.assigned if selection is not None else ()) if _NULL.fullmatch(text)]
    required = {name.lower() for name in place.required()} if nulls and isinstance(place, Constrained) else set()
    for name in nulls:
        if name.lower() in required:
            raise SchemaConflict(
                f"pipeline {part.name}: set.{name}: column {name} of table {part.into.table} takes no NULL",
                "give it a value, or leave NOT NULL out of the table",
            ).about("select" if part.select is not None else "set", name)


def check_key(case: Case) -> None:
    """Whether the tables have the key that the rules for rows of the same key need.

    Of a table that does not exist yet only KEY says what the key is; CREATE TABLE may follow, so none is no error before the
    pipeline runs.
    """
    for at, (part, place) in enumerate(paired(case.pipeline, case.destination)):
        case.keys.append(())
        if KeyRule.of(part) is None:
            continue
        table, named = case.tables[at], part.into.key
        other = "into.on_null: delete" if part.into.on_null == "delete" else "errors.duplicate_key"
        clause = _CLAUSES.get(part.into.on_conflict, other)
        if named is None and table is None:
            case.said.append(
                f"table {part.into.table} does not exist yet, and {clause} needs a key: make it with a PRIMARY KEY before the"
                " pipeline starts, or name the columns, KEY (...) behind INTO TABLE"
            )
            continue
        with relocated(at):
            case.keys[-1] = _key(part, place, table, clause)


def _key(part: Pipeline, place: object, table: Columns | None, clause: str) -> tuple[str, ...]:
    """The columns of the key."""
    if part.into.key is not None:
        found = tuple(part.into.key)
    else:
        assert isinstance(place, Keyed)
        try:
            found = place.key()
        except InvalidPipeline as error:
            raise InvalidPipeline(
                f"pipeline {part.name}: {clause} needs a key, and table {part.into.table} has no primary key",
                "name its columns, KEY (...) behind INTO TABLE (into.key), or give the table a primary key",
            ).about("into", "on_conflict") from error
    rows = wanted(part, table, Columns) if table is not None else None
    lacking = [name for name in found if rows is not None and name not in rows]
    if lacking:
        there = table is not None and lacking[0] in table
        field = ("into", "key") if part.into.key is not None else ("into", "on_conflict")
        raise SchemaConflict(
            f"pipeline {part.name}: "
            + (
                f"rows get no value for {lacking[0]}, which is of the key"
                if there
                else f"table {part.into.table} has no column {lacking[0]}, which is of the key"
            ),
            "name it among the columns of FORMAT, or in SET" if there else "name other columns, or declare it under `columns`",
        ).about(*field, word=lacking[0])
    return found


def check_update(case: Case) -> None:
    """Whether ON DUPLICATE KEY UPDATE sets columns that there are, from such columns, to values of their types."""
    from resources.destinations.sql.conflict_expressions import NEW, OLD, assignments
    from resources.duckdb_engine.sql_types import sql_type

    for at, (part, table, key) in enumerate(zip(case.parts, case.tables, case.keys, strict=True)):
        if table is None or not part.into.update:
            continue
        rows = wanted(part, table, Columns)
        known = Columns((*table.without(COORDINATES.names()).items, *COORDINATES.items))
        sides = Struct(known.items)
        for column, text in part.into.update.items():
            with relocated(at), located(part, ("into", "update", column)):
                found = assignments({column: text}, rows.names(), key, known, part.into.table)
                kind = known.get(found.given[0])
                assert kind is not None
                inputs = Columns(((OLD, sides), (NEW, sides))) if found.read else Columns()
                value = f"CAST({found.values[found.given[0]]} AS {sql_type(kind)})"
                try_values(Evaluator(inputs, "", [Assigned(found.given[0], value, kind)]), inputs, text)
