"""Rewrite the locations in an Iceberg warehouse with an SQL catalogue, so that a copy of it is a warehouse of its own.

Iceberg's metadata names files by absolute paths: in JSON, in Avro (manifests and their lists) and in the catalogue.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import fastavro

__all__ = ["rewrite"]

_OWN = ("avro.schema", "avro.codec")  # written anew


def rewrite(folder: Path, old: str, new: str) -> None:
    """Replace the beginning `old` of every location in the warehouse by `new`."""
    for file in folder.rglob("*.metadata.json"):
        file.write_text(file.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    lists = sorted(folder.rglob("*.avro"), key=lambda path: path.name.startswith("snap-"))
    for file in lists:  # manifests first: their lists hold their lengths
        _rewrite_avro(file, folder, old, new)
    with sqlite3.connect(folder / "catalog.db") as connection:
        for column in ("metadata_location", "previous_metadata_location"):
            connection.execute(f"UPDATE iceberg_tables SET {column} = replace({column}, ?, ?)", (old, new))
        connection.execute("UPDATE iceberg_namespace_properties SET property_value = replace(property_value, ?, ?)", (old, new))
    connection.close()
    vacuum = sqlite3.connect(folder / "catalog.db")
    vacuum.execute("VACUUM")  # pages that are free still hold what was replaced
    vacuum.close()


def _rewrite_avro(file: Path, folder: Path, old: str, new: str) -> None:
    with file.open("rb") as stream:
        reader = fastavro.reader(stream)
        schema, codec = reader.writer_schema, reader.codec
        metadata = {key: text for key, text in reader.metadata.items() if key not in _OWN}
        rows = [_replaced(row, old, new) for row in reader]
    for row in rows:
        if "manifest_length" in row:
            row["manifest_length"] = (file.parent / Path(row["manifest_path"]).name).stat().st_size
    with file.open("wb") as stream:
        fastavro.writer(stream, schema, rows, codec=codec, metadata=metadata)


def _replaced(value: Any, old: str, new: str) -> Any:
    if isinstance(value, str):
        return value.replace(old, new)
    if isinstance(value, dict):
        return {key: _replaced(item, old, new) for key, item in value.items()}
    return [_replaced(item, old, new) for item in value] if isinstance(value, list) else value
