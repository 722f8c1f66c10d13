"""Map columns to values of expressions: each of kpipe's types to a type of MySQL's."""

from __future__ import annotations

import re
from collections.abc import Callable

from kpipe.expressions.json_text import contains, json_text
from kpipe.expressions.mysql.json.json_paths import scalar
from kpipe.expressions.mysql.moments import within_years
from kpipe.expressions.mysql.values import Value
from kpipe.schema.columns import Columns, Type

__all__ = ["Resolve", "column_name", "of_column", "of_columns"]

#: Returns the value of a column for the parts of its name, as written.
Resolve = Callable[[tuple[str, ...]], Value]


def of_column(sql: str, kind: Type | None) -> Value:
    """Return the value of a column of that type; None: unknown, treated as text."""
    name = str(kind) if kind is not None else "VARCHAR"
    if name in ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER"):
        return Value(f"CAST({sql} AS BIGINT)", "int")
    if name in ("UBIGINT", "HUGEINT"):
        digits = 38 if name == "HUGEINT" else 20
        return Value(f"CAST({sql} AS DECIMAL({digits},0))", "decimal", digits, unsigned=name == "UBIGINT")
    if name.startswith("DECIMAL"):
        precision, scale = map(int, re.findall(r"\d+", name))
        return Value(sql, "decimal", precision, scale)
    if name in ("FLOAT", "DOUBLE"):
        return Value(f"CAST({sql} AS DOUBLE)", "double", single=name == "FLOAT")
    if name == "TIMESTAMP WITH TIME ZONE":
        return Value(within_years(f"({sql} AT TIME ZONE 'UTC')"), "datetime")
    kinds = {
        "VARCHAR": "text",
        "BOOLEAN": "bool",
        "BLOB": "blob",
        "DATE": "date",
        "TIMESTAMP": "datetime",
        "TIME": "time",
        "JSON": "json",
    }
    if name in ("DATE", "TIMESTAMP"):
        return Value(within_years(sql, name), kinds[name])
    if name in kinds:
        return Value(sql, kinds[name])
    if name == "UUID":
        return Value(f"CAST({sql} AS VARCHAR)", "text")
    divided = kind is not None and contains(kind, {"JSON", "BLOB"})
    return Value(f"CAST({json_text(sql, kind)} AS JSON)" if kind is not None and divided else f"to_json({sql})", "json")


def of_columns(columns: Columns) -> Resolve:
    """Return a resolver for these columns. The caller must report names that are not among them."""
    folded = {name.lower(): (name, kind) for name, kind in columns}

    def resolve(parts: tuple[str, ...]) -> Value:
        name, kind = folded.get(parts[-1].lower(), (parts[-1], None))
        value = of_column(column_name(name), kind)
        return scalar(value) if name.startswith("@") and value.kind == "json" else value

    return resolve


def column_name(name: str) -> str:
    """Quote a column name for DuckDB's SQL."""
    return '"' + name.replace('"', '""') + '"'
