"""What people see of kpipe: the command line, Dagster's assets, and pipelines as Python objects.

    from kpipe_assets import KafkaPipeline, ingest

    tweets = KafkaPipeline(
        name="tweets", source={"brokers": "localhost:9092", "topic": "tweets"}, into={"table": "tweets"}
    )
    for committed in ingest(tweets):
        print(committed.seq, committed.commit.totals.rows)

Names are loaded when they are used: nothing here imports an engine or Dagster by itself.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kpipe.pipeline import Pipeline as KafkaPipeline
    from kpipe_assets.assembly import ingest

__all__ = ["KafkaPipeline", "ingest"]

_WHERE = {"KafkaPipeline": ("kpipe.pipeline", "Pipeline"), "ingest": ("kpipe_assets.assembly", "ingest")}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    module, attribute = _WHERE[name]
    return getattr(import_module(module), attribute)
