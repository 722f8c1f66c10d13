"""Check that each expression of a pipeline is one expression of one record, before its types are known."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import duckdb

from kpipe.definition.pipeline import Pipeline
from kpipe.errors import InvalidPipeline
from kpipe.expressions.languages import is_mysql
from kpipe.expressions.mysql.function_list import is_name
from kpipe.expressions.projection import Selection, field_of, shown_field
from kpipe.schema.columns import Columns
from resources.duckdb_engine import in_memory
from resources.duckdb_engine.error_messages import in_words
from resources.duckdb_engine.expressions import empty, in_duckdb, records

__all__ = ["check", "checked_selection"]

# Volatile functions (duckdb_functions(), DuckDB 2.0) that neither change anything nor wait.
_HARMLESS = {"random", "uuid", "uuidv4", "uuidv7", "gen_random_uuid", "error"}
_REFUSED_CLASSES = {
    "SUBQUERY": "a query",
    "WINDOW": "a window function",
    "STAR": "*",
    "PARAMETER": "a parameter",
}


def checked_selection(pipeline: Pipeline) -> Selection | None:
    """Return the pipeline's expressions, checked as far as that takes no record.

    Raises:
        InvalidPipeline: one cannot be run.
    """
    found = Selection.of(pipeline)
    for field, text in found.says() if found is not None else ():
        try:
            check(text, f"pipeline {pipeline.name}: {shown_field(field)}")
        except InvalidPipeline as error:
            error.about(*field_of(pipeline, field))
            raise
    return found


def check(text: str, where: str) -> None:
    """Check with DuckDB's parser that the text is one expression, and reads nothing but the row.

    Args:
        text: the expression, in DuckDB's SQL or MySQL's dialect.
        where: name of the expression in messages.

    Raises:
        InvalidPipeline: it is not one, or calls a function that changes or waits for something.
    """
    if is_mysql(text):  # its functions are checked now, its columns with the first batch
        in_duckdb(Columns(), where, text)
        return
    parsed = json.loads(in_memory.ask("SELECT json_serialize_sql($1)", [f"SELECT ({text}\n)"]))
    if parsed["error"]:
        raise InvalidPipeline(f"{where}: not an expression: {in_words(parsed['error_message'])}")
    nodes = [statement["node"] for statement in parsed["statements"]]
    plain = len(nodes) == 1 and nodes[0]["type"] == "SELECT_NODE" and len(nodes[0]["select_list"]) == 1
    extra = ("modifiers", "where_clause", "group_expressions", "group_sets", "having", "sample", "qualify")
    if not plain or nodes[0]["from_table"]["type"] != "EMPTY" or any(nodes[0][key] for key in extra):
        raise InvalidPipeline(f"{where}: not one expression")
    for node in _walk(nodes[0]["select_list"]):
        kind, name = node.get("class"), str(node.get("function_name", "")).lower()
        if kind in _REFUSED_CLASSES:
            raise InvalidPipeline(f"{where}: {_REFUSED_CLASSES[kind]} is not allowed", "write columns and functions")
        if kind == "FUNCTION" and name in _volatile() - _HARMLESS:
            raise InvalidPipeline(f"{where}: {name} is not allowed: it changes, waits for or reads the engine")
    nothing = Columns(tuple((name, None) for name in _names(nodes[0]["select_list"])))  # type: ignore[misc]
    try:
        in_memory.query(f"SELECT 1 FROM {records(nothing)} WHERE ({text}\n) IS NULL", empty(nothing))  # noqa: S608
    except duckdb.CatalogException as error:  # without types, only a missing function is certain
        called = (str(node.get("function_name", "")) for node in _walk(nodes[0]["select_list"]))
        is_mysql_function = any(is_name(name) and not _is_function(name) for name in called)
        hint = f"for MySQL's functions, begin the expression with mysql: `mysql: {text}`" if is_mysql_function else ""
        raise InvalidPipeline(f"{where}: {in_words(str(error))}", hint) from error
    except duckdb.BinderException as error:
        if "aggregates" in str(error) or "UNNEST" in str(error):
            raise InvalidPipeline(
                f"{where}: {in_words(str(error))}", "write an expression of one value for one record"
            ) from error
    except duckdb.Error:
        pass


def _walk(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        yield node
        for item in node.values():
            yield from _walk(item)
    elif isinstance(node, list):
        for item in node:
            yield from _walk(item)


def _names(node: Any) -> list[str]:
    by_lower_case = {
        str(item["column_names"][0]).lower(): item["column_names"][0] for item in _walk(node) if item.get("column_names")
    }
    return list(by_lower_case.values())


def _is_function(name: str) -> bool:
    return bool(in_memory.ask("SELECT count(*) FROM duckdb_functions() WHERE lower(function_name) = $1", [name.lower()]))


_known_volatile: set[str] = set()


def _volatile() -> set[str]:
    if not _known_volatile:
        sql = "SELECT list(DISTINCT lower(function_name)) FROM duckdb_functions() WHERE stability = 'VOLATILE'"
        _known_volatile.update(in_memory.ask(sql, []))
        _known_volatile.update(("query", "query_table", "getenv", "getvariable", "current_setting"))
    return _known_volatile
