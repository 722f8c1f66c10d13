"""Catalogues with the current metadata of Iceberg tables: in SQLite beside the tables, in PostgreSQL, or over REST."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Mapping, Sequence
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
from pyiceberg.table.update import RemoveSnapshotsUpdate, TableUpdate
from requests import PreparedRequest, Response
from requests.adapters import HTTPAdapter
from requests.exceptions import RequestException
from sqlalchemy import create_engine, event
from sqlalchemy.exc import OperationalError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from kpipe.errors import DestinationBusy, DestinationError
from resources.destinations.iceberg.durable import file_io
from resources.destinations.lakehouse.folder import Folder
from resources.durable_files import make_folder
from resources.secrets import Secret, redact

if TYPE_CHECKING:
    from resources.destinations.postgres.connection import Server  # of another extra

__all__ = ["FAILURES", "OVERTAKEN", "Catalogue", "Postgres", "Rest", "SQLite", "Shared"]

#: Errors of a catalogue that does not answer, or rejects the request.
FAILURES = (SQLAlchemyError, OSError, ValueError, RESTError)
#: Errors that prove that another commit was first.
OVERTAKEN = (CommitFailedException, TableAlreadyExistsError, NamespaceAlreadyExistsError)
_NAME = "kpipe"  # name of a catalogue that kpipe creates: SQL catalogues keep several in the same tables
_TRIES = 10  # attempts to open a catalogue that another run is creating
_TIMEOUT_S = (10, 60)  # to connect; between two bytes of an answer
#: Settings accepted from a server: its routes. Nothing that names classes, files, credentials or other servers.
_THEIRS = frozenset({"prefix", "namespace-separator", "view-endpoints-supported"})


class Catalogue(Protocol):
    """Location of a catalogue, and how to open it."""

    @property
    def place(self) -> str:
        """Location for messages, without secrets; empty: beside the tables."""

    def exists(self) -> bool:
        """Return whether the catalogue may exist; False: it does not."""

    def opened(self, folder: Folder) -> Catalog:
        """Open pyiceberg's catalogue; its tables read and write files through that folder."""

    def failed(self, error: Exception) -> DestinationError:
        """Convert an error of the catalogue to a `DestinationError` without secrets."""


class _Ours:
    """File access through kpipe's folder, whichever class a catalogue or a table's properties name."""

    folder: Folder

    def _load_file_io(self, properties: Mapping[str, Any] | None = None, location: str | None = None) -> FileIO:
        return file_io(self.folder)


class _Sql(_Ours, SqlCatalog):
    def __init__(self, folder: Folder, name: str, uri: str, server: Server | None = None) -> None:
        self.folder, self._server = folder, server
        super().__init__(name, uri=uri, warehouse=folder.place)

    def _init_catalog(self) -> None:
        if self._server is not None:  # connections are created here, so that no URL contains the password
            self.engine = create_engine("postgresql+psycopg://", creator=self._connected, poolclass=NullPool)
        else:
            # SQLite's default does not sync the folder after a commit has deleted the journal. A power cut may then bring the
            # journal back, and with it the state before a commit that kpipe has reported (sqlite.org, PRAGMA synchronous).
            event.listen(self.engine, "connect", lambda raw, _: raw.execute("PRAGMA synchronous = EXTRA"))
        super()._init_catalog()

    def _convert_orm_to_iceberg(self, orm_table: Any) -> Table:
        # pyiceberg reads metadata with the catalogue's properties. Renew them: credentials of roles expire.
        self.properties = {**self.properties, **file_io(self.folder).properties}
        return super()._convert_orm_to_iceberg(orm_table)

    def _update_and_stage_table(
        self, current_table: Table | None, table_identifier: Any, requirements: Any, updates: Sequence[TableUpdate]
    ) -> Any:
        """Reject the removal of snapshots that have a branch or a tag, which pyiceberg would remove with them.

        No other commit comes in between: the metadata that is read here is replaced by compare-and-swap.
        """
        refs = current_table.metadata.refs if current_table is not None else {}
        removed = {number for item in updates if isinstance(item, RemoveSnapshotsUpdate) for number in item.snapshot_ids}
        if kept := sorted(name for name, ref in refs.items() if ref.snapshot_id in removed):
            raise CommitFailedException(f"a snapshot to remove has the branch or tag {kept[0]}")
        return super()._update_and_stage_table(current_table, table_identifier, requirements, tuple(updates))

    def _connected(self) -> Any:
        assert self._server is not None
        raw = self._server.connect()
        # With `off`, a crash of the server could lose a commit that kpipe has reported.
        raw.execute("SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'")
        raw.autocommit = False
        return raw


def _made(make: Any) -> Catalog:
    for attempt in range(_TRIES):
        try:
            found: Catalog = make()
            return found
        except SQLAlchemyError:  # another first run is creating its tables
            if attempt == _TRIES - 1:
                raise
            time.sleep(random.uniform(0, 0.05 * (attempt + 1)))
    raise AssertionError  # the last attempt raises


class SQLite:
    """A catalogue in a file beside the tables.

    Args:
        folder: of the tables.
    """

    place = ""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "catalog.db"

    def exists(self) -> bool:
        """Return whether the file exists."""
        return self._file.is_file()

    def opened(self, folder: Folder) -> Catalog:
        """Open the catalogue; create its tables if they are missing."""
        make_folder(self._file.parent)
        return _made(lambda: _Sql(folder, _NAME, f"sqlite:///{self._file}"))

    def failed(self, error: Exception) -> DestinationError:
        """Report the error with the file's path."""
        return DestinationError(f"{self._file}: {error}", "restore a backup of the folder")


class Postgres:
    """A catalogue in two tables of a PostgreSQL database, in the layout of the JDBC catalogue of Iceberg's Java library.

    Args:
        server: the database server.
        name: name of the catalogue, part of its rows' keys; None: `kpipe`.
    """

    def __init__(self, server: Server, name: str | None = None) -> None:
        self._server, self._name = server, name or _NAME

    @property
    def place(self) -> str:
        """Catalogue name, host, port and database."""
        return f"catalogue {self._name} in PostgreSQL {self._server.place}"

    def exists(self) -> bool:
        """Return True: only `opened` finds out."""
        return True

    def opened(self, folder: Folder) -> Catalog:
        """Open the catalogue; create its tables if they are missing."""
        return _made(lambda: _Sql(folder, self._name, "postgresql+psycopg://", self._server))

    def failed(self, error: Exception) -> DestinationError:
        """Report the server's error; `DestinationBusy` if another attempt may succeed."""
        text = " ".join(str(error).split())
        kind = DestinationBusy if isinstance(error, OperationalError) else DestinationError
        return kind(f"{self.place}: {text}", "check into.catalog; run it again when the catalogue is available")


class _Bounded(HTTPAdapter):
    """HTTP adapter with a timeout: pyiceberg waits forever for an answer, and has no setting for it."""

    def send(self, request: PreparedRequest, *arguments: Any, **how: Any) -> Response:
        how["timeout"] = how.get("timeout") or _TIMEOUT_S
        return super().send(request, *arguments, **how)


class _Rest(_Ours, RestCatalog):
    def __init__(self, folder: Folder, uri: str, **properties: str) -> None:
        self.folder = folder
        super().__init__(_NAME, uri=uri, **properties)

    def _fetch_config(self) -> None:
        """Accept only the settings in `_THEIRS` from the server: pyiceberg imports and calls a class that `auth` names."""
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
    """A catalogue server with Iceberg's REST API.

    Args:
        uri: its address.
        secrets: `token`, or `client.id` and `client.secret`; or none.
        name: name of the warehouse in requests; None: the server's only one.
    """

    def __init__(self, uri: str, secrets: Mapping[str, Secret], name: str | None = None) -> None:
        self._uri, self._secrets, self._name = uri.rstrip("/"), dict(secrets), name

    @property
    def place(self) -> str:
        """The server's address and the warehouse."""
        return f"catalogue {self._uri}" + (f", warehouse {self._name}" if self._name else "")

    def exists(self) -> bool:
        """Return True: only `opened` finds out."""
        return True

    def opened(self, folder: Folder) -> Catalog:
        """Open the catalogue; requests the server's settings."""
        given = {"warehouse": self._name} if self._name else {}
        if "token" in self._secrets:
            given["token"] = self._secrets["token"]
        elif self._secrets:
            given["credential"] = Secret(f"{self._secrets['client.id']}:{self._secrets['client.secret']}")
        return _Rest(folder, self._uri, **given)

    def failed(self, error: Exception) -> DestinationError:
        """Report the server's error; `DestinationBusy` if another attempt may succeed."""
        text = redact(" ".join(f"{type(error).__name__}: {error}".split()), self._hidden())[:1000]
        hint = "run it again when the catalogue is available"
        if isinstance(error, (UnauthorizedError, ForbiddenError)):
            hint = "check into.credentials"
        passes = isinstance(error, (RequestException, ServerError, ServiceUnavailableError))
        return (DestinationBusy if passes else DestinationError)(f"{self.place}: {text}", hint)

    def _hidden(self) -> Iterable[str]:
        return self._secrets.values()


class Shared:
    """A catalogue that is opened once, for many tables of one folder.

    Args:
        catalogue: the catalogue.
    """

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._opened: Catalog | None = None
        self.place, self.exists, self.failed = catalogue.place, catalogue.exists, catalogue.failed

    def opened(self, folder: Folder) -> Catalog:
        """Return the open catalogue."""
        if self._opened is None:
            self._opened = self._catalogue.opened(folder)
        return self._opened
