"""Forms of DuckDB's types in JSON: how values are selected, written, and typed in the pipeline."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from duckdb.sqltypes import DuckDBPyType

from kpipe.schema.columns import JSON, VARCHAR, ListOf, MapOf, Scalar, Struct, Type

__all__ = ["Form", "NoForm", "form"]


class NoForm(Exception):
    """A type has no form in JSON; the message names it."""


class Form(NamedTuple):
    """A type of DuckDB.

    Attributes:
        selected: type that a query casts values to without loss: Arrow has no form for some types, and changes values of others.
        written: type for `documents`; text of a JSON is written as it is.
        known: type of the column, for its numbers. Others are VARCHAR: their type is inferred.
    """

    selected: Type
    written: Type
    known: Type


def _same(name: str) -> Form:
    return Form(Scalar(name), Scalar(name), Scalar(name))


def _text(written: Type = VARCHAR, known: Type = VARCHAR) -> Form:
    return Form(VARCHAR, written, known)


_UNCHANGED = (
    "BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "FLOAT", "DOUBLE",
    "VARCHAR", "BLOB", "DATE", "TIME", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE",
)  # fmt: skip
_MOMENTS = ("TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS")
_FORMS = {
    **{name.lower(): _same(name) for name in _UNCHANGED},
    **{name.lower(): Form(Scalar(name), Scalar("TIMESTAMP"), VARCHAR) for name in _MOMENTS},
    "time_ns": Form(Scalar("TIME_NS"), Scalar("TIME"), VARCHAR),
    # Arrow takes HUGEINT as DECIMAL(38,0), which has no -2^127, and UHUGEINT with another sign.
    "hugeint": _text(JSON, Scalar("HUGEINT")),
    "uhugeint": _text(JSON, JSON), "bignum": _text(JSON, JSON),
    "time with time zone": _text(), "bit": _text(), "enum": _text(), "uuid": _text(), "null": _text(),
    "geometry": Form(Scalar("GEOMETRY"), Scalar("BLOB"), VARCHAR),
}  # fmt: skip
_KEYS = {"varchar", "enum", "uuid"}


def form(kind: DuckDBPyType) -> Form:
    """Return how values of a type become JSON.

    Raises:
        NoForm: they cannot.
    """
    if kind.id == "list":
        return _around(ListOf, form(_children(kind)["child"]))
    if kind.id == "map" and _children(kind)["key"].id in _KEYS:
        return _around(MapOf, form(_children(kind)["value"]))
    if kind.id == "struct":
        inner = [(name, form(item)) for name, item in _children(kind).items()]
        return Form(*(Struct(tuple((name, item[at]) for name, item in inner)) for at in range(3)))
    if str(kind) == "JSON":
        return Form(JSON, JSON, JSON)
    if kind.id == "decimal":
        return _same(str(kind))
    if kind.id not in _FORMS:
        raise NoForm(str(kind))
    return _FORMS[kind.id]


def _children(kind: DuckDBPyType) -> dict[str, Any]:
    return dict(kind.children)


def _around(outer: Callable[[Type], Type], inner: Form) -> Form:
    return Form(outer(inner.selected), outer(inner.written), outer(inner.known))
