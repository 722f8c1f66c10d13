"""Compute an expression over JSON as a task does."""

from __future__ import annotations

from collections.abc import Callable

from kpipe.expressions.mysql.compiler import of_columns
from kpipe.schema.columns import Columns

RESOLVE = of_columns(Columns.of({"doc": "JSON", "said": "VARCHAR"}))
Ask = Callable[..., str | None]
