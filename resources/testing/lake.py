"""A test place for destinations with ledger files beside the data (resources/destinations/lakehouse)."""

from __future__ import annotations

import json
from abc import abstractmethod
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from resources.destinations.lakehouse.ledger_file import folder_of, mark
from resources.testing.place import Place

__all__ = ["LakePlace"]


class LakePlace(Place):
    """A place that can edit the ledger files.

    Attributes:
        folder: the parent folder of all tables; a table's folder has its name.
    """

    ledger_in_table = True

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.folder = folder / "lake"

    @abstractmethod
    def pointer(self, pipeline: str) -> str:
        """Return the name of the ledger file that table `tweets` refers to for the pipeline (`Pointer.name`)."""

    @abstractmethod
    def point(self, seq: int, sealed: int) -> None:
        """Make the table refer to another ledger file of pipeline `tweets`, as an edit by hand would."""

    def own(self, pipeline: str = "tweets") -> Path:
        """Return the folder of the pipeline's ledger files."""
        return self.folder / "tweets" / "_kpipe" / folder_of(pipeline)

    def record(self, pipeline: str = "tweets") -> dict[str, Any]:
        """Read the newest ledger file."""
        found: dict[str, Any] = json.loads((self.own(pipeline) / self.pointer(pipeline)).read_bytes())
        return found

    def letters(self, pipeline: str = "tweets") -> list[Path]:
        """List the files of dead letters."""
        return [self.own(pipeline).parent / file["name"] for item in self.record(pipeline)["tail"] for file in item["dead"]]

    def dead_letters(self, pipeline: str = "tweets") -> int:
        """See `Place`."""
        return sum(pq.read_metadata(path).num_rows for path in self.letters(pipeline))

    def delete_dead_letter(self) -> None:
        """See `Place`."""
        path = self.letters()[0]
        rows: pa.Table = pq.read_table(path)
        path.unlink()
        pq.write_table(rows.slice(1), path)

    def rewrite(self, record: dict[str, Any]) -> None:
        """Replace the ledger file as an edit by hand would, without a new checksum in the table."""
        data = json.dumps(record, separators=(",", ":")).encode()
        (self.own() / f"{record['seq']:012}-{mark(data):016x}.json").write_bytes(data)
        self.point(record["seq"], mark(data))

    def move_lane(self, partition: int, to: int) -> None:
        """See `Place`."""
        record = self.record()
        for lane in record["lanes"]:
            if lane[3] == partition and lane[6] is None:
                lane[5] = to
        self.rewrite(record)

    def erase_lane(self, partition: int) -> None:
        """See `Place`."""
        record = self.record()
        record["lanes"] = [lane for lane in record["lanes"] if lane[3] != partition]
        self.rewrite(record)
