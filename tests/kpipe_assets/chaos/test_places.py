"""Places of copies: created under a name that nothing else has, and removed only if `kpipe chaos` created them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pymysql
import pytest

from kpipe.definition.pipeline import Pipeline
from kpipe.errors import DestinationError
from kpipe_assets.chaos.database_places import MySQLPlace, PostgresPlace
from kpipe_assets.chaos.places import CataloguePlace, FolderPlace, InHome, ObjectsPlace, place_of
from kpipe_assets.chaos.staging import create_staging, remove_staging, staging_of
from resources.home import Home
from tests.servers import mariadb as maria
from tests.servers import postgres as pg
from tests.servers.mariadb import MariaServer
from tests.servers.postgres import PostgresServer

NAME = "__kpipe_chaos_0a1b2c3d_0"


def pipeline(**into: Any) -> Pipeline:
    given = {"name": "orders", "source": {"brokers": "b:1", "topic": "t"}, "into": {"table": "orders", **into}}
    return Pipeline.model_validate(given)


def test_a_folder_is_created_once_and_removed_with_its_mark(tmp_path: Path) -> None:
    place = FolderPlace(tmp_path, NAME, "kpipe.duckdb")
    assert place.into() == {"database": str(tmp_path / NAME / "kpipe.duckdb")}
    place.drop()  # missing: nothing to do
    place.create()
    (tmp_path / NAME / "table").mkdir()
    (tmp_path / NAME / "table" / "file").write_text("row")
    with pytest.raises(DestinationError, match="cannot be created: File exists"):
        place.create()
    place.drop()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_another_program_is_never_removed(tmp_path: Path) -> None:
    place, folder = FolderPlace(tmp_path, NAME), tmp_path / NAME
    folder.mkdir()
    (folder / "precious").write_text("data")
    with pytest.raises(DestinationError, match="cannot be created"):
        place.create()
    with pytest.raises(DestinationError, match="cannot be removed: Directory not empty"):
        place.drop()
    (folder / "kpipe-chaos").write_text("__kpipe_chaos_ffffffff_0")  # of another copy
    with pytest.raises(DestinationError, match="cannot be removed"):
        place.drop()
    assert (folder / "precious").read_text() == "data"


def test_links_are_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("data")
    place = FolderPlace(tmp_path, NAME)
    place.create()
    (tmp_path / NAME / "link").symlink_to(outside)
    place.drop()
    assert (outside / "precious").read_text() == "data"
    (tmp_path / NAME).symlink_to(outside)
    place.drop()
    assert (outside / "precious").read_text() == "data"


def test_a_folder_without_a_mark_is_of_a_killed_process_if_it_is_empty(tmp_path: Path) -> None:
    (tmp_path / NAME).mkdir()
    FolderPlace(tmp_path, NAME).drop()
    assert list(tmp_path.iterdir()) == []


def test_files_are_beside_the_real_ones_or_in_the_copys_home(tmp_path: Path) -> None:
    home = Home.at(tmp_path / "home")
    (tmp_path / "lake").mkdir()
    assert isinstance(place_of(pipeline(), NAME, home), InHome)
    assert isinstance(place_of(pipeline(type="delta"), NAME, home), InHome)
    assert isinstance(place_of(pipeline(type="delta", database=str(tmp_path / "missing")), NAME, home), InHome)
    for database in (str(tmp_path / "lake"), f"file://{tmp_path}/lake"):
        found = place_of(pipeline(type="delta", database=database), NAME, home)
        assert found.into() == {"database": f"{tmp_path}/lake/{NAME}"}
    found = place_of(pipeline(database=str(tmp_path / "x.duckdb")), NAME, home)
    assert found.into() == {"database": f"{tmp_path}/{NAME}/kpipe.duckdb"}
    assert not list((tmp_path / "lake").iterdir()), "nothing is created yet"


class Bucket:
    """A store, and the folder of a prefix in it."""

    def __init__(self, place: str) -> None:
        self.place, self.objects, self.store = place, dict[str, bytes](), self
        self.removed: list[str] = []

    def claim(self, name: str, data: bytes) -> bool:
        return self.objects.setdefault(f"{self.place}/{name}", data) is data

    def read(self, name: str) -> bytes | None:
        return self.objects.get(f"{self.place}/{name}")

    def listed(self, prefix: str) -> Iterator[Any]:
        yield from [SimpleNamespace(uri=uri) for uri in self.objects if uri.startswith(prefix)]

    def remove(self, uri: str) -> None:
        self.removed.append(uri)
        del self.objects[uri]


def test_objects_are_removed_by_their_prefix_the_mark_last() -> None:
    bucket = Bucket(f"s3://b/lake/{NAME}")
    place = ObjectsPlace(bucket, NAME)
    place.create()
    with pytest.raises(DestinationError, match="exists already"):
        ObjectsPlace(bucket, NAME).create()
    mine = {f"{bucket.place}/{NAME}/a.parquet": b"", f"{bucket.place}/_log/1": b""}
    others = {f"s3://b/lake/{NAME}1/x": b"", "s3://b/lake/orders/y": b""}
    bucket.objects.update(mine | others)
    place.drop()
    assert bucket.objects == others
    assert bucket.removed[-1] == f"{bucket.place}/kpipe-chaos"
    bucket.objects[f"{bucket.place}/foreign"] = b""
    place.drop()
    assert f"{bucket.place}/foreign" in bucket.objects, "no mark, no removal"


def test_an_entry_of_a_catalogue_with_files_elsewhere_is_not_removed(tmp_path: Path) -> None:
    pytest.importorskip("pyiceberg")
    dropped: list[Any] = []

    class Catalogue:
        location = f"file://{tmp_path}/{NAME}/default/{NAME}"
        exists = False

        def table_exists(self, _: Any) -> bool:
            return self.exists

        def load_table(self, _: Any) -> Any:
            return SimpleNamespace(location=lambda: self.location)

        def drop_table(self, name: Any) -> None:
            dropped.append(name)

    catalogue = Catalogue()
    opened = SimpleNamespace(opened=catalogue, failed=lambda error: DestinationError(str(error)))
    place = CataloguePlace(FolderPlace(tmp_path, NAME), lambda: opened, ("default", NAME))
    place.create()
    place.drop()
    assert dropped == [("default", NAME)]
    catalogue.location = "file:///elsewhere/default/orders"
    with pytest.raises(DestinationError, match="not created by kpipe chaos"):
        place.drop()
    catalogue.exists = True
    with pytest.raises(DestinationError, match=f"table default.{NAME} exists already"):
        place.create()
    assert dropped == [("default", NAME)]


@pytest.fixture
def schema_of(postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    monkeypatch.setenv("PG", pg.PASSWORD)
    address = postgres.address(postgres.schema())
    return pipeline(type="postgres", database=address, credentials={"password": "{{ env('PG') }}"})


def test_a_schema_needs_a_right_and_is_removed_only_with_its_mark(postgres: PostgresServer, schema_of: Pipeline) -> None:
    place = PostgresPlace(schema_of, NAME)
    postgres.sql(f"REVOKE CREATE ON DATABASE postgres FROM PUBLIC, {pg.ROLE}")
    with pytest.raises(DestinationError, match=r"permission denied.*GRANT CREATE ON DATABASE"):
        place.create()
    postgres.sql(f"GRANT CREATE ON DATABASE postgres TO {pg.ROLE}")
    place.drop()  # missing: nothing to do
    place.create()
    with pytest.raises(DestinationError, match="already exists"):
        PostgresPlace(schema_of, NAME).create()
    postgres.sql(f"CREATE TABLE {NAME}.x (a int)")
    place.drop()
    assert not postgres.sql(f"SELECT 1 FROM pg_namespace WHERE nspname = '{NAME}'")
    postgres.sql(f"CREATE SCHEMA {NAME}")
    with pytest.raises(DestinationError, match="not created by kpipe chaos"):
        place.drop()
    postgres.sql(f"DROP SCHEMA {NAME}")


def test_a_pool_that_ignores_the_schema_is_refused(
    postgres: PostgresServer, schema_of: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    postgres.sql(f"GRANT CREATE ON DATABASE postgres TO {pg.ROLE}")
    place = PostgresPlace(schema_of, NAME)
    monkeypatch.setattr(place, "_address", schema_of.into.database)
    with pytest.raises(DestinationError, match=f"search_path: expected {NAME}, found"):
        place.create()
    assert not postgres.sql(f"SELECT 1 FROM pg_namespace WHERE nspname = '{NAME}'")


def test_the_address_of_a_schema_keeps_other_options() -> None:
    found = PostgresPlace(pipeline(type="postgres", database="postgresql://u@h/d?options=-cwork_mem%3D4MB&sslmode=require"), NAME)
    address = str(found.into()["database"])
    assert f"options='-cwork_mem=4MB -csearch_path={NAME}'" in address
    assert "sslmode=require" in address


def test_a_database_needs_a_right_and_is_removed_only_with_its_mark(
    mariadb: MariaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY", maria.PASSWORD)
    address = mariadb.address(mariadb.database())
    with suppress(pymysql.err.Error):  # another test of the session may have granted it
        mariadb.sql(f"REVOKE ALL ON `\\_\\_kpipe\\_chaos\\_%`.* FROM {maria.ROLE}@'%'")
    place = MySQLPlace(pipeline(type="mysql", database=address, credentials={"password": "{{ env('MY') }}"}), NAME)
    with pytest.raises(DestinationError, match=r"Access denied.*GRANT ALL ON"):
        place.create()
    mariadb.sql(f"GRANT ALL ON `\\_\\_kpipe\\_chaos\\_%`.* TO {maria.ROLE}@'%'")
    place.drop()  # missing: nothing to do
    place.create()
    with pytest.raises(DestinationError, match="database exists"):
        place.create()
    mariadb.sql(f"CREATE TABLE `{NAME}`.x (a INT)")
    place.drop()
    mariadb.sql(f"CREATE DATABASE `{NAME}`")
    mariadb.sql(f"CREATE TABLE `{NAME}`.precious (a INT)")
    with pytest.raises(DestinationError, match="not created by kpipe chaos"):
        place.drop()
    mariadb.sql(f"DROP TABLE `{NAME}`.precious")
    place.drop()  # empty: of a process that was killed before it wrote the mark
    assert place.into()["database"].startswith(address.partition("?")[0].rpartition("/")[0] + f"/{NAME}")
    mariadb.sql(f"REVOKE ALL ON `\\_\\_kpipe\\_chaos\\_%`.* FROM {maria.ROLE}@'%'")


def test_staged_files_in_a_shared_location_have_a_folder_of_their_own(tmp_path: Path) -> None:
    assert staging_of({}, NAME) == ""
    location = staging_of({"KPIPE_STAGING": f"{tmp_path}/"}, NAME)
    assert location == f"{tmp_path}/{NAME}"
    create_staging("")
    create_staging(location)
    (tmp_path / NAME / "file").write_text("")
    (tmp_path / "other").write_text("")
    remove_staging(location)
    assert [path.name for path in tmp_path.iterdir()] == ["other"]
    create_staging("s3://bucket/x")  # needs no creation
