"""Sources of positions by name, as `kpipe adopt --from` takes them, and how each one is read."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from kpipe.adoption.positions import Positions
from kpipe.definition.pipeline import Pipeline
from kpipe.errors import InvalidPipeline, NotAvailable
from kpipe.topics import PartitionId
from resources.adoption.table_offsets import TableColumns, table_offsets
from resources.audit.table_address import NoHome, TableAddress
from resources.destinations.lakehouse.folder import Folder, LocalFolder

__all__ = ["FORMS", "Loader", "parsed", "read"]

#: Sources, each with the form of its name and what it reads.
FORMS: Mapping[str, str] = {
    "group": "group:NAME",
    "connect": "connect:CONNECTOR",
    "connect-offsets": "connect-offsets:FILE or connect-offsets:URL",
    "checkpoint": "checkpoint:FOLDER",
    "iceberg-sink": "iceberg-sink:CONNECTOR",
    "delta-txn": "delta-txn:APPLICATION",
    "table": "table",
}


@dataclass(frozen=True)
class Loader:
    """The loader that a pipeline goes on for.

    Attributes:
        pipeline: the definition that takes over.
        partitions: of its topics.
        table: that the loader has filled; None: none was named.
        columns: of the table.
        credentials: templates for the source itself.
        included: whether the table contains a batch that a checkpoint has planned and not committed; None: unknown.
    """

    pipeline: Pipeline
    partitions: Collection[PartitionId]
    table: TableAddress | None = None
    columns: TableColumns = field(default_factory=TableColumns)
    credentials: Mapping[str, str] = field(default_factory=dict)
    included: bool | None = None

    def address(self) -> TableAddress:
        """Return the table.

        Raises:
            InvalidPipeline: none was named.
        """
        if self.table is None:
            raise InvalidPipeline("the loader's table is missing", "name it: --type, --database and --table")
        return self.table


def parsed(text: str) -> tuple[str, str]:
    """Return kind and name of a source.

    Raises:
        InvalidPipeline: the kind is unknown, or the name is missing.
    """
    kind, _, name = text.partition(":")
    if kind not in FORMS or (kind != "table") != bool(name.strip()):
        raise InvalidPipeline(f"unknown source {text!r}", f"expected {'; '.join(FORMS.values())}")
    return kind, name.strip()


def read(text: str, loader: Loader) -> Positions:
    """Read the positions of a source.

    Raises:
        InvalidPipeline: the source is invalid, or gives no position.
        KpipeError: it cannot be read.
    """
    kind, name = parsed(text)
    return _READERS[kind](name, loader)


def _group(name: str, loader: Loader) -> Positions:
    from resources.adoption.consumer_group import ConsumerGroup

    return ConsumerGroup(loader.pipeline.source, name).positions(loader.partitions)


def _connect(name: str, loader: Loader) -> Positions:
    return _group(f"connect-{name}", loader)


def _connect_offsets(name: str, loader: Loader) -> Positions:
    from resources.adoption.connect_offsets import connect_offsets

    return connect_offsets(name, loader.credentials)


def _iceberg_sink(name: str, loader: Loader) -> Positions:
    from resources.adoption.iceberg_sink import iceberg_sink

    group = name if name.startswith(("connect-", "cg-control-")) else f"connect-{name}"
    return iceberg_sink(loader.pipeline.source, group, loader.address(), loader.partitions)


def _delta(name: str, loader: Loader) -> Positions:
    from resources.adoption.delta_transactions import delta_transactions

    return delta_transactions(name, loader.address(), loader.partitions)


def _table(_: str, loader: Loader) -> Positions:
    return table_offsets(loader.address(), loader.columns, loader.partitions)


def _checkpoint(name: str, loader: Loader) -> Positions:
    from resources.adoption.planned_batch import compared
    from resources.adoption.streaming_checkpoint import Checkpoint

    checkpoint = Checkpoint(_files(name, loader.credentials), sorted({source.topic.name for source in loader.partitions}))
    batches = checkpoint.batches()
    included, problem = loader.included, ""
    if loader.table is not None:
        included, problem = compared(batches, loader.table, loader.columns, loader.partitions, included)
    found = checkpoint.positions(batches, included)
    return replace(found, problems=[problem]) if problem else found


def _files(place: str, credentials: Mapping[str, str]) -> Folder:
    """Open a checkpoint's folder, on a local disk or in an object store."""
    from resources.destinations.lakehouse_factory import open_folder
    from resources.object_store.uri import is_remote

    if is_remote(place):
        source = {"brokers": "localhost", "topic": "checkpoint"}
        into = {"type": "delta", "database": place.rstrip("/"), "table": "checkpoint", "credentials": dict(credentials)}
        found: Folder = open_folder(Pipeline.model_validate({"name": "adopt", "source": source, "into": into}), NoHome())
        return found
    path = place.removeprefix("file://")
    if "://" in path or path.startswith(("dbfs:", "hdfs:")):
        raise NotAvailable(
            f"checkpoint {place}: this file system is not available", "copy its folders offsets, commits and sources"
        )
    return LocalFolder(Path(path).expanduser())


_READERS: Mapping[str, Callable[[str, Loader], Positions]] = {
    "group": _group,
    "connect": _connect,
    "connect-offsets": _connect_offsets,
    "checkpoint": _checkpoint,
    "iceberg-sink": _iceberg_sink,
    "delta-txn": _delta,
    "table": _table,
}
