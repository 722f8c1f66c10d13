"""Stores of earlier formats as files: written from a place, and restored into a fresh one.

A store that holds paths or names of its place is rewritten when it is restored: schemas and databases in dumps, topics in
records, and locations in Iceberg's metadata (`iceberg_paths.py`). Delta and Parquet name files relative to the table.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import os
import shutil
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Generic, TypeVar

from kpipe.errors import KpipeError
from resources.testing.place import Place
from tests.resources.destinations.kafka_place import KafkaPlace
from tests.resources.destinations.lake_place import DeltaPlace, IcebergPlace, ParquetPlace
from tests.resources.destinations.mysql_place import MySQLPlace
from tests.resources.destinations.place import DuckDBPlace
from tests.resources.destinations.postgres_place import PostgresPlace
from tests.resources.destinations.webhook_place import WebhookPlace
from tests.servers.mariadb import MariaServer
from tests.servers.postgres import PASSWORD, PostgresServer
from tests.upgrade import iceberg_paths

__all__ = ["FORMATS", "STORES", "WRITTEN", "Store"]

#: Folders of the checked-in stores, by format.
WRITTEN = Path(__file__).parent / "stores"
#: Formats of which there is a folder, oldest first.
FORMATS = tuple(sorted(int(folder.name.removeprefix("format-")) for folder in WRITTEN.iterdir()))
_NAME = "kpipe_store"  # stands for the schema in dumps, and for the prefix of topics
_P = TypeVar("_P", bound=Place)


class Store(ABC, Generic[_P]):
    """A destination that can be written to files, and restored from them.

    Args:
        folder: a folder for the place.
        server: what `server` names, started.
    """

    #: The fixture that starts its server; empty: it needs none.
    server = ""
    place: _P

    def __init__(self, folder: Path, server: Any = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.place = self._place(folder, server)

    @abstractmethod
    def _place(self, folder: Path, server: Any) -> _P:
        """Return the place."""

    @abstractmethod
    def save(self, to: Path) -> None:
        """Write everything that the place holds to files in that folder."""

    @abstractmethod
    def restore(self, written: Path) -> None:
        """Fill the place, which is empty, with what `save` has written."""

    @abstractmethod
    def fingerprint(self) -> Any:
        """Return a value that is equal as long as nothing in the place changes."""

    @abstractmethod
    def formats(self) -> set[int | None]:
        """Return the formats that the newest parts of the store record; None for a part that records none."""

    def close(self) -> None:
        """Remove what is not in the folder."""


class _Files(Store[_P]):
    """A place whose data is one folder."""

    data = "lake"

    def save(self, to: Path) -> None:
        # Locks are empty, and belong to processes.
        shutil.copytree(self.folder / self.data, to, ignore=shutil.ignore_patterns("lock"))
        for file in to.rglob("*.duckdb"):  # blocks of 256 KiB, nearly empty
            file.with_name(f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes(), mtime=0))
            file.unlink()

    def restore(self, written: Path) -> None:
        shutil.copytree(written, self.folder / self.data, dirs_exist_ok=True)
        for file in (self.folder / self.data).rglob("*.duckdb.gz"):
            file.with_suffix("").write_bytes(gzip.decompress(file.read_bytes()))
            file.unlink()

    def fingerprint(self) -> dict[str, str]:
        files = [path for path in (self.folder / self.data).rglob("*") if path.is_file() and path.name != "lock"]
        return {str(path.relative_to(self.folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def _recorded(place: DuckDBPlace) -> set[int | None]:
    known = place.sql("SELECT 1 FROM duckdb_tables() WHERE table_name = 'kpipe_format'")
    return {row[0] for row in place.sql("SELECT version FROM kpipe_format")} or {None} if known else {None}


def _of_records(folder: Path) -> set[int | None]:
    """Return the formats of the newest record of each pipeline."""
    newest: dict[Path, Path] = {}
    for file in sorted(folder.rglob("0*-*.json")):
        if file.parent.name != "events":
            newest[file.parent] = file
    return {json.loads(file.read_bytes()).get("format") for file in newest.values()}


class DuckDB(_Files[DuckDBPlace]):
    data = "data"

    def formats(self) -> set[int | None]:
        return _recorded(self.place)

    def _place(self, folder: Path, server: Any) -> DuckDBPlace:
        return DuckDBPlace(folder)


class Webhook(_Files[WebhookPlace]):
    data = "data"

    def _place(self, folder: Path, server: Any) -> WebhookPlace:
        return WebhookPlace(folder)

    def formats(self) -> set[int | None]:
        begun = (self.folder / self.data).rglob("commit.json")
        return _recorded(self.place) | {json.loads(file.read_bytes()).get("format") for file in begun}

    def close(self) -> None:
        self.place.close()


class Delta(_Files[DeltaPlace]):
    def formats(self) -> set[int | None]:
        return _of_records(self.folder / self.data)

    def _place(self, folder: Path, server: Any) -> DeltaPlace:
        return DeltaPlace(folder)


class Parquet(_Files[ParquetPlace]):
    def formats(self) -> set[int | None]:
        tables = [max(folder.glob("0*.json")) for folder in (self.folder / self.data).glob("*/_manifest")]
        return _of_records(self.folder / self.data) | {json.loads(file.read_bytes()).get("format") for file in tables}

    def _place(self, folder: Path, server: Any) -> ParquetPlace:
        return ParquetPlace(folder)


class Iceberg(_Files[IcebergPlace]):
    def formats(self) -> set[int | None]:
        return _of_records(self.folder / self.data / "_kpipe")

    def _place(self, folder: Path, server: Any) -> IcebergPlace:
        return IcebergPlace(folder)

    def save(self, to: Path) -> None:
        super().save(to)
        iceberg_paths.rewrite(to, str(self.folder / self.data), f"/{_NAME}")

    def restore(self, written: Path) -> None:
        super().restore(written)
        iceberg_paths.rewrite(self.folder / self.data, f"/{_NAME}", str(self.folder / self.data))


class Postgres(Store[PostgresPlace]):
    server = "postgres"

    def _place(self, folder: Path, server: PostgresServer) -> PostgresPlace:
        return PostgresPlace(folder, server)

    def _run(self, program: str, *options: str, given: str = "") -> str:
        where = ["-h", "127.0.0.1", "-p", str(self.place.server.port), "-U", "admin", "-d", "postgres"]
        done = subprocess.run(
            [str(self.place.server.bin / program), *where, *options],
            env={**os.environ, "PGPASSWORD": PASSWORD}, input=given, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    def _dump(self) -> str:
        text = self._run("pg_dump", "--schema", self.place.schema, "--no-comments", "--inserts")
        # Lines that hold a random key of each dump, or the server's version.
        kept = [line for line in text.split("\n") if not line.startswith(("\\restrict", "\\unrestrict", "-- Dumped"))]
        return "\n".join(kept).replace(self.place.schema, _NAME)

    def save(self, to: Path) -> None:
        to.mkdir(parents=True)
        (to / "dump.sql").write_text(self._dump(), encoding="utf-8")

    def restore(self, written: Path) -> None:
        self.place.server.sql(f"DROP SCHEMA {self.place.schema}")
        text = (written / "dump.sql").read_text(encoding="utf-8").replace(_NAME, self.place.schema)
        # A newer server's pg_dump may write settings that an older server refuses.
        text = text.replace("SET transaction_timeout = 0;\n", "")
        self._run("psql", "-q", "-v", "ON_ERROR_STOP=1", given=text)

    def formats(self) -> set[int | None]:
        known = self.place.sql("SELECT to_regclass('kpipe_format') IS NOT NULL AS known")[0]["known"]
        return {row["version"] for row in self.place.sql("SELECT version FROM kpipe_format")} or {None} if known else {None}

    def fingerprint(self) -> str:
        return self._dump()


class MariaDB(Store[MySQLPlace]):
    server = "mariadb"

    def _place(self, folder: Path, server: MariaServer) -> MySQLPlace:
        return MySQLPlace(folder, server)

    def _run(self, program: str, *options: str, given: str = "") -> str:
        where = ["--no-defaults", f"--socket={self.place.server.folder / 'socket'}", "--user=root"]
        done = subprocess.run(
            [program, *where, *options, self.place.database], input=given, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def _dump(self) -> str:
        return self._run("mariadb-dump", "--hex-blob", "--skip-comments", "--compact", "--default-character-set=utf8mb4")

    def save(self, to: Path) -> None:
        to.mkdir(parents=True)
        (to / "dump.sql").write_text(self._dump(), encoding="utf-8")

    def restore(self, written: Path) -> None:
        text = "SET foreign_key_checks = 0;\n" + (written / "dump.sql").read_text(encoding="utf-8")
        self._run("mariadb", "--default-character-set=utf8mb4", given=text)

    def formats(self) -> set[int | None]:
        known = self.place.sql("SHOW TABLES LIKE 'kpipe_format'")
        return {row["version"] for row in self.place.sql("SELECT version FROM kpipe_format")} or {None} if known else {None}

    def fingerprint(self) -> str:
        return self._dump()


class Kafka(Store[KafkaPlace]):
    """Topics as JSON: key, value and headers of each record in base64. Ledgers name their topic, and its id."""

    server = "brokers"

    def _place(self, folder: Path, server: str) -> KafkaPlace:
        return KafkaPlace(folder, server)

    def _topics(self) -> list[str]:
        found = self.place.admin.list_topics(timeout=300).topics
        return sorted(name for name in found if name.startswith(self.place.prefix))

    def _records(self) -> dict[str, list[dict[str, Any]]]:
        return {
            name.replace(self.place.prefix, _NAME): [
                {
                    "partition": message.partition(),
                    "timestamp": message.timestamp()[1],
                    "key": _text(message.key()),
                    "value": _text(message.value()),
                    "headers": [[key, _text(value)] for key, value in message.headers() or ()],
                }
                for message in self.place.records(name)
            ]
            for name in self._topics()
        }

    def save(self, to: Path) -> None:
        to.mkdir(parents=True)
        found = self._records()
        for name, records in found.items():
            if "-ledger-" in name:
                for record in records:
                    record["value"] = _rewritten(record["value"], self.place.prefix, _NAME)
        (to / "topics.json").write_text(json.dumps(found, indent=0), encoding="utf-8")
        shutil.copytree(self.folder / "notes", to / "notes")

    def restore(self, written: Path) -> None:
        said = json.loads((written / "topics.json").read_text(encoding="utf-8"))
        ids: dict[str, str] = {}
        for stored in sorted(said, key=lambda name: "-ledger-" in name):  # ledgers last: they hold the ids of the others
            name, ledger = stored.replace(_NAME, self.place.prefix), "-ledger-" in stored
            single = ledger or name.endswith(".dead-letters")
            self.place.topic(name, 1 if single else 2, **({"cleanup.policy": "compact"} if ledger else {}))
            if not single:
                ids[name] = self.place.open(table=stored.removeprefix(f"{_NAME}-")).cluster.topic(name).id
            for record in said[stored]:
                value = _rewritten(record["value"], _NAME, self.place.prefix, ids) if ledger else record["value"]
                self.place.produce(
                    name, partition=record["partition"], timestamp=record["timestamp"], key=_bytes(record["key"]),
                    value=_bytes(value), headers=[(key, _bytes(item)) for key, item in record["headers"]],
                )  # fmt: skip
        shutil.copytree(written / "notes", self.folder / "notes")

    def formats(self) -> set[int | None]:
        ledgers = [records for name, records in self._records().items() if "-ledger-" in name]
        states = [[record for record in records if record["key"] == _text(b"state")][-1] for records in ledgers]
        return {json.loads(gzip.decompress(_bytes(state["value"]) or b""))["record"].get("format") for state in states}

    def fingerprint(self) -> Any:
        return self._records()

    def close(self) -> None:
        with suppress(KpipeError):
            self.place.close()


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def _rewritten(value: str | None, old: str, new: str, ids: dict[str, str] | None = None) -> str | None:
    data = _bytes(value)
    if data is None:
        return None
    said = json.loads(gzip.decompress(data).decode().replace(old, new))
    if ids is not None and "target" in said:
        said["target"] = ids[said["record"]["table"]]
    return _text(gzip.compress(json.dumps(said, separators=(",", ":")).encode(), mtime=0))


#: By name of the folder in `WRITTEN`; DuckDB's files by the version of DuckDB that has made them.
STORES: dict[str, Callable[..., Store[Any]]] = {
    "duckdb-1.5": DuckDB,
    "duckdb-2.0": DuckDB,
    "webhook": Webhook,
    "delta": Delta,
    "parquet": Parquet,
    "iceberg": Iceberg,
    "postgres": Postgres,
    "mariadb": MariaDB,
    "kafka": Kafka,
}
