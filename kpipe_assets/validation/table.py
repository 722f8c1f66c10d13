"""Check a definition against its tables: missing columns, the key, and expressions of ON DUPLICATE KEY UPDATE."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kpipe.definition.pipeline import Pipeline
from kpipe.errors import InvalidPipeline, SchemaConflict
from kpipe.expressions.languages import body_of
from kpipe.expressions.projection import Selection, field_of
from kpipe.ingest.staging import wanted
from kpipe.interfaces import Constrained, Keyed
from kpipe.schema.columns import Columns, Struct
from kpipe.tables.multi_table import table_destinations
from kpipe.tables.upsert import KeyRule
from kpipe_assets.validation.case import Case, located, relocated
from resources.type_compatibility import COORDINATES

__all__ = ["check_columns", "check_key", "check_table", "check_update"]

_NULL = re.compile(r"(?:mysql:)?[\s(]*NULL[\s)]*", re.IGNORECASE)
_CLAUSES = {"replace": "REPLACE", "ignore": "SKIP DUPLICATE KEY ERRORS", "update": "ON DUPLICATE KEY UPDATE"}


def check_table(case: Case) -> None:
    """Read the columns of existing tables."""
    for at, (_, place) in enumerate(table_destinations(case.pipeline, case.destination)):
        with relocated(at):
            case.tables.append(place.columns())


def check_columns(case: Case) -> None:
    """Check that tables have the named columns, or get them by schema evolution, with compatible types."""
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
    mapped = (*(part.format.mapping or ()), *(part.format.fields or ())) if part.evolution == "fail" else ()
    chosen = {name.lower() for name in (selection.targets if selection is not None else ())}
    for name in mapped:
        if not name.startswith("@") and name not in table and name.lower() not in chosen:
            raise SchemaConflict(
                f"pipeline {part.name}: {where} {name}, and schema is fail",
                f"add the column, or use a variable, @{name}, if only expressions read it",
            ).about("format", "columns", name, word=name)


def _check_null(case: Case, at: int, part: Pipeline) -> None:
    """Check that no NOT NULL column is set to NULL for every record."""
    selection, (_, place) = case.selections[at], list(table_destinations(case.pipeline, case.destination))[at]
    nulls = [name for name, text in (selection.assigned if selection is not None else ()) if _NULL.fullmatch(text)]
    required = {name.lower() for name in place.required()} if nulls and isinstance(place, Constrained) else set()
    for name in nulls:
        if name.lower() in required:
            raise SchemaConflict(
                f"pipeline {part.name}: set.{name}: column {name} of table {part.into.table} is NOT NULL",
                "set it to a value, or remove NOT NULL from the table",
            ).about("select" if part.select is not None else "set", name)


def check_key(case: Case) -> None:
    """Check that tables have the key that clauses about duplicates require.

    For a table that does not exist yet, only KEY defines the key. CREATE TABLE may follow, so a missing key is a note.
    """
    for at, (part, place) in enumerate(table_destinations(case.pipeline, case.destination)):
        case.keys.append(())
        if KeyRule.of(part) is None:
            continue
        table, named = case.tables[at], part.into.key
        other = "into.on_null: delete" if part.into.on_null == "delete" else "errors.duplicate_key"
        clause = _CLAUSES.get(part.into.on_conflict, other)
        if named is None and table is None:
            case.remarks.append(
                f"table {part.into.table} does not exist yet, and {clause} requires a key: create it with a PRIMARY KEY before"
                " the pipeline starts, or write KEY (...) after INTO TABLE"
            )
            continue
        with relocated(at):
            case.keys[-1] = _key(part, place, table, clause)
            _check_deletes(part, case.selections[at], case.keys[-1])


def _check_deletes(part: Pipeline, selection: Selection | None, key: Sequence[str]) -> None:
    """Check that rows have the keys of their records: a delete has no row from which an expression could compute one."""
    folded = {name.lower() for name in key} if part.into.on_null == "delete" else set()
    for name, text in selection.assigned if selection is not None else ():
        if name.lower() in folded and body_of(text).strip('"`').lower() != name.lower():
            raise InvalidPipeline(
                f"pipeline {part.name}: set.{name}: computes a column of the key, and into.on_null: delete reads the key of a"
                " record without expressions: expected the column unchanged",
                f"leave {name} out of the expressions: format.mapping renames a field, key_format gives columns of the key",
            ).about(*field_of(part, ("set", name)))


def _key(part: Pipeline, place: object, table: Columns | None, clause: str) -> tuple[str, ...]:
    """Return the columns of the key."""
    if part.into.key is not None:
        key = tuple(part.into.key)
    else:
        assert isinstance(place, Keyed)
        try:
            key = place.key()
        except InvalidPipeline as error:
            raise InvalidPipeline(
                f"pipeline {part.name}: {clause} requires a key, and table {part.into.table} has no primary key",
                "write KEY (...) after INTO TABLE (into.key), or add a primary key to the table",
            ).about("into", "on_conflict") from error
    rows = wanted(part, table, Columns) if table is not None else None
    missing = [name for name in key if rows is not None and name not in rows]
    if missing:
        in_table = table is not None and missing[0] in table
        field = ("into", "key") if part.into.key is not None else ("into", "on_conflict")
        raise SchemaConflict(
            f"pipeline {part.name}: "
            + (
                f"rows have no value for key column {missing[0]}"
                if in_table
                else f"key column {missing[0]} does not exist in table {part.into.table}"
            ),
            "add it to the columns of FORMAT, or to SET" if in_table else "name other columns, or declare it under `columns`",
        ).about(*field, word=missing[0])
    return key


def check_update(case: Case) -> None:
    """Check that ON DUPLICATE KEY UPDATE reads and sets existing columns, with values of their types."""
    from resources.destinations.sql.merge.conflict_expressions import NEW, OLD, assignments
    from resources.duckdb_engine.sql_types import sql_type

    for at, (part, table, key) in enumerate(zip(case.parts, case.tables, case.keys, strict=True)):
        if table is None or not part.into.update:
            continue
        from kpipe_assets.validation.probes import try_values
        from resources.duckdb_engine.expressions import Assigned, Evaluator

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
