"""The user interfaces of kpipe: command line, Dagster assets, and pipelines as Python objects.

    from kpipe_assets import KafkaPipeline, ingest

    tweets = KafkaPipeline(
        name="tweets", source={"brokers": "localhost:9092", "topic": "tweets"}, into={"table": "tweets"}
    )
    for committed in ingest(tweets):
        print(committed.seq, committed.commit.totals.rows)

`KafkaPipeline` is also the Dagster component of `type: kpipe_assets.KafkaPipeline`, `KafkaSource` that of files that are
written to a topic. Names are loaded on first use, so importing this package loads neither Dagster nor an engine.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kpipe_assets.import_names import check_import_names

if TYPE_CHECKING:
    from kpipe_assets.component import KafkaPipeline, KafkaSource, PipelineCatalog
    from kpipe_assets.runs.runner import ingest

__all__ = ["KafkaPipeline", "KafkaSource", "PipelineCatalog", "ingest"]


check_import_names()
_MODULES = {**dict.fromkeys(("KafkaPipeline", "KafkaSource", "PipelineCatalog"), "component"), "ingest": "runs.runner"}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:  # `dg` finds components with dir()
    return sorted({*globals(), *__all__})
