"""Evaluate expressions on a few generated rows. If all of them fail, every record fails."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, time, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa

from kpipe.errors import InvalidPipeline
from kpipe.expressions.tokens import words
from kpipe.schema.columns import BLOB, VARCHAR, Columns, Scalar, Struct, Type
from resources.duckdb_engine.arrow_types import staged_type
from resources.duckdb_engine.error_messages import in_words
from resources.duckdb_engine.expressions import Evaluator

__all__ = ["try_condition", "try_values"]

# Samples of text: a number, an empty text, a date, a timestamp.
_TEXTS = ("1", "", "2026-11-20", "2026-11-20 12:00:00")
_NONE = pa.table({"__kpipe_none": [True]})
# DuckDB's error for incompatible types, raised only when there is a value.
_NEVER = "Unimplemented type for cast"


def try_condition(evaluator: Evaluator, inputs: Columns, text: str) -> None:
    """Evaluate a condition on the generated rows.

    Raises:
        InvalidPipeline: it fails for every record.
    """
    _try(lambda block: evaluator.holds(block)[1], inputs, text)


def try_values(evaluator: Evaluator, inputs: Columns, text: str) -> None:
    """Evaluate the expression of a column on the generated rows.

    Raises:
        InvalidPipeline: it fails for every record, or its value does not fit the column's type.
    """
    _try(lambda block: evaluator.values(block)[1], inputs, text)


def _try(reasons_of: Callable[[pa.Table], dict[int, str]], inputs: Columns, text: str) -> None:
    """Evaluate a row of NULLs and a row of numbers and times; if the NULLs fail, also rows with text."""
    reasons = reasons_of(_block(inputs, 1, texts=False))
    never = [why for why in reasons.values() if _NEVER in why]
    if never:
        raise InvalidPipeline(in_words(never[0]))
    if 0 not in reasons:
        return
    if inputs:
        # error('...') rejects records on purpose, perhaps also these rows.
        if any(word.text.lower() == "error" for word in words(text)):
            return
        reasons = reasons_of(_block(inputs, len(_TEXTS)))
        if len(reasons) <= len(_TEXTS):
            return
    raise InvalidPipeline(in_words(reasons[0]))


def _block(inputs: Columns, values: int = len(_TEXTS), texts: bool = True) -> pa.Table:
    """Build a row of NULLs and rows of values."""
    if not inputs:
        return _NONE
    arrays = []
    for _, kind in inputs:
        rows = [_value(kind, at) if texts or kind != VARCHAR else None for at in range(values)]
        arrays.append(pa.array([None, *rows], staged_type(kind)))
    return pa.table(arrays, names=list(inputs.names()))


def _value(kind: Type, at: int) -> Any:
    """Return a value of a type; None for nested types except STRUCT."""
    if isinstance(kind, Struct):
        return {name: _value(item, at) for name, item in kind.fields}
    if not isinstance(kind, Scalar):
        return None
    if kind == BLOB:
        return _TEXTS[at].encode()
    return _SAMPLES.get(kind.name.partition("(")[0], _TEXTS[at])


_SAMPLES: dict[str, Any] = {
    **dict.fromkeys(("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT"), 1),
    **dict.fromkeys(("FLOAT", "DOUBLE"), 1.0), "DECIMAL": Decimal(0), "BOOLEAN": True,
    "DATE": date(2026, 11, 20), "TIME": time(12), "TIMESTAMP": datetime(2026, 11, 20),
    "TIMESTAMP WITH TIME ZONE": datetime(2026, 11, 20, tzinfo=timezone.utc),
    "JSON": "1", "HUGEINT": "1", "UUID": "00000000-0000-0000-0000-000000000001",
}  # fmt: skip
