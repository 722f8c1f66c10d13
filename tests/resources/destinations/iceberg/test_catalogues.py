"""Iceberg in other catalogues: PostgreSQL, and the reference server of the REST API, with what goes wrong on the way to them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog

from kpipe.definition.pipeline import Pipeline
from kpipe.errors import DestinationBusy, DestinationError, Fenced, InvalidPipeline, LedgerMismatch, NotAvailable
from resources.destinations import open_destination
from resources.destinations.iceberg import IcebergLake, Postgres, Rest, SQLite
from resources.destinations.lakehouse.folder import LocalFolder
from resources.home import Home
from resources.secrets import Secret
from resources.testing.place import batch
from resources.testing.state import begun, loaded, positions, proof
from tests.faults.proxy import cut_after, drop_response, pass_, reply, rst
from tests.resources.destinations.lake_place import (
    IcebergPlace,
    PostgresIcebergPlace,
    RestIcebergPlace,
    StoreIcebergPlace,
    killed,
)
from tests.servers.postgres import PASSWORD, PostgresServer
from tests.servers.rest import RestServer

SOURCE = {"brokers": "b:9092", "topic": "t"}
ASKED = b"POST /v1/namespaces/"  # the first bytes of a commit


# What a store changes is tested with Delta; here, that Iceberg's own files get there.
@pytest.fixture(params=["postgres", "rest", pytest.param("s3", marks=pytest.mark.chaos)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> IcebergPlace:
    if request.param == "s3":
        return StoreIcebergPlace(tmp_path, request.getfixturevalue("postgres"), request.getfixturevalue("s3"))
    made = {"postgres": PostgresIcebergPlace, "rest": RestIcebergPlace}[request.param]
    return made(tmp_path, request.getfixturevalue(request.param))


@pytest.fixture
def server(rest: RestServer) -> Iterator[RestServer]:
    rest.proxy.now(pass_())
    yield rest
    rest.proxy.now(pass_())


def test_rows_dead_letters_and_offsets_come_together(place: IcebergPlace) -> None:
    destination = loaded(place, dead=[(0, 3)])
    zombie = place.open()
    late = batch(place, zombie.ledger()[1], {0: 30})
    destination.commit(batch(place, destination.ledger()[1], {0: 20, 1: 9}, dead=[(0, 15), (1, 7)]))
    with pytest.raises(Fenced):
        zombie.commit(late)
    assert positions(place.open()) == {0: 20, 1: 9} and len(place.rows()) == 26
    assert len(place.open().view("errors")) == 3 and proof(place.open()).ok
    place.delete_row(0, 11)
    assert not proof(place.open()).ok


@pytest.mark.parametrize("point", ["commit.before", "commit.after"])
def test_killed_around_the_commit(place: IcebergPlace, point: str) -> None:
    destination = loaded(place)
    commit = batch(place, destination.ledger()[1], {0: 20}, dead=[(0, 15)])
    killed(place, commit, point)
    landed = point == "commit.after"
    assert positions(place.open()) == {0: 20 if landed else 10, 1: 5} and len(place.rows()) == (24 if landed else 15)
    assert place.open().commit(commit).seq == 3 and len(place.rows()) == 24 and proof(place.open()).ok


def test_table_that_the_catalogue_has_no_more_is_noticed(postgres: PostgresServer, tmp_path: Path) -> None:
    place = PostgresIcebergPlace(tmp_path, postgres)
    destination = loaded(place)
    place.catalogue().opened(LocalFolder(place.folder)).drop_table("default.tweets")
    with pytest.raises(LedgerMismatch, match="table tweets is missing"):
        destination.ledger()


def test_other_programs_find_it(postgres: PostgresServer, server: RestServer, tmp_path: Path) -> None:
    """By the catalogue alone, with the library's own settings."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    first, second = PostgresIcebergPlace(tmp_path / "a", postgres), RestIcebergPlace(tmp_path / "b", server)
    loaded(first)
    loaded(second)
    uri = postgres.address(first.schema).replace("postgresql://loader@", f"postgresql+psycopg://loader:{PASSWORD}@")
    catalog = SqlCatalog("kpipe", uri=uri)
    assert catalog.load_table("default.tweets").scan().to_arrow().num_rows == 15
    catalog.engine.dispose()
    assert RestCatalog("any", uri=server.uri).load_table(f"{second.namespace}.tweets").scan().to_arrow().num_rows == 15


def test_two_names_in_one_database_are_two_catalogues(postgres: PostgresServer, tmp_path: Path) -> None:
    server = postgres.server(postgres.schema())
    one, two = (IcebergLake(LocalFolder(tmp_path / name), "t", Postgres(server, name)) for name in ("one", "two"))
    one._opened().create_namespace("default")
    assert one._opened().list_namespaces() == [("default",)] and two._opened().list_namespaces() == []


# -- the way to a REST catalogue


@pytest.mark.parametrize("fault", [drop_response(ASKED, times=1), rst(1)], ids=["lost answer", "reset"])
def test_lost_answers_are_read_back(server: RestServer, tmp_path: Path, fault: Any) -> None:
    """Whatever became of the request: the batch is there once, and this commit or the next try of it says so."""
    place = RestIcebergPlace(tmp_path, server)
    destination = loaded(place)
    commit = batch(place, destination.ledger()[1], {0: 20})
    server.proxy.now(fault)
    try:
        destination.commit(commit)
    except DestinationError as error:
        assert "catalogue http://127.0.0.1" in error.what
    assert server.proxy.struck
    server.proxy.now(pass_())
    assert place.open().commit(commit).seq == 3 and len(place.rows()) == 25 and proof(place.open()).ok


@pytest.mark.parametrize("status", [b"503 Service Unavailable", b"500 Internal Server Error", b"409 Conflict"])
def test_servers_that_answer_in_error(server: RestServer, tmp_path: Path, status: bytes) -> None:
    place = RestIcebergPlace(tmp_path, server)
    destination = loaded(place)
    commit = batch(place, destination.ledger()[1], {0: 20})
    answer = b"HTTP/1.1 %s\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}" % status
    server.proxy.now(reply(answer, ASKED, times=1))
    try:
        destination.commit(commit)
    except DestinationError as error:
        assert not status.startswith(b"409") and error.hint
    server.proxy.now(pass_())
    assert place.open().commit(commit).seq == 3 and len(place.rows()) == 25


def test_server_that_is_gone_is_said(server: RestServer, tmp_path: Path) -> None:
    place = RestIcebergPlace(tmp_path, server)
    destination = loaded(place)
    server.proxy.now(cut_after(0))
    with pytest.raises(DestinationBusy, match=r"catalogue http://127.0.0.1.* -> run it again when the catalogue is available"):
        destination.ledger()


def test_secrets_stay_where_they_belong(server: RestServer, tmp_path: Path) -> None:
    """A token goes to the server and into no message, no metadata and no file of the table."""
    token = Secret("canary-90ab12")
    lake = IcebergLake(LocalFolder(tmp_path / "lake"), "t", Rest(server.uri, {"token": token}), f"n{time.time_ns()}")
    place = RestIcebergPlace(tmp_path, server)
    place.lake = lambda table="tweets": lake  # type: ignore[method-assign, misc, assignment]
    begun(place)
    assert all(token.encode() not in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    server.proxy.now(cut_after(0))
    with pytest.raises(DestinationError) as caught:
        lake.load()
    assert token not in str(caught.value) and token not in repr(lake.place)


# -- the definition


def definition(tmp_path: Path, **into: Any) -> Any:
    fields = {"type": "iceberg", "table": "t", **into}
    return open_destination(Pipeline.model_validate({"name": "t", "source": SOURCE, "into": fields}), Home.at(tmp_path))


def test_definition_names_the_catalogue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, postgres: PostgresServer) -> None:
    monkeypatch.setenv("LAKE_PASSWORD", PASSWORD)
    credentials = {"catalog.password": "{{ env('LAKE_PASSWORD') }}"}
    address = postgres.address(postgres.schema())
    made = definition(tmp_path, catalog=address, catalog_name="main", namespace="shop", credentials=credentials)
    assert f"catalogue main in PostgreSQL 127.0.0.1:{postgres.port}/postgres, shop.t" in made.describe()
    assert PASSWORD not in made.describe() and made.columns() is None


@pytest.mark.parametrize(
    ("into", "said"),
    [
        ({"catalog": "ftp://host"}, "invalid catalog address"),
        ({"catalog": "https://user:pw@host/"}, "move secrets to into.credentials"),
        ({"catalog": "postgresql://user:pw@host/db"}, "move secrets to into.credentials"),
        ({"namespace": "a b"}, "invalid namespace name"),
        ({"catalog_name": "a'b"}, "invalid catalog name"),
        ({"catalog_name": "a"}, "into.catalog_name needs into.catalog"),
        ({"type": "delta", "catalog": "https://host"}, "catalog belongs to type: ducklake or iceberg"),
        ({"database": "s3://bucket/lake"}, "into.catalog is missing"),
        ({"catalog": "https://host", "credentials": {"catalog.client.id": "a"}}, "catalog.client.secret"),
        ({"catalog": "https://host", "credentials": {"catalog.password": "a"}}, "a local folder needs no credentials"),
        ({"catalog": "http://host", "credentials": {"catalog.token": "a"}}, "use https://"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, into: dict[str, Any], said: str) -> None:
    with pytest.raises((InvalidPipeline, NotAvailable, ValueError), match=said):
        definition(tmp_path, **into)


def test_sqlite_syncs_the_folder_after_a_commit(tmp_path: Path) -> None:
    """Else a power cut may undo a commit (tests/survival/test_power_cuts.py)."""
    catalogue: Any = SQLite(tmp_path).opened(LocalFolder(tmp_path))
    with catalogue.engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 3  # EXTRA
    catalogue.close()
