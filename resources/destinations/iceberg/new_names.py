"""Map names of columns to field ids: kpipe's files contain names and no field ids, so a name that comes back shows old values.

Libraries give a name in `schema.name-mapping.default` to the newest column (spec, "Column Projection"; pyiceberg 0.12 does the
same). Only a column that main never had may come back: kpipe added it to an audit branch, and the batch was not published.
A table property lists the field ids of such columns. They cannot be derived from schemas and snapshots: programs remove
both, and a schema that comes back has its earlier id.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.name_mapping import MappedField, NameMapping

from kpipe.errors import SchemaConflict
from resources.type_compatibility import Path

__all__ = ["check_new_names", "complete_mapping", "published", "unpublished"]

_KEY = "kpipe.unpublished."  # prefix of table properties; one for each pipeline, as only its own runs replace its branch


def check_new_names(table: Table, added: Sequence[Path], where: str) -> None:
    """Check that no new column has the name of a column that another program renamed or dropped.

    Raises:
        SchemaConflict: there is such a column or field.
    """
    known = table.metadata.name_mapping()
    if known is None or not added:
        return
    never = _never_published(table.metadata)
    for path in added:
        fields = known.root
        for name in path[:-1]:
            fields = next((field.fields for field in fields if name in field.names), [])
        if any(path[-1] in field.names and field.field_id not in never for field in fields):
            column = ".".join(path)
            raise SchemaConflict(
                f"{where}: column {column}: another program has renamed or dropped it, and older files still contain its values",
                "load the records' member into another column (format.mapping), or set schema: ignore",
            )


def complete_mapping(meta: TableMetadata, where: str) -> NameMapping:
    """Return the table's name mapping with the names of all current columns and their fields; earlier names stay.

    Not every program that adds a column adds its name: readers of the next files would fail, or show NULL.

    Raises:
        SchemaConflict: a name is that of a column that another program renamed or dropped.
    """
    known, wanted = meta.name_mapping(), meta.schema().name_mapping
    return wanted if known is None else NameMapping(root=_merged(known.root, wanted.root, _never_published(meta), where))


def _merged(
    known: Sequence[MappedField], wanted: Sequence[MappedField], never: Collection[int], where: str, path: Path = ()
) -> list[MappedField]:
    fields = list(known)
    for field in wanted:
        (name,) = field.names
        for at, other in enumerate(fields):
            if name in other.names and other.field_id != field.field_id:
                if other.field_id not in never:
                    raise SchemaConflict(
                        f"{where}: column {'.'.join((*path, name))}: schema.name-mapping.default maps this name to another"
                        " column, which was renamed or dropped, and older files still contain its values",
                        "rename the column that was added",
                    )
                fields[at] = other.model_copy(update={"names": [old for old in other.names if old != name]})
        at = next((at for at, other in enumerate(fields) if other.field_id == field.field_id), len(fields))
        earlier = fields[at] if at < len(fields) else field
        names = [*earlier.names, *(() if name in earlier.names else (name,))]
        inner = _merged(earlier.fields, field.fields, never, where, (*path, name))
        fields[at : at + 1] = [earlier.model_copy(update={"names": names, "fields": inner})]
    return [field for field in fields if field.names]


def _never_published(meta: TableMetadata) -> set[int]:
    """Return the ids of columns that main never had."""
    return {number for name, text in meta.properties.items() if name.startswith(_KEY) for number in json.loads(text)}


def unpublished(before: TableMetadata, after: TableMetadata, pipeline: str) -> dict[str, str]:
    """Return the table property with the columns that a commit to the pipeline's branch adds, beside earlier ones.

    Args:
        before: main's metadata.
        after: metadata with the branch's schema as the current one.
        pipeline: name of the pipeline.
    """
    new = set(after.schema().field_ids) - set(before.schema().field_ids)
    mapping = after.name_mapping()
    named = set(_named(mapping.root)) if mapping is not None else new  # a name has one id: the list stays short
    return _said(pipeline, (new | _listed(before, pipeline)) & named)


def published(meta: TableMetadata, schema: int, pipeline: str) -> dict[str, str]:
    """Return the table property without the columns of a schema that becomes main's."""
    had = next(set(item.field_ids) for item in meta.schemas if item.schema_id == schema)
    return _said(pipeline, _listed(meta, pipeline) - had)


def _listed(meta: TableMetadata, pipeline: str) -> set[int]:
    return set(json.loads(meta.properties.get(f"{_KEY}{pipeline}") or "[]"))


def _said(pipeline: str, numbers: Collection[int]) -> dict[str, str]:
    return {f"{_KEY}{pipeline}": json.dumps(sorted(numbers))}


def _named(fields: Sequence[MappedField]) -> Iterator[int]:
    """Yield the ids of all fields that have a name."""
    for field in fields:
        if field.names and field.field_id is not None:
            yield field.field_id
        yield from _named(field.fields)
