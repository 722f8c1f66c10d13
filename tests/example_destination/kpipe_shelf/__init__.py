"""`into: {type: shelf, database: FOLDER, table: NAME}`: Parquet files in a folder, and a catalogue in SQLite that says which."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kpipe.definition.pipeline import Pipeline
from kpipe.errors import InvalidPipeline
from kpipe.interfaces import Destination
from kpipe_shelf.shelf import Shelf
from resources.destinations import summary
from resources.destinations.lakehouse import LakeDestination

__all__ = ["Shelf", "open_shelf"]


def open_shelf(pipeline: Pipeline, home: Any) -> Destination:
    """What kpipe calls for a pipeline whose `into.type` is `shelf`. Opens nothing yet."""
    into = pipeline.into
    if into.credentials:
        raise InvalidPipeline(f"pipeline {pipeline.name}: into.credentials: a shelf has none", "remove them")
    folder = Path(into.database) if into.database is not None else home.data / "shelf"
    return LakeDestination(Shelf(folder / into.table), into.table, pipeline.name, summary(pipeline), home.roots)
