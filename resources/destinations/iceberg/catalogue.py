"""Catalogues of Iceberg tables, which know their current metadata: in SQLite beside them, in PostgreSQL, or over REST."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    ForbiddenError,
    NamespaceAlreadyExistsError,
    RESTError,
    ServerError,
    ServiceUnavailableError,
    TableAlreadyExistsError,
    UnauthorizedError,
)  # fmt: skip
from pyiceberg.io import FileIO
from pyiceberg.table import Table
from requests import PreparedRequest, Response
from requests.adapters import HTTPAdapter
from requests.exceptions import RequestException
from sqlalchemy import create_engine
from sqlalchemy.exc import OperationalError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from kpipe.errors import DestinationBusy, DestinationError
from resources.destinations.iceberg.durable import file_io
from resources.destinations.lakehouse.folder import Folder
from resources.secrets import Secret, redact

if TYPE_CHECKING:
    from resources.destinations.postgres.connection import Server  # of another extra

__all__ = ["FAILURES", "OVERTAKEN", "Catalogue", "Postgres", "Rest", "SQLite"]

#: What comes out of a catalogue that could not be asked, or refuses.
FAILURES = (SQLAlchemyError, OSError, ValueError, RESTError)
#: What says for sure that another commit was first.
OVERTAKEN = (CommitFailedException, TableAlreadyExistsError, NamespaceAlreadyExistsError)
_NAME = "kpipe"  # of a catalogue that kpipe makes: SQL catalogues keep several in the same tables
_TRIES = 10  # at a catalogue that another run is making
_TIMEOUT_S = (10, 60)  # to connect; between two bytes of an answer
#: Settings that a server may give: where its routes are, and nothing that names classes, files, credentials or other servers.
_THEIRS = frozenset({"prefix", "namespace-separator", "view-endpoints-supported"})


class Catalogue(Protocol):
    """Where a catalogue is, and how to come to it."""

    @property
    def place(self) -> str:
        """Where it is, for people; empty: beside the tables. No secret."""

    def exists(self) -> bool:
        """Whether there is one to be asked."""

    def opened(self, folder: Folder) -> Catalog:
        """The library's catalogue, whose tables read and write files as that folder's."""

    def failed(self, error: Exception) -> DestinationError:
        """What the catalogue's answer means, without secrets."""


class _Ours:
    """Files of tables are read and written our way, whatever a catalogue or a table's properties name."""

    folder: Folder

    def _load_file_io(self, properties: Mapping[str, Any] | None = None, location: str | None = None) -> FileIO:
        return file_io(self.folder)


class _Sql(_Ours, SqlCatalog):
    def __init__(self, folder: Folder, name: str, uri: str, server: Server | None = None) -> None:
        self.folder, self._server = folder, server
        super().__init__(name, uri=uri, warehouse=folder.place)

    def _init_catalog(self) -> None:
        if self._server is not None:  # connections are made here: no address holds the password
            self.engine = create_engine("postgresql+psycopg://", creator=self._connected, poolclass=NullPool)
        super()._init_catalog()

    def _convert_orm_to_iceberg(self, orm_table: Any) -> Table:
        # The library reads metadata by the catalogue's properties. Fresh: credentials of roles expire.
        self.properties = {**self.properties, **file_io(self.folder).properties}
        return super()._convert_orm_to_iceberg(orm_table)

    def _connected(self) -> Any:
        assert self._server is not None
        raw = self._server.connect()
        # Off, a crash of the server would take back what kpipe has told of as committed.
        raw.execute("SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'")
        raw.autocommit = False
        return raw


def _made(make: Any) -> Catalog:
    for attempt in range(_TRIES):
        try:
            found: Catalog = make()
            return found
        except SQLAlchemyError:  # its tables are being made by another first run
            if attempt == _TRIES - 1:
                raise
            time.sleep(random.uniform(0, 0.05 * (attempt + 1)))
    raise AssertionError  # the last attempt raises


class SQLite:
    """A file beside the tables.

    Args:
        folder: of the tables.
    """

    place = ""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "catalog.db"

    def exists(self) -> bool:
        """Whether the file is there."""
        return self._file.is_file()

    def opened(self, folder: Folder) -> Catalog:
        """Its tables are made where they are missing."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        return _made(lambda: _Sql(folder, _NAME, f"sqlite:///{self._file}"))

    def failed(self, error: Exception) -> DestinationError:
        """What to do about the file."""
        return DestinationError(f"{self._file}: {error}", "restore a backup of the folder")


class Postgres:
    """Two tables in a PostgreSQL database, as the JDBC catalogue of Iceberg's Java library keeps them.

    Args:
        server: where to connect to.
        name: of the catalogue, which is written into its rows; None: `kpipe`.
    """

    def __init__(self, server: Server, name: str | None = None) -> None:
        self._server, self._name = server, name or _NAME

    @property
    def place(self) -> str:
        """Host, port and database, and the catalogue's name."""
        return f"catalogue {self._name} in PostgreSQL {self._server.place}"

    def exists(self) -> bool:
        """It may be there; who opens it knows."""
        return True

    def opened(self, folder: Folder) -> Catalog:
        """Its tables are made where they are missing."""
        return _made(lambda: _Sql(folder, self._name, "postgresql+psycopg://", self._server))

    def failed(self, error: Exception) -> DestinationError:
        """What the server said."""
        text = " ".join(str(error).split())
        kind = DestinationBusy if isinstance(error, OperationalError) else DestinationError
        return kind(f"{self.place}: {text}", "check into.catalog; run it again when it answers")


class _Bounded(HTTPAdapter):
    """The library waits forever for an answer, and shows what it has sent to nobody."""

    def send(self, request: PreparedRequest, *arguments: Any, **how: Any) -> Response:
        how["timeout"] = how.get("timeout") or _TIMEOUT_S
        return super().send(request, *arguments, **how)


class _Rest(_Ours, RestCatalog):
    def __init__(self, folder: Folder, uri: str, **properties: str) -> None:
        self.folder = folder
        super().__init__(_NAME, uri=uri, **properties)

    def _fetch_config(self) -> None:
        """Take over what the server may choose. The library would import and call any class that it names (`auth`)."""
        ours = dict(self.properties)
        super()._fetch_config()
        theirs = {name: value for name, value in self.properties.items() if name in _THEIRS and isinstance(value, str)}
        self.properties, self.uri = {**ours, **theirs}, ours["uri"]

    def _create_session(self) -> Any:
        session = super()._create_session()
        for scheme in ("http://", "https://"):
            session.mount(scheme, _Bounded())
        return session


class Rest:
    """A server with Iceberg's REST API.

    Args:
        uri: its address.
        secrets: `token`, or `client.id` and `client.secret`; or none.
        name: of the warehouse that the server is asked for; None: its only one.
    """

    def __init__(self, uri: str, secrets: Mapping[str, Secret], name: str | None = None) -> None:
        self._uri, self._secrets, self._name = uri.rstrip("/"), dict(secrets), name

    @property
    def place(self) -> str:
        """Its address, and the warehouse's name."""
        return f"catalogue {self._uri}" + (f", warehouse {self._name}" if self._name else "")

    def exists(self) -> bool:
        """It may be there; who opens it knows."""
        return True

    def opened(self, folder: Folder) -> Catalog:
        """Asks the server for its settings."""
        given = {"warehouse": self._name} if self._name else {}
        if "token" in self._secrets:
            given["token"] = self._secrets["token"]
        elif self._secrets:
            given["credential"] = Secret(f"{self._secrets['client.id']}:{self._secrets['client.secret']}")
        return _Rest(folder, self._uri, **given)

    def failed(self, error: Exception) -> DestinationError:
        """What the server said."""
        text = redact(" ".join(f"{type(error).__name__}: {error}".split()), self._hidden())[:1000]
        hint = "run it again when it answers"
        if isinstance(error, (UnauthorizedError, ForbiddenError)):
            hint = "check into.credentials"
        passes = isinstance(error, (RequestException, ServerError, ServiceUnavailableError))
        return (DestinationBusy if passes else DestinationError)(f"{self.place}: {text}", hint)

    def _hidden(self) -> Iterable[str]:
        return self._secrets.values()
