"""A real MariaDB for tests: Debian's, in a folder of its own, on a port of its own, as a user without privileges."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pymysql
import pytest

from resources.destinations.mysql.connection import Server
from resources.secrets import Secret
from tests.ports import free_port

PASSWORD = "canary-7c20d4"
ROLE = "loader"
PLAIN = {"ssl_disabled": True}  # else PyMySQL reads all certificates of the machine for each connection


class MariaServer:
    """One server. A context manager; it ends with this process, however that dies.

    Args:
        settings: options of the server, `name=value`.
    """

    def __init__(self, *settings: str) -> None:
        self.program, self.settings, self.folder = self.find(), settings, Path(tempfile.mkdtemp(prefix="kpipe-my-"))
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self.thread = ThreadPoolExecutor(1)

    def __getstate__(self) -> dict[str, Any]:
        """Where it is: what another process connects with."""
        return {"folder": self.folder, "port": self.port}

    @property
    def tmpdir(self) -> str:
        """The option with a folder for temporary tables of its own."""
        return f"--tmpdir={self.folder / 'tmp'}"

    def as_user(self) -> list[str]:
        """What precedes its program: a user without privileges, and the end with this process."""
        drop = ["--reuid=mysql", "--regid=mysql", "--clear-groups"] if os.geteuid() == 0 else []
        return ["setpriv", *drop, "--pdeathsig", "KILL"]

    def find(self) -> list[str]:
        """Words that start its program; skips the test where there is none."""
        found = shutil.which("mariadbd", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")
        if found is None or shutil.which("mariadb-install-db") is None:
            pytest.skip("no MariaDB -> make mariadb")
        return [found]

    def create(self) -> None:
        """The folder of its data."""
        options = ["--no-defaults", f"--datadir={self.folder / 'data'}", "--skip-test-db", "--skip-name-resolve"]
        options += ["--auth-root-authentication-method=normal", "--innodb-flush-log-at-trx-commit=0", self.tmpdir]
        made = subprocess.run(
            [*self.as_user(), "mariadb-install-db", *options], capture_output=True, text=True, check=False, cwd=self.folder
        )
        assert made.returncode == 0, made.stderr + made.stdout

    def options(self) -> list[str]:
        """Options that only this server has."""
        return ["--innodb-log-file-size=64M", "--sync-frm=0"]

    def __enter__(self) -> MariaServer:
        # A server that starts removes all temporary tables in its tmpdir: those of other servers, too, if they share it.
        (self.folder / "tmp").mkdir()
        if os.geteuid() == 0:
            shutil.chown(self.folder, "mysql", "mysql")
            shutil.chown(self.folder / "tmp", "mysql", "mysql")
        self.create()
        self.start()
        self.sql(f"CREATE USER {ROLE}@'%' IDENTIFIED BY '{PASSWORD}'")
        return self

    def start(self) -> None:
        """From a thread that lives as long as the server: it ends with the thread that has started it."""
        self.thread.submit(self._start).result()

    def _start(self) -> None:
        log = (self.folder / "log").open("ab")
        settings = [
            f"datadir={self.folder / 'data'}", f"socket={self.folder / 'socket'}", f"port={self.port}", "bind-address=127.0.0.1",
            f"pid-file={self.folder / 'pid'}", "skip-name-resolve", "innodb-buffer-pool-size=64M",
            # What is committed reaches the kernel, which outlives the server: enough for a server that is killed.
            "innodb-flush-log-at-trx-commit=2", "innodb-flush-method=nosync", "max-connections=80", *self.settings,
        ]  # fmt: skip
        words = [*self.as_user(), *self.program, "--no-defaults", self.tmpdir, *self.options()]
        command = [*words, *(f"--{setting}" for setting in settings)]
        self.process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=self.folder)
        log.close()
        deadline = time.monotonic() + 300
        while True:
            with socket.socket(socket.AF_UNIX) as line:  # PyMySQL leaves its own open when it cannot connect
                if line.connect_ex(str(self.folder / "socket")) == 0:
                    return
            assert time.monotonic() < deadline and self.process.poll() is None, (self.folder / "log").read_text()
            time.sleep(0.05)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(300)
            self.process = None

    def __exit__(self, *_: object) -> None:
        self.stop(signal.SIGKILL)
        self.thread.shutdown()
        shutil.rmtree(self.folder)

    def admin(self, **more: Any) -> pymysql.Connection[Any]:
        found = {"charset": "utf8mb4", "autocommit": True, "unix_socket": str(self.folder / "socket"), **PLAIN, **more}
        # A test that has left a transaction open fails; the server's own limit is a day.
        return pymysql.connect(user="root", init_command="SET lock_wait_timeout = 300", **found)

    def sql(self, statement: str, parameters: Any = None, **more: Any) -> Any:
        with self.admin(**more) as connection, connection.cursor() as cursor:
            cursor.execute(statement, parameters)
            return cursor.fetchall()

    def database(self) -> str:
        """A new database, which the role may do everything in."""
        name = f"d{os.urandom(6).hex()}"
        self.sql(f"CREATE DATABASE {name} CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci")  # as Debian's default: folds case
        self.sql(f"GRANT ALL ON {name}.* TO {ROLE}@'%'")
        return name

    def address(self, database: str, port: int | None = None) -> str:
        """A connection string without the password."""
        return f"mysql://{ROLE}@127.0.0.1:{port or self.port}/{database}"

    def server(self, database: str, port: int | None = None, lock_timeout_s: float = 20, idle_timeout_s: float = 60) -> Server:
        return Server(self.address(database, port), {"password": Secret(PASSWORD)}, "kpipe tests", lock_timeout_s, idle_timeout_s)
