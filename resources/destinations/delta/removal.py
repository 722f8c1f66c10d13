"""List files of a Delta table that its newest version does not have."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from urllib.parse import unquote

from resources.destinations.delta import deletion_vectors as vectors
from resources.destinations.delta.compaction import DeltaCompaction
from resources.destinations.delta.log import DeltaState, entry_name
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
        """List data files of kpipe, its temporary files, and deletion vectors in the table's folder; see `Removing.stored`."""
        names = self._folder.names("")
        data = (name for name in names if name.startswith("kpipe-") and name.endswith(".parquet"))
        deletes = (name for name in names if name.startswith("deletion_vector_") and name.endswith(".bin"))
        begun = {name: f"_delta_log/{name}" for name in self._folder.temporary("_delta_log")}
        return {**{name: name for name in (*data, *deletes, *self._folder.temporary(""))}, **begun}

    def referenced(self, state: DeltaState) -> Collection[str]:
        """Return names of files of the version; see `Removing.referenced`."""
        adds = self._adds(state)
        found = {_name(path) for path in adds}
        descriptors = (add["deletionVector"] for add in adds.values() if add.get("deletionVector"))
        return found | {name for descriptor in descriptors if (name := vectors.file_name(descriptor))}

    def released(self, state: DeltaState, after: int) -> tuple[float, Mapping[str, float]]:
        """Read the `remove` actions of the versions; see `Removing.released`. Checkpoints clean up old versions."""
        others, found = 0.0, dict[str, float]()
        for version in range(after + 1, state.version + 1):
            data = self._folder.read(entry_name(version))
            if data is None:
                others = math.inf  # unless a later version is there
                continue
            if others == math.inf and (facts := self._folder.look(entry_name(version))) is not None:
                others = facts[1] / 1000
            for line in data.splitlines():
                action = json.loads(line).get("remove") if b'"remove"' in line else None
                if action is not None:
                    moment, vector = action.get("deletionTimestamp"), action.get("deletionVector")
                    seconds = math.inf if moment is None else moment / 1000  # optional in Delta
                    for name in (_name(action["path"]), *([vectors.file_name(vector)] if vector else [])):
                        found[name] = max(seconds, found.get(name, 0))
        return others, found


def _name(path: str) -> str:
    return unquote(path).rpartition("/")[2]
