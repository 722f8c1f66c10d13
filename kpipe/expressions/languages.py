"""Choose between the two dialects of expressions: DuckDB's SQL, and MySQL's after the prefix `mysql:`.

Definitions in YAML or Python default to DuckDB's SQL; an expression that begins with `mysql:` is evaluated as in MySQL and
SingleStore. Statements default to MySQL's dialect, and DUCKDB('...') contains an expression in DuckDB's.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from kpipe.expressions import duckdb_dialect
from kpipe.expressions.mysql.columns import Resolve
from kpipe.expressions.mysql.compiler import check, columns_of, compiled, duckdb_text
from kpipe.expressions.mysql.syntax import tree
from kpipe.expressions.mysql.values import Value, boolean, bytes_of, number, text, time
from kpipe.expressions.quoting import quoted
from kpipe.expressions.tokens import Word, words

__all__ = [
    "CONDITION", "body_of", "checked", "is_mysql", "names_of", "of_mysql", "read_expression", "requalified", "to_duckdb",
    "write_expression",
]  # fmt: skip

#: As a target type: whether a record is kept. In MySQL, a text is true if the number at its start is not 0.
CONDITION = "condition"
_MYSQL = re.compile(r"\s*mysql:", re.IGNORECASE)


def is_mysql(written: str) -> bool:
    """Return whether the expression is in MySQL's dialect."""
    return _MYSQL.match(written) is not None


def body_of(written: str) -> str:
    """Return the expression without its `mysql:` prefix."""
    return _MYSQL.sub("", written, count=1).strip()


def of_mysql(body: str) -> str:
    """Return a MySQL expression as definitions store it."""
    return f"mysql: {body}"


def read_expression(written: str) -> str:
    """Convert an expression of a statement to the text that definitions store.

    Raises:
        Untranslated: it is not an expression, or it uses something unsupported.
    """
    duckdb = duckdb_text(written)
    stored = of_mysql(written.strip()) if duckdb is None else duckdb
    checked(stored, lookups=True)
    return stored


def write_expression(written: str) -> str:
    """Convert an expression of a definition to a statement's; the inverse of `read_expression`."""
    return body_of(written) if is_mysql(written) else f"DUCKDB({quoted(written)})"


def checked(written: str, lookups: bool = False) -> None:
    """Check an expression as far as possible without the types of columns.

    Args:
        written: the expression.
        lookups: whether `name(key).column` may be a lookup.

    Raises:
        Untranslated: it is not an expression, or it uses something unsupported.
    """
    if is_mysql(written):
        check(body_of(written), lookups)
    else:
        duckdb_dialect.check(written)


def names_of(written: str) -> frozenset[str]:
    """Return the names that the expression reads: columns, variables with their @, Kafka's coordinates.

    Raises:
        Untranslated: as `checked`.
    """
    return columns_of(body_of(written)) if is_mysql(written) else duckdb_dialect.columns_of(written)


def requalified(written: str, table: str, renamed: str) -> str:
    """Return an expression of `into.update` for a table of another name: `table.column` becomes `renamed.column`.

    Only the qualifiers change, so that the expression has the same meaning and stays as its author wrote it.

    Raises:
        Untranslated: a quote or a comment in MySQL's dialect is not terminated.
    """
    if table.lower() == "excluded":  # excluded.column is the new row's value, whatever the table's name
        return written
    names = {"name": 0, "backticked": 1} if is_mysql(written) else {"name": 0, "backticked": 1, "quoted": 1}
    tokens: Sequence[Word | tree.Word] = tree.words(written) if is_mysql(written) else list(words(written))
    done, copied = "", 0
    for at, (word, sign, column) in enumerate(zip(tokens, tokens[1:], tokens[2:], strict=False)):
        if sign.text != "." or not {word.kind, column.kind} <= names.keys() or (at and tokens[at - 1].text == "."):
            continue
        start, end = word.start + names[word.kind], word.end - names[word.kind]
        if written[start:end].lower() == table.lower():
            done, copied = done + written[copied:start] + renamed, end
    return done + written[copied:]


def to_duckdb(written: str, resolve: Resolve, wanted: str = "", coerced: bool = True) -> str:
    """Return the expression as DuckDB's SQL.

    Args:
        written: the expression, in either dialect.
        resolve: returns the value of a column; only MySQL's dialect needs it.
        wanted: type of the target column; `CONDITION`; empty: unknown.
        coerced: whether the caller converts bytes to texts, and checks them; otherwise DuckDB casts, which would escape them.

    Raises:
        Untranslated: as `checked`.
    """
    if not is_mysql(written):
        return duckdb_dialect.to_duckdb(written)
    return _fitting(compiled(body_of(written), resolve), wanted, coerced).sql


def _fitting(value: Value, wanted: str, coerced: bool) -> Value:
    """Convert a MySQL value to the target type: its booleans are 1 and 0, its bit and byte literals are texts."""
    if wanted == CONDITION:
        return boolean(value)
    if wanted == "BOOLEAN":
        return boolean(value) if value.kind != "text" or value.literal is not None else value
    if value.kind == "bool" and wanted:
        return number(value)
    if value.kind == "span":  # MySQL's TIME reaches ±838:59:59, DuckDB's only one day
        return time(value) if wanted == "TIME" else text(value) if wanted in ("", "VARCHAR") else number(value)
    if value.kind == "blob":
        return value if wanted in ("", "BLOB") or (wanted == "VARCHAR" and coerced) else text(value)
    if wanted == "BLOB" and not coerced:
        return Value(bytes_of(value), "blob")
    if wanted == "VARCHAR" and (value.kind in ("json", "double", "decimal") or value.digits is not None):
        return text(value)  # DuckDB prints 8.0 for 8, .25 for 0.25, and no zeros at the end of a declared fraction of a second
    return value
