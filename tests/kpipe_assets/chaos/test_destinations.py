"""Each type of destination: copies under faults are proven and removed, and nothing of the real table and ledger changes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from kpipe_assets.chaos import campaign
from kpipe_assets.chaos.faults import Fault
from resources.kafka import consumer_group
from tests.kpipe_assets.chaos.conftest import RECORDS, Site
from tests.servers import mariadb as maria
from tests.servers import postgres as pg
from tests.survival.small import run

pytestmark = pytest.mark.broker

FAULTS = (
    Fault(1, "kill at a failpoint", point="commit.after", nth=2),
    Fault(2, "stop at a failpoint", point="collect.all", nth=1, seconds=20),
)
State = Callable[[], dict[str, Any]]
Real = Callable[[Path, pytest.FixtureRequest], tuple[dict[str, Any], dict[str, str], State]]


def files(*folders: Path) -> State:
    """All files of folders with their content, and all folders."""
    return lambda: {
        str(path): path.read_bytes() if path.is_file() else None for folder in folders for path in sorted(folder.rglob("*"))
    }


def in_home(kind: str) -> Real:
    def real(folder: Path, _: pytest.FixtureRequest) -> tuple[dict[str, Any], dict[str, str], State]:
        return {"type": kind}, {}, files(folder / "home" / "data")

    return real


def beside(kind: str, name: str, **more: Any) -> Real:
    def real(folder: Path, _: pytest.FixtureRequest) -> tuple[dict[str, Any], dict[str, str], State]:
        (folder / "place").mkdir()
        return {"type": kind, "database": f"{folder}/place{name}", **more}, {}, files(folder / "place")

    return real


def schemas(request: pytest.FixtureRequest) -> tuple[pg.PostgresServer, State]:
    """All rows of all tables of all schemas."""
    server: pg.PostgresServer = request.getfixturevalue("postgres")
    server.sql(f"GRANT CREATE ON DATABASE postgres TO {pg.ROLE}")
    tables = "SELECT format('%I.%I', schemaname, tablename) FROM pg_tables WHERE schemaname !~ '^(pg_|information_)'"

    def state() -> dict[str, Any]:
        found: dict[str, Any] = {name: sorted(server.sql(f"SELECT (t.*)::text FROM {name} t")) for (name,) in server.sql(tables)}
        return {**found, "schemas": sorted(server.sql("SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_'"))}

    return server, state


def postgres(_: Path, request: pytest.FixtureRequest) -> tuple[dict[str, Any], dict[str, str], State]:
    server, state = schemas(request)
    credentials = {"password": "{{ env('SECRET') }}"}
    into = {"type": "postgres", "database": server.address(server.schema()), "credentials": credentials}
    return into, {"SECRET": pg.PASSWORD}, state


def mysql(_: Path, request: pytest.FixtureRequest) -> tuple[dict[str, Any], dict[str, str], State]:
    server: maria.MariaServer = request.getfixturevalue("mariadb")
    server.sql(f"GRANT ALL ON `\\_\\_kpipe\\_chaos\\_%`.* TO {maria.ROLE}@'%'")
    database = server.database()

    def state() -> dict[str, Any]:
        found: dict[str, Any] = {"databases": server.sql("SHOW DATABASES")}
        for (name,) in server.sql(f"SELECT table_name FROM information_schema.tables WHERE table_schema = '{database}'"):
            found[name] = sorted(map(str, server.sql(f"SELECT * FROM `{database}`.`{name}`")))
        return found

    into = {"type": "mysql", "database": server.address(database), "credentials": {"password": "{{ env('SECRET') }}"}}
    return into, {"SECRET": maria.PASSWORD}, state


def catalogued(folder: Path, request: pytest.FixtureRequest) -> tuple[dict[str, Any], dict[str, str], State]:
    """Iceberg with a catalogue in PostgreSQL: the real entry stays, and that of the copy is removed."""
    server, state = schemas(request)
    (folder / "place").mkdir()
    into = {
        "type": "iceberg", "database": f"{folder}/place", "catalog": server.address(server.schema()), "namespace": "shop",
        "credentials": {"catalog.password": "{{ env('SECRET') }}"},
    }  # fmt: skip
    return into, {"SECRET": pg.PASSWORD}, lambda: {**state(), **files(folder / "place")()}


def bucket(folder: Path, request: pytest.FixtureRequest) -> tuple[dict[str, Any], dict[str, str], State]:
    """Delta in an object store, whose objects are files of the server."""
    server = request.getfixturevalue("s3")
    into = {"type": "delta", "database": f"{server.base}/{folder.name}"}
    return into, server.environment, files(server.folder / "data" / "lake")


QUICK = {"postgres": postgres}
REAL: dict[str, Real] = {
    **QUICK,
    "duckdb": beside("duckdb", "/x.duckdb"),
    "mysql": mysql,
    "delta": beside("delta", ""),
    "iceberg": beside("iceberg", ""),
    "parquet": beside("parquet", ""),
    "audited": in_home("iceberg"),
    "catalogued": catalogued,
    "s3": bucket,
}


def topics(site: Site) -> tuple[Any, set[str]]:
    """End offsets and topics of the cluster, and its consumer groups."""
    admin = AdminClient({"bootstrap.servers": site.kpipe.brokers})
    asked = {TopicPartition(site.topic, number): OffsetSpec.latest() for number in range(2)}
    ends = {str(where): found.result().offset for where, found in admin.list_offsets(asked).items()}
    groups = {group.group_id for group in admin.list_consumer_groups().result().valid}
    return (ends, sorted(admin.list_topics().topics)), groups


def ready_for_groups(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new cluster makes its topic for groups at the first use, for which a batch does not wait; this test does."""
    monkeypatch.setattr(consumer_group, "_PATIENCE_S", 120.0)
    consumer = Consumer({"bootstrap.servers": site.kpipe.brokers, "group.id": "loaders"})
    consumer.committed([TopicPartition(site.topic, 0)], timeout=600)
    consumer.close()


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=[] if kind in QUICK else pytest.mark.chaos) for kind in REAL])
def test_nothing_real_changes(
    site: Site, chosen: Callable[..., None], kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = iter((False, True))
    monkeypatch.setattr(campaign.Campaign, "is_over", lambda self, _: next(rounds, True))
    into, variables, state = REAL[kind](site.kpipe.home.parent, request)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    more = {"audit": {"known": "id >= 0"}} if kind == "audited" else {}
    site.define(into={**into, **more, "table": "orders"}, source={"group": "loaders"})
    ready_for_groups(site, monkeypatch)
    assert list(run(site.kpipe.home, "orders"))
    real, brokers, definition = state(), topics(site), (site.home.pipelines / "orders.yaml").read_bytes()
    assert real
    chosen(*FAULTS)
    found = site.chaos()
    assert (found["verdict"], found["findings"]) == ("proven", [])
    assert [copy["verify"]["rows"] for copy in found["copies"]] == [2 * RECORDS - 4] * 2
    audits = [item["verdict"] for copy in found["copies"] for item in copy["audits"].values()]
    assert audits == ["explained"] * 2
    assert found["faults"][0]["runs"][0]["status"] == -9
    assert state() == real
    (before, former), (after, groups) = brokers, topics(site)
    assert after == before
    assert "loaders" in groups <= former, "Kafka removes groups of other tests now and then, and no run makes one"
    assert (site.home.pipelines / "orders.yaml").read_bytes() == definition
    left = {path: path.read_bytes() for path in Path(found["folder"]).rglob("*") if path.is_file()}
    assert not [
        path for path, data in left.items() for name, value in variables.items() if "SECRET" in name and value.encode() in data
    ]
