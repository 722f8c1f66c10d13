"""List files of a Delta table that its newest version does not have."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from urllib.parse import unquote

from resources.destinations.delta import deletion_vectors as vectors
from resources.destinations.delta.compaction import DeltaCompaction
from resources.destinations.delta.log import DeltaState
from resources.destinations.lakehouse.folder import Folder

__all__ = ["DeltaRemoval"]


class DeltaRemoval(DeltaCompaction):
    """The methods of `DeltaLake` for removals; see `Removing`."""

    @property
    def files(self) -> Folder:
        """See `Removing`."""
        return self._folder

    def expired(self, state: DeltaState, before_ms: int) -> tuple[int, Collection[str]]:
        """Do nothing: a version is a log entry, which checkpoints of the library clean up after a month."""
        del state, before_ms
        return 0, ()

    def stored(self) -> Mapping[str, str]:
        """List data files that kpipe has written, and deletion vectors in the table's folder; see `Removing.stored`."""
        names = self._folder.names("")
        data = (name for name in names if name.startswith("kpipe-") and name.endswith(".parquet"))
        deletes = (name for name in names if name.startswith("deletion_vector_") and name.endswith(".bin"))
        return {name: name for name in (*data, *deletes)}

    def referenced(self, state: DeltaState) -> Collection[str]:
        """Return names of files of the version; see `Removing.referenced`."""
        adds = self._adds(state)
        found = {unquote(path).rpartition("/")[2] for path in adds}
        descriptors = (add["deletionVector"] for add in adds.values() if add.get("deletionVector"))
        return found | {name for descriptor in descriptors if (name := vectors.file_name(descriptor))}
