"""A place of a destination that keeps its ledger in files beside the data (resources/destinations/lakehouse)."""

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
    """Hands on the files of the ledger.

    Attributes:
        folder: that tables lie in, each in a folder of its name.
    """

    ledger_in_table = True

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.folder = folder / "lake"

    @abstractmethod
    def pointer(self, pipeline: str) -> str:
        """Name of the record's file that the table `tweets` says of the pipeline (`Pointer.name`)."""

    @abstractmethod
    def point(self, seq: int, sealed: int) -> None:
        """A hand lets the table say another of pipeline `tweets`."""

    def own(self, pipeline: str = "tweets") -> Path:
        """Where the pipeline's files of the ledger lie."""
        return self.folder / "tweets" / "_kpipe" / folder_of(pipeline)

    def record(self, pipeline: str = "tweets") -> dict[str, Any]:
        """The newest record."""
        found: dict[str, Any] = json.loads((self.own(pipeline) / self.pointer(pipeline)).read_bytes())
        return found

    def letters(self, pipeline: str = "tweets") -> list[Path]:
        """Files of dead letters."""
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
        """What hands that know the files, and not the seal, would do."""
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
