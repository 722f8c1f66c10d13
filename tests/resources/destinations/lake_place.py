"""Places for destinations that keep their ledger in files beside the data."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, QueryBuilder, Transaction, write_deltalake
from pyiceberg.expressions import And, EqualTo
from pyiceberg.table import Table

from kpipe import failpoints
from kpipe.batch.batch import Commit
from kpipe.interfaces import Destination
from kpipe.tables.upsert import KeyRule
from resources.destinations.delta import DeltaLake
from resources.destinations.iceberg import IcebergLake, Postgres, Rest, SQLite
from resources.destinations.lakehouse import LakeDestination
from resources.destinations.lakehouse.folder import LocalFolder
from resources.destinations.lakehouse.keyed import KeyedLakes
from resources.destinations.lakehouse.ledger_file import folder_of
from resources.destinations.lakehouse.object_store_folder import BucketFolder
from resources.destinations.parquet import ParquetFolder
from resources.duckdb_engine.arrow_types import staged_type
from resources.object_store.clients import client
from resources.object_store.s3 import S3Store
from resources.testing.lake import LakePlace
from resources.testing.place import Place
from tests.servers.object_store import StoreServer
from tests.servers.postgres import PostgresServer
from tests.servers.rest import RestServer
from tests.servers.s3 import BUCKET, CREDENTIALS, S3Server

_processes = multiprocessing.get_context("forkserver")  # a fork of a process that has used deltalake hangs: it has threads
_processes.set_forkserver_preload(["tests.resources.destinations.lake_place"])


def killed(place: Place, commit: Commit, point: str) -> None:
    """A process that commits is killed when it comes to that point."""
    process = _processes.Process(target=_commit, args=(place, commit, f"{point}:1:kill"))
    process.start()
    process.join(300)
    assert process.exitcode == -signal.SIGKILL


def _commit(place: Place, commit: Commit, fault: str) -> None:
    failpoints.arm(failpoints.Fault(fault))
    place.open().commit(commit)


def read(table: DeltaTable) -> pa.Table:
    """All rows: the library's datasets have no deletion vectors, its query engine has."""
    try:
        return table.to_pyarrow_table()
    except Exception as error:
        if "deletion" not in str(error).lower():
            raise
        found = pa.RecordBatchReader.from_stream(QueryBuilder().register("t", table).execute("SELECT * FROM t")).read_all()
        views = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
        return found.cast(pa.schema([field.with_type(views.get(field.type, field.type)) for field in found.schema]))


def opened(place: Any, roots: tuple[Any, ...], pipeline: str, table: str, rule: KeyRule | None) -> Destination:
    arguments = (place.lake(table), table, pipeline, {"source_type": "KAFKA"}, roots)
    if rule is None:
        return LakeDestination(*arguments)
    return KeyedLakes(*arguments, rule=rule, cache=place.staging.parent / "cache" / table)


class DeltaPlace(LakePlace):
    keyed = True
    keeps = True

    def lake(self, table: str = "tweets") -> DeltaLake:
        return DeltaLake(self.folder / table)

    def open(self, pipeline: str = "tweets", table: str = "tweets", rule: KeyRule | None = None) -> Destination:
        return opened(self, (self.staging,), pipeline, table, rule)

    def delta(self, table: str = "tweets") -> DeltaTable:
        return DeltaTable(str(self.folder / table))

    def rows(self, table: str = "tweets") -> list[dict[str, Any]]:
        if not (self.folder / table / "_delta_log").is_dir():
            return []
        found = read(self.delta(table)).to_pylist()
        return sorted(found, key=lambda row: (row["_kafka_partition"] or 0, row["_kafka_offset"] or 0))

    def pointer(self, pipeline: str) -> str:
        said = self.delta().transaction_version
        return f"{said(f'kpipe:{pipeline}:seq'):012}-{said(f'kpipe:{pipeline}:record'):016x}.json"

    def point(self, seq: int, sealed: int) -> None:
        self.say({"kpipe:tweets:record": sealed})

    def delete_row(self, partition: int, offset: int) -> None:
        self.delta().delete(f"_kafka_partition = {partition} AND _kafka_offset = {offset}")

    def double_row(self, partition: int, offset: int) -> None:
        rows = read(self.delta())
        chosen = pc.and_(pc.equal(rows["_kafka_partition"], partition), pc.equal(rows["_kafka_offset"], offset))
        write_deltalake(str(self.folder / "tweets"), rows.filter(chosen), mode="append")

    def say(self, transactions: dict[str, int]) -> None:
        table = self.delta()
        said = CommitProperties(app_transactions=[Transaction(name, version) for name, version in transactions.items()])
        table.create_write_transaction([], mode="append", schema=table.schema(), partition_by=[], commit_properties=said)

    def drop_table(self) -> None:
        shutil.rmtree(self.folder / "tweets")


class _InStore(LakePlace):
    """A lake in an object store. Hands are laid on a copy in the local folder, which `laid` brings back.

    What is kept is plain, so that another process can open the place, too.
    """

    def __init__(self, folder: Path, server: StoreServer) -> None:
        super().__init__(folder)
        self.access, self.around = server.access(), server.access(direct=True)
        self.place = f"{server.base}/{folder.name}"

    def bucket(self) -> BucketFolder:
        return BucketFolder(client(self.access), self.place)

    def copied(self) -> dict[Path, bytes]:
        """The objects, as files of the local folder."""
        store, found = client(self.around), {}
        for item in store.listed(f"{self.place}/"):
            name = item.uri.removeprefix(f"{self.place}/")
            if not name.startswith("staging/"):
                found[self.folder / name] = store.get(item.uri) or b""
        for path in [path for path in self.folder.rglob("*") if path.is_file()]:
            if path not in found:
                path.unlink()
        for path, data in found.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        return found

    @contextmanager
    def laid(self) -> Iterator[None]:
        """Changes of the local folder become changes of the objects."""
        before, store = self.copied(), client(self.around)
        yield
        after = {path: path.read_bytes() for path in self.folder.rglob("*") if path.is_file()}
        for path in before.keys() - after.keys():
            store.remove(f"{self.place}/{path.relative_to(self.folder)}")
        for path, data in after.items():
            if before.get(path) != data:
                store.put(f"{self.place}/{path.relative_to(self.folder)}", data)

    def record(self, pipeline: str = "tweets") -> dict[str, Any]:
        self.copied()
        return super().record(pipeline)

    def delete_dead_letter(self) -> None:
        with self.laid():
            super().delete_dead_letter()

    def rewrite(self, record: dict[str, Any]) -> None:
        with self.laid():
            super().rewrite(record)

    def drop_table(self) -> None:
        store = client(self.around)
        for item in list(store.listed(f"{self.place}/tweets/")):
            store.remove(item.uri)


class DeltaStorePlace(_InStore, DeltaPlace):
    """A Delta table in an object store."""

    def lake(self, table: str = "tweets") -> DeltaLake:
        return DeltaLake(self.bucket().below(table))

    def open(self, pipeline: str = "tweets", table: str = "tweets", rule: KeyRule | None = None) -> Destination:
        return opened(self, (self.staging, f"{self.place}/staging"), pipeline, table, rule)

    def delta(self, table: str = "tweets") -> DeltaTable:
        """As readers of the store find it."""
        return DeltaTable(f"{self.place}/{table}", storage_options=client(self.around).options())

    def rows(self, table: str = "tweets") -> list[dict[str, Any]]:
        if not any(client(self.around).names(f"{self.place}/{table}/_delta_log/")):
            return []
        found = read(self.delta(table)).to_pylist()
        return sorted(found, key=lambda row: (row["_kafka_partition"] or 0, row["_kafka_offset"] or 0))

    def copy(self) -> DeltaPlace:
        """The place of the local folder."""
        place = DeltaPlace.__new__(DeltaPlace)
        place.folder = self.folder
        return place

    def pointer(self, pipeline: str) -> str:
        return self.copy().pointer(pipeline)

    def point(self, seq: int, sealed: int) -> None:
        self.copy().point(seq, sealed)

    def delete_row(self, partition: int, offset: int) -> None:
        with self.laid():
            self.copy().delete_row(partition, offset)

    def double_row(self, partition: int, offset: int) -> None:
        with self.laid():
            self.copy().double_row(partition, offset)


class ParquetPlace(LakePlace):
    def made(self, table: str) -> ParquetFolder:
        return ParquetFolder(LocalFolder(self.folder / table))

    def open(self, pipeline: str = "tweets", table: str = "tweets") -> Destination:
        return LakeDestination(self.made(table), table, pipeline, {"source_type": "KAFKA"}, (self.staging,))

    def shown(self, table: str = "tweets") -> list[dict[str, Any]]:
        """What reads all files of the folder finds."""
        paths = sorted((self.folder / table).glob("*.parquet"))
        if not paths:
            return []
        found = pa.concat_tables([pq.read_table(path) for path in paths], promote_options="default").to_pylist()
        return sorted(found, key=lambda row: (row["_kafka_partition"] or 0, row["_kafka_offset"] or 0))

    def rows(self, table: str = "tweets") -> list[dict[str, Any]]:
        lake = self.made(table)
        state = lake.load()
        if state is None or not (state.older or state.newer):
            return []
        kinds = [(name, staged_type(kind)) for name, kind in state.columns]
        nothing = pa.schema(kinds).empty_table()
        files = []
        for name in (*state.older, *state.newer):
            with lake._opened(name) as stream:
                files.append(pq.read_table(stream))
        found = pa.concat_tables([nothing, *files], promote_options="default").to_pylist()
        return sorted(found, key=lambda row: (row["_kafka_partition"] or 0, row["_kafka_offset"] or 0))

    def pointer(self, pipeline: str) -> str:
        state = self.made("tweets").load()
        assert state is not None
        seq, _, sealed = state.pointers[pipeline].partition(":")
        return f"{int(seq):012}-{sealed}.json"

    def newest(self) -> Path:
        return max((self.folder / "tweets" / "_manifest").glob("0*.json"))

    def point(self, seq: int, sealed: int) -> None:
        said = json.loads(self.newest().read_bytes())
        said["pointers"]["tweets"] = f"{seq}:{sealed:016x}"
        self.newest().write_text(json.dumps(said))

    def changed(self, partition: int, offset: int, times: int) -> None:
        for path in (self.folder / "tweets").glob("*.parquet"):
            rows = pq.read_table(path)
            chosen = pc.and_(pc.equal(rows["_kafka_partition"], partition), pc.equal(rows["_kafka_offset"], offset))
            if rows.filter(chosen).num_rows:
                path.unlink()
                pq.write_table(pa.concat_tables([rows.filter(pc.invert(chosen)), *[rows.filter(chosen)] * times]), path)

    def delete_row(self, partition: int, offset: int) -> None:
        self.changed(partition, offset, 0)

    def double_row(self, partition: int, offset: int) -> None:
        self.changed(partition, offset, 2)

    def drop_table(self) -> None:
        shutil.rmtree(self.folder / "tweets")


class IcebergPlace(LakePlace):
    keyed = True
    keeps = True

    def lake(self, table: str = "tweets") -> IcebergLake:
        return IcebergLake(LocalFolder(self.folder), table, SQLite(self.folder))

    def staged_below(self) -> tuple[Any, ...]:
        return (self.staging,)

    def open(self, pipeline: str = "tweets", table: str = "tweets", rule: KeyRule | None = None) -> Destination:
        return opened(self, self.staged_below(), pipeline, table, rule)

    def iceberg(self, table: str = "tweets") -> Table:
        state = self.lake(table).load()
        assert state is not None
        return state.table

    def rows(self, table: str = "tweets") -> list[dict[str, Any]]:
        if self.lake(table).load() is None:
            return []
        found = self.iceberg(table).scan().to_arrow().to_pylist()
        return sorted(found, key=lambda row: (row["_kafka_partition"] or 0, row["_kafka_offset"] or 0))

    def own(self, pipeline: str = "tweets") -> Path:
        return self.folder / "_kpipe" / folder_of("tweets") / folder_of(pipeline)

    def pointer(self, pipeline: str) -> str:
        state = self.lake().load()
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


class PostgresIcebergPlace(IcebergPlace):
    """The catalogue is in PostgreSQL."""

    def __init__(self, folder: Path, server: PostgresServer) -> None:
        super().__init__(folder)
        self.server, self.schema = server, server.schema()

    def catalogue(self) -> Postgres:
        return Postgres(self.server.server(self.schema))

    def lake(self, table: str = "tweets") -> IcebergLake:
        return IcebergLake(LocalFolder(self.folder), table, self.catalogue())

    def drop_table(self) -> None:
        self.catalogue().opened(LocalFolder(self.folder)).drop_table("default.tweets")
        super().drop_table()


class RestIcebergPlace(IcebergPlace):
    """The catalogue is Iceberg's own reference server; each place has a namespace in it."""

    def __init__(self, folder: Path, server: RestServer) -> None:
        super().__init__(folder)
        self.server, self.namespace = server, f"n{os.urandom(6).hex()}"

    def lake(self, table: str = "tweets") -> IcebergLake:
        return IcebergLake(LocalFolder(self.folder), table, Rest(self.server.uri, {}), self.namespace)

    def own(self, pipeline: str = "tweets") -> Path:
        return self.folder / "_kpipe" / folder_of(f"{self.namespace}.tweets") / folder_of(pipeline)

    def drop_table(self) -> None:
        Rest(self.server.uri, {}).opened(LocalFolder(self.folder)).drop_table(f"{self.namespace}.tweets")
        super().drop_table()


class StoreIcebergPlace(PostgresIcebergPlace):
    """Tables are in an object store, the catalogue in PostgreSQL. Objects are files, too, for hands."""

    def __init__(self, folder: Path, server: PostgresServer, s3: S3Server) -> None:
        super().__init__(folder, server)
        self.endpoint, self.place = s3.endpoint, f"s3://{BUCKET}/{folder.name}"
        self.folder = s3.folder / "data" / BUCKET / folder.name

    def lake(self, table: str = "tweets") -> IcebergLake:
        return IcebergLake(BucketFolder(S3Store(CREDENTIALS, self.endpoint), self.place), table, self.catalogue())

    def staged_below(self) -> tuple[Any, ...]:
        return (self.staging, f"{self.place}/staging")
