"""Connect to a PostgreSQL server: transactions have their own settings, lost connections are detected.

Settings and temporary tables end with their transaction. So a connection can be used again by another pipeline
(idle_connections.py), and a connection pool in transaction mode may be in between.
"""

from __future__ import annotations

import ipaddress
import re
import select
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from typing import Any

import psycopg
from psycopg import conninfo
from psycopg.pq import TransactionStatus

from kpipe.errors import DestinationBusy, DestinationError, InvalidPipeline
from resources.destinations.credentials import Rotating
from resources.destinations.sql.idle_connections import IdleConnections, Opened
from resources.destinations.sql.server_timeout import ServerTimeout
from resources.secrets import Secret, redact

__all__ = ["IDLE", "SECRETS", "Server", "Session"]

_NAP_S = 0.2  # between two attempts to connect
_CONNECT_S = 10  # for one attempt
#: Fields of `into.credentials`.
SECRETS = ("password", "sslpassword")
# Errors that waiting does not change. Others may pass: the server starts, recovers, fails over, or has no free connection.
_FOR_GOOD = (
    "authentication failed", "does not exist", "no pg_hba.conf entry", "permission denied", "not permitted", "no password",
    "certificate", "does not support SSL", "requires encryption", "unsupported", "unrecognized", "invalid",
)  # fmt: skip
# A dead network is detected after about a minute; with the kernel's default, after a quarter of an hour.
_ALIVE = {"keepalives": 1, "keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3, "tcp_user_timeout": 60_000}


class Session:
    """A connection for the ledger's code. A transaction begins with the first statement, or with BEGIN.

    Args:
        raw: psycopg's connection, in autocommit mode.
        lock_timeout_s: longest wait for a lock.
        idle_timeout_s: a run that is suspended inside a transaction loses its locks after this time.
        name: `application_name` of its transactions.
        mode: mode of transactions that a statement begins; empty: the server's default.
    """

    def __init__(
        self, raw: psycopg.Connection[Any], lock_timeout_s: float, idle_timeout_s: float, name: str, mode: str = ""
    ) -> None:
        self.raw, self._open, self._mode = raw, False, mode
        timeouts = [f"{max(1, int(seconds * 1000))}ms" for seconds in (lock_timeout_s, idle_timeout_s)]
        self._settings = [*timeouts, name]

    def execute(self, statement: str, parameters: Sequence[Any] = (), /) -> Any:
        """Run one statement; parameters are `$1` and so on."""
        if statement == "BEGIN":
            self.begin()
            return None
        if statement == "COMMIT":
            self.commit()
            return None
        if not self._open:
            self.begin(self._mode)
        return self._run(statement, parameters)

    def begin(self, mode: str = "") -> None:
        """Begin a transaction that sees one schema, UTC and ISO dates, and whose commits are durable.

        Raises:
            DestinationError: the schema does not exist, the server is a replica, or the encoding is not UTF-8.
        """
        if self._open:
            self._run("ROLLBACK")
        self._run(f"BEGIN {mode}".strip())
        self._open = True
        row = self._run(
            "SELECT s.name, current_setting('server_encoding'), pg_is_in_recovery(),"
            # Only this schema and the catalog: no other table or function can replace one of kpipe's. Temporary tables last: a
            # pool may have given the session to another client before, who left some.
            " set_config('search_path', quote_ident(s.name) || ', pg_temp', true), set_config('TimeZone', 'UTC', true),"
            " set_config('DateStyle', 'ISO, YMD', true), set_config('extra_float_digits', '1', true),"
            " set_config('lock_timeout', $1, true),"
            " set_config('idle_in_transaction_session_timeout', $2, true), set_config('application_name', $3, true),"
            # If off, a crash of the server would roll back commits that kpipe has reported.
            " set_config('synchronous_commit', CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on'"
            "  ELSE current_setting('synchronous_commit') END, true)"
            " FROM (SELECT current_schema()::text AS name) AS s",
            self._settings,
        ).fetchone()
        assert row is not None
        schema, encoding, replica, *_ = row
        if schema is None:
            raise DestinationError(
                "PostgreSQL: search_path: no existing schema",
                "create it, or set another: into.database with ?options=-csearch_path%3DSCHEMA",
            )
        if encoding != "UTF8":
            raise DestinationError(f"PostgreSQL: the database has encoding {encoding}", "use a database with encoding UTF8")
        if replica and "READ ONLY" not in mode:
            raise DestinationError("PostgreSQL: the server is a replica, which cannot be written", "connect to the primary")

    def commit(self) -> None:
        """Commit.

        Raises:
            DestinationError: the server has rolled back.
        """
        answer = self._run("COMMIT").statusmessage
        self._open = False
        if answer != "COMMIT":
            raise DestinationError(
                f"PostgreSQL: COMMIT failed: expected COMMIT, found {answer}", "nothing was written; run it again"
            )

    def copy(self, statement: str, blocks: Generator[memoryview | bytes, None, None]) -> int:
        """Run COPY … FROM STDIN, and return the number of copied rows. Close the blocks in any case."""
        cursor = self.raw.cursor()
        with closing(blocks), cursor.copy(statement.encode()) as copy:
            for block in blocks:
                copy.write(block)
        return cursor.rowcount

    def literal(self, text: str) -> str:
        """Return a text as an SQL literal, for statements without parameters."""
        return psycopg.sql.Literal(text).as_string(self.raw)

    def _run(self, statement: str, parameters: Sequence[Any] = ()) -> psycopg.RawCursor[Any]:
        cursor = psycopg.RawCursor(self.raw)
        return cursor.execute(statement.encode(), [_plain(value) for value in parameters] or None)


def _plain(value: Any) -> Any:
    """Replace NUL in messages: no text of PostgreSQL can contain it. Records are not affected: they are copied."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value.replace("\x00", "\\x00") if isinstance(value, str) else value


class Server:
    """Address and settings of a server.

    Args:
        address: a connection string of libpq, `postgresql://user@host:5432/database` or `host=… dbname=…`, without secrets.
        secrets: `password` and `sslpassword`, if libpq does not read them from PGPASSWORD or ~/.pgpass. Read for each
            connection.
        name: `application_name` of the connection, which the server shows.
        lock_timeout_s: longest wait for a lock, and for a server that does not answer (`timeout`).
        idle_timeout_s: see `Session`.

    Raises:
        InvalidPipeline: the address is invalid, or contains a password.
    """

    def __init__(
        self, address: str, secrets: Mapping[str, Secret], name: str, lock_timeout_s: float = 30, idle_timeout_s: float = 60
    ) -> None:
        try:
            known: dict[str, Any] = dict(conninfo.conninfo_to_dict(address))
        except psycopg.Error:
            raise _no_address() from None  # the client's message contains the address
        if not re.fullmatch(r"[\d,]*", str(known.get("port") or "")):
            raise _no_address()  # perhaps a password without @ after it
        given = [key for key in SECRETS if known.get(key)]
        if given:
            raise InvalidPipeline(
                f"into.database: contains a {given[0]}",
                f"remove it, and write under into.credentials: {given[0]}: \"{{{{ env('NAME') }}}}\"; or use PGPASSWORD",
            )
        self._secrets, self.lock_timeout_s, self._idle_timeout_s = secrets, lock_timeout_s, idle_timeout_s
        if "sslmode" not in known and not all(_is_near(host) for host in str(known.get("host") or "").split(",")):
            known["sslmode"] = "verify-full"  # libpq's default would accept any server, without encryption
        self.timeout = ServerTimeout(lock_timeout_s)
        self._parameters = {**_ALIVE, "connect_timeout": _CONNECT_S, "application_name": name[:63], **known}
        # Others with this address share connections if they have the same secrets. With secrets that rotate, none is kept: it
        # would commit with a password that was replaced, and the new connection of the read-back would be rejected.
        self._keeps = not isinstance(secrets, Rotating)
        identity = tuple(sorted(secrets.items())) if self._keeps else ()
        self._key = tuple(sorted((name, str(value)) for name, value in {**known, "application_name": ""}.items())), identity

    @property
    def parameters(self) -> Mapping[str, Any]:
        """Return libpq's parameters, without secrets."""
        return dict(self._parameters)

    @property
    def secrets(self) -> Mapping[str, Secret]:
        """Return the secrets; see `rotating`."""
        return self._secrets

    @property
    def place(self) -> str:
        """Return host, port and database, for messages."""
        host = self._parameters.get("host") or self._parameters.get("service") or "localhost"
        port = self._parameters.get("port")
        return f"{host}{f':{port}' if port else ''}/{self._parameters.get('dbname') or ''}"

    @contextmanager
    def session(self, mode: str = "", fresh: bool = False) -> Iterator[Session]:
        """Use a connection. At the end, an open transaction is rolled back; after an error, the connection is closed.

        Args:
            mode: see `Session`.
            fresh: whether the connection must be a new one.

        Raises:
            DestinationBusy: the server did not answer in time.
            DestinationError: the server rejects the connection.
        """
        opened = (IDLE.take(self._key) if self._keeps and not fresh else None) or Opened(self.connect())
        raw = opened.connection
        try:
            yield Session(raw, self.lock_timeout_s, self._idle_timeout_s, self._parameters["application_name"], mode)
        except BaseException:
            raw.close()
            raise
        if not self._keeps:
            raw.close()
            return
        with suppress(psycopg.Error):  # the statements have succeeded
            raw.rollback()
        if raw.info.transaction_status == TransactionStatus.IDLE:
            IDLE.put(self._key, opened)
        else:
            raw.close()

    def connect(self) -> psycopg.Connection[Any]:
        """Open a new connection in autocommit mode; see `session`."""
        deadline = self.timeout.deadline()
        secrets = dict(self._secrets)
        parameters: dict[str, Any] = {**self._parameters, **secrets, "client_encoding": "utf8"}
        if self.timeout.seconds < _CONNECT_S:
            parameters["connect_timeout"] = max(2, int(self.timeout.seconds))  # libpq's minimum
        while True:
            try:
                return psycopg.connect(**parameters, autocommit=True, prepare_threshold=None)
            except psycopg.OperationalError as error:
                text = redact(" ".join(str(error).split()), secrets.values())
                if any(word in text for word in _FOR_GOOD):
                    # Secrets that rotate: the next attempt reads them again.
                    kind = DestinationBusy if isinstance(self._secrets, Rotating) else DestinationError
                    raise kind(
                        f"PostgreSQL {self.place} rejects the connection: {text}", "check into.database and into.credentials"
                    ) from None
                if time.monotonic() >= deadline:
                    raise self.timeout.over(f"PostgreSQL {self.place}", text) from None
                time.sleep(_NAP_S)


def _is_usable(raw: psycopg.Connection[Any]) -> bool:
    """Return whether nothing has arrived since the last use: a server that ends a connection reports it, and closes it."""
    if raw.closed:
        return False
    poll = select.poll()
    poll.register(raw.fileno(), select.POLLIN)
    return not poll.poll(0)


def _close(raw: psycopg.Connection[Any]) -> None:
    with suppress(psycopg.Error):
        raw.close()


#: Connections of all pipelines of this process.
IDLE: IdleConnections[psycopg.Connection[Any]] = IdleConnections(_is_usable, _close)


def _no_address() -> InvalidPipeline:
    return InvalidPipeline("into.database: not a PostgreSQL connection string", "write postgresql://user@host:5432/database")


def _is_near(host: str) -> bool:
    """Return whether a connection stays on this machine."""
    if host in ("", "localhost") or host.startswith(("/", "@")):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
