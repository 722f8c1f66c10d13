"""Tables and files that an audit can read, and how to open them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from urllib.parse import urlsplit

from kpipe.errors import InvalidPipeline, NotAvailable
from resources.audit.table_address import OpenTable, TableAddress

__all__ = ["TYPES", "check_address", "open_table"]


def check_address(address: TableAddress) -> None:
    """Check an address without connecting, so that no report is begun, and no password written, for an invalid one.

    Raises:
        NotAvailable: the type does not exist, or a package is missing.
        InvalidPipeline: the address is invalid, or contains a password.
    """
    try:
        secret = any(urlsplit(text).password for text in (address.database, address.catalog or ""))
    except ValueError:
        secret = False
    if secret:
        raise InvalidPipeline(
            "the table's address contains a password",
            "remove it, and name a variable: --table-credential \"password={{ env('NAME') }}\"",
        )
    if address.type not in TYPES:
        raise NotAvailable(f"--type {address.type}: not available", f"use one of: {', '.join(TYPES)}")
    if address.type in ("postgres", "mysql"):
        from resources.audit.source_servers import check_mysql, check_postgres

        (check_postgres if address.type == "postgres" else check_mysql)(address)
    elif address.type in ("delta", "iceberg"):
        from resources.audit.source_lakes import check_lake

        check_lake(address)


def open_table(address: TableAddress) -> AbstractContextManager[OpenTable]:
    """Open the current state of a table, read-only.

    Raises:
        NotAvailable, InvalidPipeline: see `check_address`.
        DestinationError: the table does not exist, or cannot be read.
    """
    return TYPES[address.type](address)


def _duckdb(address: TableAddress) -> AbstractContextManager[OpenTable]:
    from resources.audit.source_duckdb import open_duckdb

    return open_duckdb(address)


def _parquet(address: TableAddress) -> AbstractContextManager[OpenTable]:
    from resources.audit.source_duckdb import open_parquet

    return open_parquet(address)


def _postgres(address: TableAddress) -> AbstractContextManager[OpenTable]:
    from resources.audit.source_servers import open_postgres

    return open_postgres(address)


def _mysql(address: TableAddress) -> AbstractContextManager[OpenTable]:
    from resources.audit.source_servers import open_mysql

    return open_mysql(address)


def _delta(address: TableAddress) -> AbstractContextManager[OpenTable]:
    from resources.audit.source_lakes import open_delta

    return open_delta(address)


def _iceberg(address: TableAddress) -> AbstractContextManager[OpenTable]:
    from resources.audit.source_lakes import open_iceberg

    return open_iceberg(address)


# Modules are imported on use: each loads its database's client.
TYPES: dict[str, Callable[[TableAddress], AbstractContextManager[OpenTable]]] = {
    "duckdb": _duckdb,
    "parquet": _parquet,
    "postgres": _postgres,
    "mysql": _mysql,
    "delta": _delta,
    "iceberg": _iceberg,
}
