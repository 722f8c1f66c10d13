"""A real PostgreSQL for tests: Debian's, in a folder of its own, on a port of its own, as a user without privileges."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest

from resources.destinations.postgres.connection import Server
from resources.secrets import Secret
from tests.ports import free_port

PASSWORD = "canary-5e1f0b"
ROLE = "loader"


def programs() -> Path | None:
    """The folder of the newest PostgreSQL's programs; Debian does not put them on the PATH."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    return found[-1].parent if found else None


class PostgresServer:
    """One server. A context manager; it ends with this process, however that dies.

    Args:
        durable: whether what is committed is on the disk, as by default elsewhere; most tests need the time more.
        settings: further settings of the server.
    """

    def __init__(self, durable: bool = False, **settings: Any) -> None:
        found = programs()
        if found is None:
            pytest.skip("no PostgreSQL -> make postgres")
        self.bin, self.folder = found, Path(tempfile.mkdtemp(prefix="kpipe-pg-"))
        self.port = free_port()
        self.durable, self.settings = durable, settings
        self.process: subprocess.Popen[bytes] | None = None
        self.thread = ThreadPoolExecutor(1)

    def __getstate__(self) -> dict[str, Any]:
        """Where it is: what another process connects with."""
        return {"folder": self.folder, "port": self.port}

    def _as_user(self) -> list[str]:
        # initdb refuses root. SIGQUIT is PostgreSQL's immediate shutdown.
        drop = ["--reuid=postgres", "--regid=postgres", "--clear-groups"] if os.geteuid() == 0 else []
        return ["setpriv", *drop, "--pdeathsig", "QUIT"]

    def __enter__(self) -> PostgresServer:
        secret = self.folder / "password"
        secret.write_text(PASSWORD)
        if os.geteuid() == 0:
            for path in (self.folder, secret):
                shutil.chown(path, "postgres", "postgres")
        options = ["-U", "admin", "-E", "UTF8", "--no-locale", "-A", "scram-sha-256", "--pwfile", str(secret), "--no-sync"]
        made = subprocess.run(
            [*self._as_user(), str(self.bin / "initdb"), "-D", str(self.folder / "data"), *options],
            capture_output=True,
            text=True,
            check=False,
            cwd="/",
        )
        assert made.returncode == 0, made.stderr
        self.start()
        self.sql(f"CREATE ROLE {ROLE} LOGIN PASSWORD '{PASSWORD}'")
        return self

    def start(self) -> None:
        """From a thread that lives as long as the server: it ends with the thread that has started it."""
        self.thread.submit(self._start).result()

    def _start(self) -> None:
        log = (self.folder / "log").open("ab")
        settings: dict[str, Any] = {
            "port": self.port, "listen_addresses": "127.0.0.1", "unix_socket_directories": self.folder, "max_connections": 60,
            "log_statement": "none",
        }  # fmt: skip
        if not self.durable:
            settings |= {"shared_buffers": "32MB", "fsync": "off", "full_page_writes": "off"}
        settings |= self.settings
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        command = [*self._as_user(), str(self.bin / "postgres"), "-D", str(self.folder / "data"), *options]
        self.process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd="/")
        log.close()
        deadline = time.monotonic() + 300
        while True:
            try:
                self.admin().close()
                return
            except psycopg.OperationalError as error:
                if time.monotonic() > deadline:
                    raise AssertionError((self.folder / "log").read_text()) from error
                time.sleep(0.05)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """SIGINT ends every connection first, SIGQUIT is as good as a crash."""
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(300)
            self.process = None

    def __exit__(self, *_: object) -> None:
        self.stop(signal.SIGQUIT)
        self.thread.shutdown()
        shutil.rmtree(self.folder)

    def admin(self) -> psycopg.Connection:
        return psycopg.connect(
            host="127.0.0.1", port=self.port, user="admin", password=PASSWORD, dbname="postgres", autocommit=True,
            options="-c lock_timeout=300s",  # a test that has left a transaction open fails; it does not wait for ever
        )  # fmt: skip

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        with self.admin() as connection:
            done = connection.execute(statement)
            return done.fetchall() if done.description else []

    def schema(self) -> str:
        """A new schema of the role's."""
        name = f"s{os.urandom(6).hex()}"
        self.sql(f"CREATE SCHEMA {name} AUTHORIZATION {ROLE}")
        return name

    def address(self, schema: str, port: int | None = None) -> str:
        """A connection string without the password."""
        return f"postgresql://{ROLE}@127.0.0.1:{port or self.port}/postgres?options=-csearch_path%3D{schema}"

    def server(self, schema: str, port: int | None = None, lock_timeout_s: float = 20, idle_timeout_s: float = 60) -> Server:
        secrets = {"password": Secret(PASSWORD)}
        return Server(self.address(schema, port), secrets, "kpipe tests", lock_timeout_s, idle_timeout_s)
