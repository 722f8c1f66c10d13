"""Copy lookups from tables of the destination to files: the place of a copy does not contain these tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from kpipe.definition.lookups import Lookup
from kpipe.definition.pipeline import Pipeline
from kpipe.expressions.projection import Selection
from kpipe.tables.multi_table import table_pipelines
from resources.home import Home
from resources.lookups.table_source import asking

__all__ = ["files_of"]


def files_of(pipeline: Pipeline, home: Home, folder: Path) -> dict[str, Lookup]:
    """Read the lookups that expressions use and that are tables or queries, and return definitions that read files.

    Args:
        pipeline: the definition to copy.
        home: home of the pipeline.
        folder: for the files; it exists.

    Raises:
        KpipeError: a lookup cannot be read.
    """
    calls = [call for part in table_pipelines(pipeline) for call in _calls(part)]
    found = {}
    for name, lookup in pipeline.lookups.items():
        mine = [call for call in calls if call.lookup == name]
        if lookup.kind not in ("table", "query") or not mine:
            continue
        wanted = list(lookup.keys)
        for member in (member for call in mine for member in call.members):
            if member.lower() not in map(str.lower, wanted):
                wanted.append(member)
        file = folder / f"lookup-{name}.parquet"
        pq.write_table(asking(pipeline, home)(name, lookup, wanted), file)
        found[name] = lookup.model_copy(update={"table": None, "query": None, "path": str(file), "refresh_s": None})
    return found


def _calls(pipeline: Pipeline) -> list[Any]:
    selection = Selection.of(pipeline)
    return [] if selection is None else list(selection.calls)
