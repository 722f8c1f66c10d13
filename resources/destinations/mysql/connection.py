"""Connect to a MariaDB or MySQL server; connections are encrypted if they leave this machine, and kept for a moment.

A session sets what it needs. So a connection can be used again (sql/idle_connections.py), unless a temporary table or another
setting would stay in it.
"""

from __future__ import annotations

import ipaddress
import os
import select
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

import pymysql
from pymysql.constants import CLIENT

from kpipe.errors import DestinationBusy, DestinationError, InvalidPipeline
from resources.destinations.credentials import Rotating
from resources.destinations.mysql.session import READ, Session, unwilling
from resources.destinations.sql.idle_connections import IdleConnections, Opened
from resources.destinations.sql.server_timeout import ServerTimeout
from resources.secrets import Secret, redact

__all__ = ["IDLE", "SECRETS", "Server"]

_NAP_S = 0.2  # between two attempts to connect
_CONNECT_S = 10
#: Fields of `into.credentials`.
SECRETS = ("password", "ssl-key-password")
#: Options after `?`, with the names that MySQL's own clients use.
OPTIONS = ("ssl-mode", "ssl-ca", "ssl-cert", "ssl-key", "socket")
MODES = ("DISABLED", "REQUIRED", "VERIFY_CA", "VERIFY_IDENTITY")
# Errors of server and client that waiting does not change: access, unknown database, TLS, plugins and accounts.
_FOR_GOOD = {1044, 1045, 1049, 1130, 1251, 1524, 1698, 1820, 2026, 2049, 2054, 2059, 2061, 3118, 3159, 4151}
# A dead network is detected after about a minute; with the kernel's default, after a quarter of an hour.
_ALIVE = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 60_000))


class Server:
    """Address and settings of a server.

    Args:
        address: `mysql://user@host:3306/database`, options after `?`, without secrets.
        secrets: `password` and `ssl-key-password`, read for each connection.
        name: `program_name` of the connection, which the server shows in performance_schema, if that is on.
        lock_timeout_s: longest wait for a lock, and for a server that does not answer (`timeout`).
        idle_timeout_s: see `Session`.

    Raises:
        InvalidPipeline: the address is invalid, or contains a password.
    """

    def __init__(
        self, address: str, secrets: Mapping[str, Secret], name: str, lock_timeout_s: float = 30, idle_timeout_s: float = 60
    ) -> None:
        parts = _parts(address)
        given = dict(parse_qsl(parts.query, keep_blank_values=True))
        unknown = [key for key in given if key not in OPTIONS]
        if unknown:
            raise InvalidPipeline(f"into.database: unknown option {unknown[0]!r}", f"use one of: {', '.join(OPTIONS)}")
        self.host, self.port = parts.hostname or "localhost", parts.port or 3306
        self.database, self.socket = unquote(parts.path[1:]), given.get("socket")
        mode = given.get("ssl-mode", "").upper().replace("-", "_")
        if "ssl-mode" in given and mode not in MODES:
            raise InvalidPipeline("into.database: invalid ssl-mode", f"use one of: {', '.join(MODES)}")
        # PyMySQL's default would accept any server, without encryption.
        self.mode = mode or ("DISABLED" if self.socket or _is_near(self.host) else "VERIFY_IDENTITY")
        self._user, self._ssl = unquote(parts.username or ""), given
        self._secrets, self._name = secrets, name[:64]
        self.lock_timeout_s, self._idle_timeout_s = lock_timeout_s, idle_timeout_s
        self.timeout = ServerTimeout(lock_timeout_s)
        self._tls_context: tuple[object, ssl.SSLContext] | None = None
        # As for PostgreSQL: with secrets that rotate, none is kept. The server shows the name for as long as a connection lasts.
        self._keeps = not isinstance(secrets, Rotating)
        identity = tuple(sorted(secrets.items())) if self._keeps else ()
        self._key = (self.host, self.port, self._user, self.database, self.mode, *sorted(given.items())), self._name, identity

    @property
    def place(self) -> str:
        """Return host, port and database, for messages."""
        return f"{self.socket or f'{self.host}:{self.port}'}/{self.database}"

    @contextmanager
    def session(self, mode: str = READ, fresh: bool = False) -> Iterator[Session]:
        """Use a connection. At the end, an open transaction is rolled back; after an error, the connection is closed.

        Args:
            mode: isolation level of its transactions.
            fresh: whether the connection must be a new one.

        Raises:
            DestinationBusy: the server did not answer in time.
            DestinationError: the server rejects the connection.
        """
        key = self._key, tuple(self._tls_files()) if self.mode != "DISABLED" else ()
        opened = (IDLE.take(key) if self._keeps and not fresh else None) or Opened(self.connect())
        raw = opened.connection
        try:
            session = Session(raw, self.lock_timeout_s, self._idle_timeout_s, mode)
            yield session
            keep = self._keeps and session.has_left()
        except BaseException:
            _close(raw)
            raise
        if keep:
            IDLE.put(key, opened)
        else:
            _close(raw)

    def connect(self) -> pymysql.Connection:
        """Open a new connection; see `session`."""
        deadline, secrets = self.timeout.deadline(), dict(self._secrets)
        while True:
            try:
                return self._connected(secrets)
            except (pymysql.err.Error, OSError) as error:
                code = error.args[0] if error.args else None
                text = redact(" ".join(str(error.args[-1] if error.args else error).split()), secrets.values())
                lost = getattr(error, "original_exception", error)
                if code in _FOR_GOOD or isinstance(lost, ssl.SSLError):
                    # Secrets that rotate: the next attempt reads them again.
                    kind = DestinationBusy if isinstance(self._secrets, Rotating) else DestinationError
                    raise kind(
                        f"the database server {self.place} rejects the connection: {text}",
                        "check into.database and into.credentials",
                    ) from None
                if time.monotonic() >= deadline:
                    raise self.timeout.over(f"the database server {self.place}", text) from None
                time.sleep(_NAP_S)
            except RuntimeError as error:  # PyMySQL does not support what the server requires
                raise unwilling(error, f"the database server {self.place}") from None

    def _connected(self, secrets: Mapping[str, Secret]) -> pymysql.Connection:
        patience = max(1, int(min(_CONNECT_S, self.timeout.seconds)))
        if self.socket:
            line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        else:
            line = socket.create_connection((self.host, self.port), patience)
        try:
            if self.socket:
                line.connect(self.socket)
            else:
                line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                for option, value in _ALIVE:
                    if hasattr(socket, option):  # not on macOS
                        line.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
            raw = pymysql.connect(
                host=self.host,
                user=self._user,
                password=str(secrets.get("password", "")).encode(),  # PyMySQL would encode it as Latin-1
                database=self.database,
                charset="utf8mb4",
                autocommit=None,
                # Count the rows that a statement finds, not those that it changes: a lane may be swapped for itself.
                client_flag=CLIENT.FOUND_ROWS,
                # LOAD DATA LOCAL would let the server read any file of this machine.
                local_infile=False,
                program_name=self._name,
                read_default_file=None,
                defer_connect=True,
                read_timeout=patience,
                write_timeout=patience,
                **self._tls(secrets),
            )
            raw.connect(line)
            # Limit the wait for the handshake of a silent server; afterwards, a statement may take any time.
            vars(raw).update(_read_timeout=None, _write_timeout=None)
        except BaseException:
            line.close()
            raise
        return raw

    def _tls(self, secrets: Mapping[str, Secret]) -> dict[str, Any]:
        if self.mode == "DISABLED":
            return {"ssl_disabled": True}
        files, made = self._tls_files(), self._tls_context
        if made is None or made[0] != files:  # reading the authorities takes 30 ms of CPU
            made = self._tls_context = files, self._new_tls_context(secrets)
        return {"ssl": made[1]}

    def _tls_files(self) -> list[tuple[int, ...]]:
        """Return what changes when a file with certificates is replaced."""
        own = [
            self._ssl.get("ssl-ca") or ssl.get_default_verify_paths().cafile,
            self._ssl.get("ssl-cert"),
            self._ssl.get("ssl-key"),
        ]
        found: list[tuple[int, ...]] = []
        for file in own:
            try:
                state = os.stat(file) if file else None
            except OSError:  # reading it reports the reason
                state = None
            found.append((state.st_ino, state.st_size, state.st_mtime_ns) if state else ())
        return found

    def _new_tls_context(self, secrets: Mapping[str, Secret]) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self._ssl.get("ssl-ca"))
        context.check_hostname = self.mode == "VERIFY_IDENTITY"
        context.verify_mode = ssl.CERT_NONE if self.mode == "REQUIRED" else ssl.CERT_REQUIRED
        if self._ssl.get("ssl-cert"):
            word = secrets.get("ssl-key-password")
            context.load_cert_chain(self._ssl["ssl-cert"], self._ssl.get("ssl-key"), str(word) if word else None)
        return context


def _is_usable(raw: Any) -> bool:
    """Return whether nothing has arrived since the last use: a server that ends a connection closes it."""
    if not raw.open:
        return False
    poll = select.poll()
    poll.register(raw._sock.fileno(), select.POLLIN)
    return not poll.poll(0)


def _close(raw: pymysql.Connection) -> None:
    with suppress(pymysql.err.Error, OSError):
        raw.close()


#: Connections of all pipelines of this process.
IDLE: IdleConnections[pymysql.Connection] = IdleConnections(_is_usable, _close)


def _parts(address: str) -> SplitResult:
    """Return the parts of an address. Messages never contain it: it may have a password in an unexpected position."""
    hint = "write mysql://user@host:3306/database"
    try:
        parts = urlsplit(address)
        known = parts.scheme in ("mysql", "mariadb", "singlestore") and parts.path.count("/") == 1 and len(parts.path) > 1
        known = known and bool(parts.username) and not parts.fragment and (parts.port is None or parts.port > 0)
    except ValueError:
        known = False
    if not known:
        raise InvalidPipeline("into.database: not a MySQL URL", hint) from None
    if parts.password is not None:
        raise InvalidPipeline(
            "into.database: contains a password",
            "remove it, and write under into.credentials: password: \"{{ env('NAME') }}\"",
        )
    return parts


def _is_near(host: str) -> bool:
    """Return whether a connection stays on this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
