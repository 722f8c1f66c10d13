"""Places for destinations that keep their ledger in files beside the data."""

from __future__ import annotations

import json
import multiprocessing
import shutil
import signal
from abc import abstractmethod
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from pyiceberg.expressions import And, EqualTo
from pyiceberg.table import Table

from kpipe import faults
from kpipe.batch import Commit
from kpipe.ports import Destination
from resources.destinations.delta import DeltaLake
from resources.destinations.iceberg import IcebergLake
from resources.destinations.lake import LakeDestination
from resources.destinations.lake.record import folder_of, mark
from tests.resources.destinations.place import Place

_processes = multiprocessing.get_context("forkserver")  # a fork of a process that has used deltalake hangs: it has threads
_processes.set_forkserver_preload(["tests.resources.destinations.lake_place"])


def killed(place: Place, commit: Commit, point: str) -> None:
    """A process that commits is killed when it comes to that point."""
    process = _processes.Process(target=_commit, args=(place, commit, f"{point}:1:kill"))
    process.start()
    process.join(120)
    assert process.exitcode == -signal.SIGKILL


def _commit(place: Place, commit: Commit, fault: str) -> None:
    faults.arm(faults.Fault(fault))
    place.open().commit(commit)


class LakePlace(Place):
    """What formats share: faults on the way, and hands on the files of the ledger."""

    ledger_in_table = True

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.folder = folder / "lake"
        self.faults: list[str] = []

    @abstractmethod
    def pointer(self, pipeline: str) -> str: ...

    @abstractmethod
    def point(self, seq: int, sealed: int) -> None: ...

    @abstractmethod
    def own(self, pipeline: str = "tweets") -> Path: ...

    def reached(self, point: str) -> None:
        fault = self.faults[0] if self.faults else ""
        if (fault, point) in {("before", "commit.before"), ("after_landed", "commit.after"), ("unknown", "commit.after")}:
            self.faults[0] = "unreadable" if fault == "unknown" else "spent"
            raise OSError(f"injected: {fault}")
        if point == "readback" and self.faults and self.faults.pop(0) == "unreadable":
            raise OSError("injected: unreadable")

    def fail_next(self, fault: str) -> None:
        self.faults.append(fault)
        faults.arm(self.reached)

    def record(self, pipeline: str = "tweets") -> dict[str, Any]:
        return json.loads((self.own(pipeline) / self.pointer(pipeline)).read_bytes())

    def letters(self, pipeline: str = "tweets") -> list[Path]:
        return [self.own(pipeline).parent / file["name"] for item in self.record(pipeline)["tail"] for file in item["dead"]]

    def dead_letters(self, pipeline: str = "tweets") -> int:
        return sum(pq.read_metadata(path).num_rows for path in self.letters(pipeline))

    def delete_dead_letter(self) -> None:
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
        record = self.record()
        for lane in record["lanes"]:
            if lane[3] == partition and lane[6] is None:
                lane[5] = to
        self.rewrite(record)

    def erase_lane(self, partition: int) -> None:
        record = self.record()
        record["lanes"] = [lane for lane in record["lanes"] if lane[3] != partition]
        self.rewrite(record)


class DeltaPlace(LakePlace):
    def open(self, pipeline: str = "tweets", table: str = "tweets") -> Destination:
        return LakeDestination(DeltaLake(self.folder / table), table, pipeline, {"source_type": "KAFKA"}, (self.staging,))

    def delta(self, table: str = "tweets") -> DeltaTable:
        return DeltaTable(str(self.folder / table))

    def rows(self, table: str = "tweets") -> list[dict[str, Any]]:
        if not (self.folder / table / "_delta_log").is_dir():
            return []
        found = self.delta(table).to_pyarrow_table().to_pylist()
        return sorted(found, key=lambda row: (row["_kafka_partition"] or 0, row["_kafka_offset"] or 0))

    def own(self, pipeline: str = "tweets") -> Path:
        return self.folder / "tweets" / "_kpipe" / folder_of(pipeline)

    def pointer(self, pipeline: str) -> str:
        said = self.delta().transaction_version
        return f"{said(f'kpipe:{pipeline}:seq'):012}-{said(f'kpipe:{pipeline}:record'):016x}.json"

    def point(self, seq: int, sealed: int) -> None:
        self.say({"kpipe:tweets:record": sealed})

    def delete_row(self, partition: int, offset: int) -> None:
        self.delta().delete(f"_kafka_partition = {partition} AND _kafka_offset = {offset}")

    def double_row(self, partition: int, offset: int) -> None:
        rows = self.delta().to_pyarrow_table()
        chosen = pc.and_(pc.equal(rows["_kafka_partition"], partition), pc.equal(rows["_kafka_offset"], offset))
        write_deltalake(str(self.folder / "tweets"), rows.filter(chosen), mode="append")

    def say(self, transactions: dict[str, int]) -> None:
        table = self.delta()
        said = CommitProperties(app_transactions=[Transaction(name, version) for name, version in transactions.items()])
        table.create_write_transaction([], mode="append", schema=table.schema(), partition_by=[], commit_properties=said)

    def drop_table(self) -> None:
        shutil.rmtree(self.folder / "tweets")


class IcebergPlace(LakePlace):
    def open(self, pipeline: str = "tweets", table: str = "tweets") -> Destination:
        return LakeDestination(IcebergLake(self.folder, table), table, pipeline, {"source_type": "KAFKA"}, (self.staging,))

    def iceberg(self, table: str = "tweets") -> Table:
        state = IcebergLake(self.folder, table).load()
        assert state is not None
        return state.table

    def rows(self, table: str = "tweets") -> list[dict[str, Any]]:
        if IcebergLake(self.folder, table).load() is None:
            return []
        found = self.iceberg(table).scan().to_arrow().to_pylist()
        return sorted(found, key=lambda row: (row["_kafka_partition"] or 0, row["_kafka_offset"] or 0))

    def own(self, pipeline: str = "tweets") -> Path:
        return self.folder / "_kpipe" / folder_of("tweets") / folder_of(pipeline)

    def pointer(self, pipeline: str) -> str:
        state = IcebergLake(self.folder, "tweets").load()
        assert state is not None
        seq, _, sealed = state.pointers[pipeline].partition(":")
        return f"{int(seq):012}-{sealed}.json"

    def point(self, seq: int, sealed: int) -> None:
        said = {"kpipe.pipeline.tweets": f"{seq}:{sealed:016x}"}
        self.iceberg().add_files([], snapshot_properties=said)

    def delete_row(self, partition: int, offset: int) -> None:
        chosen = And(EqualTo("_kafka_partition", partition), EqualTo("_kafka_offset", offset))
        self.iceberg().delete(chosen)

    def double_row(self, partition: int, offset: int) -> None:
        table = self.iceberg()
        chosen = And(EqualTo("_kafka_partition", partition), EqualTo("_kafka_offset", offset))
        table.append(table.scan(row_filter=chosen).to_arrow())

    def drop_table(self) -> None:
        shutil.rmtree(self.folder)
