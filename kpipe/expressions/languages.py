"""The two languages of expressions: DuckDB's SQL, and MySQL's behind the word `mysql:`.

A definition in YAML or Python is written in DuckDB's SQL; an expression that begins with `mysql:` means what it means in MySQL
and SingleStore. Statements are the other way round: their expressions are MySQL's, and DUCKDB('...') holds one of DuckDB's. So
each text says by itself what it means, wherever it stands.
"""

from __future__ import annotations

import re

from kpipe.expressions import duckdb_dialect
from kpipe.expressions.mysql.columns import Resolve
from kpipe.expressions.mysql.compiler import check, columns_of, compiled, duckdb_text
from kpipe.expressions.mysql.values import Value, boolean, number, text, time
from kpipe.expressions.quoting import quoted

__all__ = ["body_of", "checked", "is_mysql", "names_of", "of_mysql", "read_expression", "to_duckdb", "write_expression"]

_MYSQL = re.compile(r"\s*mysql:", re.IGNORECASE)


def is_mysql(written: str) -> bool:
    """Return whether the expression is in MySQL's language."""
    return _MYSQL.match(written) is not None


def body_of(written: str) -> str:
    """Return the expression without the word that says its language."""
    return _MYSQL.sub("", written, count=1).strip()


def of_mysql(body: str) -> str:
    """Return an expression of MySQL's as definitions hold it."""
    return f"mysql: {body}"


def read_expression(written: str) -> str:
    """Return an expression of a statement as definitions hold it.

    Raises:
        Untranslated: it is none, or something in it is not translated.
    """
    inner = duckdb_text(written)
    found = of_mysql(written.strip()) if inner is None else inner
    checked(found, lookups=True)
    return found


def write_expression(written: str) -> str:
    """Return an expression of a definition as statements hold it; `read_expression` gives it back."""
    return body_of(written) if is_mysql(written) else f"DUCKDB({quoted(written)})"


def checked(written: str, lookups: bool = False) -> None:
    """Check an expression as far as can be told without the types of columns.

    Args:
        written: the expression.
        lookups: whether `name(key).column` may be a lookup.

    Raises:
        Untranslated: it is none, or something in it is not translated.
    """
    if is_mysql(written):
        check(body_of(written), lookups)
    else:
        duckdb_dialect.check(written)


def names_of(written: str) -> frozenset[str]:
    """Return the names that the expression takes values from: columns, variables with their @, Kafka's coordinates.

    Raises:
        Untranslated: as `checked`.
    """
    return columns_of(body_of(written)) if is_mysql(written) else duckdb_dialect.columns_of(written)


def to_duckdb(written: str, resolve: Resolve, wanted: str = "") -> str:
    """Return the expression as DuckDB runs it.

    Args:
        written: the expression, in either language.
        resolve: what a column is, for MySQL's.
        wanted: type of the column that it is for; `BOOLEAN` also for a condition; empty: none is known.

    Raises:
        Untranslated: as `checked`.
    """
    if not is_mysql(written):
        return duckdb_dialect.to_duckdb(written)
    return _fitting(compiled(body_of(written), resolve), wanted).sql


def _fitting(value: Value, wanted: str) -> Value:
    """MySQL's booleans are the numbers 1 and 0, and its literals of bits and bytes are texts."""
    if wanted == "BOOLEAN":
        return boolean(value) if value.kind != "text" or value.literal is not None else value
    if value.kind == "bool" and wanted:
        return number(value)
    if value.kind == "span":  # a time of MySQL's may be beyond a day, which no TIME is
        return time(value) if wanted == "TIME" else text(value) if wanted in ("", "VARCHAR") else number(value)
    if value.kind in ("json", "blob") and wanted == "VARCHAR":
        return text(value)
    return value
