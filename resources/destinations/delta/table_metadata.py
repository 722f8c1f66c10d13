"""Metadata and protocol of a Delta table, as the actions of its log define them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Table", "of_meta", "of_protocol"]


@dataclass(frozen=True)
class Table:
    """The table's `metaData` and `protocol` actions.

    Attributes:
        id, name, description, created: as in `metaData`; `created` in ms since 1970.
        fields: of the schema.
        partitions: names of the partition columns.
        settings: the table's properties.
        writer: version that writers must support.
        reads, writes: features that readers and writers must support.
    """

    id: str
    name: str | None
    description: str | None
    created: int | None
    fields: Sequence[dict[str, Any]]
    partitions: Sequence[str]
    settings: Mapping[str, str]
    writer: int
    reads: Sequence[str]
    writes: Sequence[str]


def of_meta(said: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes of `Table` that a `metaData` action defines."""
    return {
        "id": said["id"],
        "name": said.get("name"),
        "description": said.get("description"),
        "created": said.get("createdTime"),
        "fields": json.loads(said["schemaString"])["fields"],
        "partitions": said.get("partitionColumns") or (),
        "settings": said.get("configuration") or {},
    }


def of_protocol(said: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes of `Table` that a `protocol` action defines."""
    reads, writes = said.get("readerFeatures") or (), said.get("writerFeatures") or ()
    return {"writer": said["minWriterVersion"], "reads": reads, "writes": writes}
