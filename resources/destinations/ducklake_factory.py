"""Open a DuckLake: the catalog of `into.catalog`, and the data folder of `into.database`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from kpipe.definition.pipeline import Pipeline
from kpipe.errors import InvalidPipeline, NotAvailable
from resources import extras
from resources.destinations.credentials import rotating
from resources.object_store.uri import is_remote

__all__ = ["lake_place", "open_ducklake"]

_PASSWORD = "catalog.password"


class Home(Protocol):
    """The folders of `KPIPE_HOME` that a lake needs."""

    @property
    def data(self) -> Path:
        """Folder of the default lake."""


def lake_place(pipeline: Pipeline, home: Home) -> tuple[str, Path]:
    """Return the address of the catalog and the data folder.

    Raises:
        NotAvailable: the data folder is in an object store.
    """
    into = pipeline.into
    given = into.database if into.database is not None else str(home.data / "ducklake")
    if is_remote(given) or "://" in given:
        raise NotAvailable(
            f"pipeline {pipeline.name}: into.database {given.partition('://')[0]}:// is not available for ducklake",
            "set into.database to a folder; into.type delta, iceberg and parquet write to object stores",
        )
    folder = Path(given).expanduser().resolve()
    return into.catalog or f"duckdb:{folder}.duckdb", folder


def open_ducklake(pipeline: Pipeline, home: Home, staging: tuple[Path, ...]) -> Any:
    """Open the engine of a lake. Connects to nothing.

    Args:
        pipeline: the pipeline.
        home: has the folder of the default lake.
        staging: folders of staged files.

    Raises:
        NotAvailable: no extension fits the installed DuckDB, a package is missing, or the folder is not supported.
        InvalidPipeline: the address or a credential is invalid.
    """
    from resources.destinations.ducklake import DuckLakeEngine  # imported late: it loads DuckDB
    from resources.destinations.ducklake.catalog import file_catalog, postgres_catalog
    from resources.destinations.ducklake.extension import check
    from resources.destinations.ducklake.file_lake import FileLake
    from resources.destinations.ducklake.server_lake import ServerLake

    address, folder = lake_place(pipeline, home)
    subject, given = f"pipeline {pipeline.name}: into.type ducklake", pipeline.into.credentials
    file = file_catalog(address)
    if file is not None:
        if given:
            raise InvalidPipeline(
                f"pipeline {pipeline.name}: into.credentials: {next(iter(given))}: a catalog in a file needs no credentials",
                "remove into.credentials",
            )
        check(subject, file.extensions)
        return DuckLakeEngine(FileLake(file, folder, staging), staging)
    try:
        from resources.destinations.postgres.connection import Server
    except ImportError as error:
        raise extras.missing(subject, "psycopg", "ducklake", "postgres", error=error) from error
    secrets = rotating({name.removeprefix("catalog."): value for name, value in _known(given).items()}, ("password",))
    catalog = postgres_catalog(address, Server(address, secrets, f"kpipe {pipeline.name}"))
    check(subject, catalog.extensions)
    return DuckLakeEngine(ServerLake(catalog, folder, staging), staging)


def _known(given: Any) -> dict[str, str]:
    for name in given:
        if name != _PASSWORD:
            problem = InvalidPipeline(f"into.credentials: {name} is not a credential of this destination", f"use {_PASSWORD}")
            raise problem.about("into", "credentials", name)
    return dict(given)
