"""Trace the columns of a table to fields of the records: by mapping, SET expressions, conditions and lookups."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kpipe.definition.json_path import parse_path
from kpipe.definition.pipeline import Pipeline
from kpipe.expressions.languages import names_of
from kpipe.expressions.projection import COORDINATES, Selection

__all__ = ["ColumnLineage", "Dependency", "column_lineage"]


@dataclass(frozen=True)
class Dependency:
    """A field of the record that a column depends on.

    Attributes:
        field: `value`, `key`, `partition`, `offset`, `timestamp`, `topic` or `headers`; members of value and key as
            `value.user.name`.
        how: `IDENTITY`, `TRANSFORMATION`, `FILTER` (decides whether there is a row) or `JOIN` (selects the row of a lookup).
    """

    field: str
    how: str


@dataclass(frozen=True)
class ColumnLineage:
    """Dependencies of a table's columns.

    Attributes:
        columns: by column.
        rows: of the whole table: fields that decide which records become rows.
    """

    columns: dict[str, tuple[Dependency, ...]]
    rows: tuple[Dependency, ...] = ()


def column_lineage(pipeline: Pipeline, columns: Iterable[str]) -> ColumnLineage:
    """Trace columns of a pipeline's only table to fields of the records.

    A program hides the fields that it reads: columns then depend on the whole value. Types are not considered.

    Args:
        pipeline: the definition for one table (kpipe/tables/multi_table.py).
        columns: names of the table's columns.

    Raises:
        InvalidPipeline: an expression is invalid.
    """
    record = _Record(pipeline)
    chosen = Selection.of(pipeline) or Selection()
    elements = _elements(chosen, record)
    assigned = {name.lower(): text for name, text in chosen.assigned}
    found: dict[str, tuple[Dependency, ...]] = {}
    for name in columns:
        text = assigned.get(name.lower())
        if text is None:
            how = "TRANSFORMATION" if pipeline.transform is not None and not _is_coordinate(name) else "IDENTITY"
            found[name] = (Dependency(record.field(name), how),)
        else:
            found[name] = _of_expression(text, chosen, record, elements)
    rows = (*_of_names(names_of(chosen.where), chosen, record, elements, "FILTER"),) if chosen.where else ()
    return ColumnLineage(found, rows)


class _Record:
    """Names of a record's columns, and the fields that they come from."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._paths = {}
        for part, format in (("value", pipeline.format), ("key", pipeline.key_format)):
            for name, mapped in (format.mapping or {}).items() if format is not None else ():
                path = mapped if isinstance(mapped, str) else mapped.path
                self._paths[part, name.lower()] = ".".join(map(str, (part, *parse_path(path))))

    def field(self, name: str) -> str:
        """Return the field of a column, a @variable or a coordinate."""
        if _is_coordinate(name):
            return name.lower().removeprefix("_kafka_")
        pipeline = self._pipeline
        format = pipeline.format_of(name)
        part = "key" if format is pipeline.key_format else "value"
        if part == "value" and pipeline.transform is not None:
            return "value"
        if format.type == "raw":
            return "key" if part == "key" or name.lower() == "key" else "value"
        if format.type == "csv":  # fields have positions, not names
            return part
        return self._paths.get((part, name.lower()), f"{part}.{name}")


def _is_coordinate(name: str) -> bool:
    return name.lower() in COORDINATES


def _elements(chosen: Selection, record: _Record) -> dict[str, tuple[str, ...]]:
    """Return the fields of the list behind each name that UNNEST defines."""
    if chosen.unnest is None:
        return {}
    fields = tuple(sorted({record.field(name) for name in names_of(chosen.unnest.text)}))
    return {name.lower(): fields for name in chosen.unnest.names}


def _of_expression(text: str, chosen: Selection, record: _Record, elements: dict[str, tuple[str, ...]]) -> tuple[Dependency, ...]:
    names = names_of(text)
    copied = len(names) == 1 and text.strip('"` ') in names and not elements.keys() & {name.lower() for name in names}
    return _of_names(names, chosen, record, elements, "IDENTITY" if copied else "TRANSFORMATION")


def _of_names(
    names: Iterable[str], chosen: Selection, record: _Record, elements: dict[str, tuple[str, ...]], how: str
) -> tuple[Dependency, ...]:
    """Return dependencies without duplicates, by field; a column of a lookup depends on the lookup's key."""
    keys = {call.column(member): call.keys for call in chosen.calls for member in call.members}
    found: set[tuple[str, str]] = set()
    waiting = [(name, how) for name in names]
    while waiting:
        name, use = waiting.pop()
        if name in keys:
            waiting += [(other, "JOIN") for key in keys[name] for other in names_of(key)]
        else:
            found |= {(field, use) for field in elements.get(name.lower(), (record.field(name),))}
    return tuple(Dependency(field, use) for field, use in sorted(found))
