"""Read a Delta table's files row by row, and write deletion vectors: what rows with a key need."""

from __future__ import annotations

import hashlib
import json
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from kpipe.batch.batch import Commit
from kpipe.errors import DestinationError, SchemaConflict
from resources.destinations.delta import deletion_vectors as vectors
from resources.destinations.delta.live_files import is_inside, live_adds
from resources.destinations.delta.log import DeltaState, entry_name
from resources.destinations.delta.table_metadata import Table
from resources.destinations.delta.types import arrow
from resources.destinations.lakehouse.chosen_rows import as_micros, chosen_rows
from resources.destinations.lakehouse.data_files import Brought, bring_blocks
from resources.destinations.lakehouse.folder import Folder
from resources.destinations.lakehouse.live_files import Changes, Live, LiveFile, Version

__all__ = ["DeltaKeys", "Replaced", "upgraded"]

_FEATURE = "deletionVectors"
_ENABLED = "delta.enableDeletionVectors"


@dataclass(frozen=True)
class Replaced:
    """A file of rows whose deletion vector changes.

    Attributes:
        add: its action so far.
        vector: the new descriptor; None: all rows are deleted.
    """

    add: dict[str, Any]
    vector: dict[str, Any] | None

    @property
    def actions(self) -> list[dict[str, Any]]:
        """The actions that remove the file, and add it again with the new vector."""
        add, now = self.add, int(time.time() * 1000)
        old = {"deletionVector": add["deletionVector"]} if add.get("deletionVector") else {}
        values = {"partitionValues": add["partitionValues"], "size": add["size"]}
        gone = {"path": add["path"], "deletionTimestamp": now, "dataChange": True, "extendedFileMetadata": True, **values, **old}
        actions: list[dict[str, Any]] = [{"remove": gone}]
        if self.vector is not None:
            stats = json.loads(add["stats"])
            stats["tightBounds"] = False  # a deleted row may have had the least or the greatest value
            more = {"modificationTime": add["modificationTime"], "dataChange": True, "stats": json.dumps(stats)}
            actions.append({"add": {"path": add["path"], **values, **more, "deletionVector": self.vector}})
        return actions


class DeltaKeys:
    """The methods of `DeltaLake` for rows with a key; see `Deleting`."""

    _folder: Folder
    _known: tuple[Any, dict[str, dict[str, Any]]] | None = None

    def _adds(self, state: DeltaState) -> dict[str, dict[str, Any]]:
        """Return the files of the version. Those of the last one are kept: the log is read once for all of them."""
        version = state.about.id, state.version, state.entry
        if self._known is None or self._known[0] != version or state.entry is None:
            self._known = version, live_adds(self._folder, state.version)
        return self._known[1]

    def version(self, state: DeltaState) -> Version:
        """Return the identity of the state's content. A folder that was restored has other versions of the same number."""
        return Version(state.about.id, self._identity(state.version), self._identity(state.version - 1))

    def _identity(self, version: int) -> str:
        data = self._folder.read(entry_name(version)) if version >= 0 else b""
        found = uuid.uuid4().hex if data is None else hashlib.sha256(data).hexdigest()[:32]  # unknown: like no other
        return f"{version}:{found}"

    def live(self, state: DeltaState) -> Live:
        """Return the files of the version; see `Deleting.live`. A vector counts as a file of deletes of its own."""
        check(state.about, self._folder.place)
        files, deletes = [], dict[str, int]()
        for path, add in self._adds(state).items():
            files.append(LiveFile(path, self._rows(add)))
            if add.get("deletionVector"):
                deletes[_key(add)] = 0
        return Live(files, deletes)

    def _rows(self, add: dict[str, Any]) -> int:
        path = add["path"]
        if not is_inside(path):
            raise DestinationError(
                f"Delta {self._folder.place}: into.key is not supported with files outside of the folder", "copy the table"
            )
        if add.get("stats"):
            return int(json.loads(add["stats"])["numRecords"])
        with self._folder.opened(unquote(path)) as stream, pq.ParquetFile(stream) as source:
            return int(source.metadata.num_rows)

    def blocks(self, state: DeltaState, file: LiveFile, names: Sequence[str]) -> Iterator[pa.Table]:
        """Read all rows of a file in order; see `Deleting.blocks`."""
        with self._folder.opened(unquote(file.path)) as stream, as_micros(stream) as source:
            there = _there(source, names, file.path)
            yield from self._completed(state, file, names, there, source.iter_batches(columns=list(there.values())))

    def rows_at(self, state: DeltaState, file: LiveFile, names: Sequence[str], places: np.ndarray) -> Iterator[pa.Table]:
        """Read single rows of a file; see `Deleting.rows_at`."""
        with self._folder.opened(unquote(file.path)) as stream, as_micros(stream) as source:
            there = _there(source, names, file.path)
            yield from self._completed(state, file, names, there, chosen_rows(source, list(there.values()), places))

    def _completed(
        self,
        state: DeltaState,
        file: LiveFile,
        names: Sequence[str],
        there: Mapping[str, str],
        batches: Iterator[pa.RecordBatch],
    ) -> Iterator[pa.Table]:
        """Add the columns that a file lacks: partition values, else NULL."""
        kinds = {field["name"]: arrow(field["type"]) for field in state.about.fields}
        values = dict(file.values) if file.values else {}
        if not values and set(names) & set(state.about.partitions):
            values = self._adds(state)[file.path]["partitionValues"]
        for batch in batches:
            columns = [
                batch.column(there[name]) if name in there else _constant(values.get(name), kinds[name], len(batch))
                for name in names
            ]
            yield pa.table(columns, names=list(names)) if names else pa.table({"": pa.nulls(len(batch))})

    def positions(self, state: DeltaState, path: str) -> Iterator[pa.Table]:
        """Read a vector; see `Deleting.positions`."""
        name = path.partition("\n")[0]
        found = vectors.positions(self._folder, self._adds(state)[name]["deletionVector"])
        yield pa.table({"path": pa.array([name] * len(found), pa.string()), "position": pa.array(found)})

    def bring_rows(self, schema: Any, commit: Commit, blocks: Iterator[pa.Table]) -> Sequence[Brought]:
        """Write rows into the table's folder; see `Deleting.bring_rows`."""
        wanted = pa.schema([(field["name"], arrow(field["type"])) for field in schema.fields])
        return bring_blocks(self._folder, wanted, blocks, f"kpipe-{uuid.uuid4().hex}", commit, schema.parts)

    def bring_deletes(self, state: DeltaState, schema: Any, deleted: Any, emptied: Sequence[LiveFile] = ()) -> Sequence[Replaced]:
        """Write vectors of the deleted positions; see `Deleting.bring_deletes`."""
        added: dict[str, list[np.ndarray]] = {}
        for _, blocks in deleted:
            for block in blocks:
                paths, places = block["path"].to_numpy(), block["position"].to_numpy()
                cuts = np.flatnonzero(paths[1:] != paths[:-1]) + 1
                for first, mine in zip([0, *cuts], np.split(places, cuts), strict=True):
                    added.setdefault(str(paths[first]), []).append(mine)
        if not (added or emptied):
            return ()
        known = self._adds(state)
        whole, changed, bitmaps = [Replaced(known[file.path], None) for file in emptied], [], []
        for path, places in added.items():
            add = known[path]
            old = vectors.read(self._folder, add["deletionVector"]) if add.get("deletionVector") else BitMap64()
            bitmap = old | BitMap64(np.concatenate(places).tolist())
            rows = self._rows(add)
            if not add.get("stats"):
                add = {**add, "stats": json.dumps({"numRecords": rows})}
            if len(bitmap) == rows:
                whole.append(Replaced(add, None))
            else:
                changed.append(add)
                bitmaps.append(bitmap)
        made = vectors.write(self._folder, bitmaps) if bitmaps else []
        return [*whole, *(Replaced(add, vector) for add, vector in zip(changed, made, strict=True))]

    def added(self, state: DeltaState, brought: Sequence[Any]) -> Changes:
        """Return what a commit has changed; see `Deleting.added`."""
        rows = [LiveFile(quote(file.name), file.rows) for file in brought if isinstance(file, Brought)]
        changed = [file for file in brought if isinstance(file, Replaced)]
        new = [_key({**file.add, "deletionVector": file.vector}) for file in changed if file.vector is not None]
        old = [_key(file.add) for file in changed if file.add.get("deletionVector")]
        return Changes(rows, new, old, [file.add["path"] for file in changed if file.vector is None])


def _there(source: pq.ParquetFile, names: Sequence[str], path: str) -> dict[str, str]:
    """Return the columns that a file has: its own spelling by the table's. Delta ignores the case of names.

    Raises:
        DestinationError: two columns of the file differ by case only.
    """
    folded, there = dict[str, list[str]](), dict[str, str]()
    for name in source.schema_arrow.names:
        folded.setdefault(name.lower(), []).append(name)
    for name in names:
        if len(found := folded.get(name.lower(), [])) > 1:
            raise DestinationError(
                f"{path}: columns {' and '.join(found)} differ by case only", "write the file with one of them"
            )
        if found:
            there[name] = found[0]
    return there


def _constant(value: str | None, kind: pa.DataType, count: int) -> pa.Array:
    """Return a column of one partition value, which the log has as text; an empty one is NULL, too."""
    return pa.nulls(count, kind) if value in (None, "") else pa.array([value] * count, pa.string()).cast(kind)


def _key(add: dict[str, Any]) -> str:
    return f"{add['path']}\n{vectors.identity(add['deletionVector'])}"


def check(about: Table, place: str) -> None:
    """Reject a table in which rows may not be deleted, or only with further files.

    Raises:
        DestinationError: names the property.
    """
    for name in ("delta.appendOnly", "delta.enableChangeDataFeed"):
        if about.settings.get(name) == "true":
            raise DestinationError(f"Delta {place}: into.key is not supported with {name}", "choose another table")


def upgraded(about: Table | None, made: dict[str, Any], place: str) -> tuple[dict[str, Any] | None, dict[str, str]]:
    """Return the protocol action that adds deletion vectors, and the table's properties.

    Args:
        about: the table; None: it is created.
        made: the protocol action of its columns.
        place: for messages.

    Raises:
        SchemaConflict: the table's writer version cannot be raised.
    """
    settings = {**(about.settings if about is not None else {}), _ENABLED: "true"}
    if about is not None and _FEATURE in about.writes:
        return None, settings
    if about is not None and about.writer in (3, 4, 5, 6):
        raise SchemaConflict(
            f"Delta {place}: the table has writer version {about.writer}: into.key needs the table feature {_FEATURE}",
            "add this table feature to the table, or choose another table",
        )
    reads = {*made.get("readerFeatures", ()), *(about.reads if about is not None else ()), _FEATURE}
    writes = {*made.get("writerFeatures", ()), *(about.writes if about is not None else ()), _FEATURE, "appendOnly", "invariants"}
    action = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": sorted(reads), "writerFeatures": sorted(writes)}
    return action, settings
