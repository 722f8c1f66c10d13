"""Functions in Python that compiled MySQL expressions call. Arrow and NumPy are imported when one of them is called first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from duckdb.func import FunctionNullHandling, PythonUDFType

from kpipe.expressions.mysql.functions import byte_operations
from kpipe.expressions.mysql.json import document_functions

if TYPE_CHECKING:
    import duckdb

__all__ = ["register"]


def register(connection: duckdb.DuckDBPyConnection) -> None:
    """Register the functions with a connection."""
    for name, result in document_functions.NAMES.items():
        connection.create_function(
            name,
            _documents if result == "JSON" else _texts,
            ["VARCHAR", "VARCHAR[]"],
            result,
            type=PythonUDFType.ARROW,
            null_handling=FunctionNullHandling.SPECIAL,  # functions receive NULL as an argument
        )
    connection.create_function(
        byte_operations.NAME,
        byte_operations.call,
        ["VARCHAR", "VARCHAR[]"],
        "VARCHAR",
        null_handling=FunctionNullHandling.SPECIAL,
    )


# DuckDB evaluates the annotations of functions: they must not name Arrow's types.


def _documents(names: Any, args: Any) -> Any:
    from resources.duckdb_engine import json_members

    return json_members.documents(names, args)


def _texts(names: Any, args: Any) -> Any:
    from resources.duckdb_engine import json_members

    return json_members.texts(names, args)
