"""A real MySQL for tests, as `make mysql` has unpacked it."""

from __future__ import annotations

import os
import subprocess

import pytest

from tests.servers.mariadb import MariaServer
from tests.servers.mysql_packages import FOLDER, command

__all__ = ["MySQLServer"]


class MySQLServer(MariaServer):
    """One server, like `MariaServer`."""

    def find(self) -> list[str]:
        """See `MariaServer`."""
        if not FOLDER.is_dir():
            pytest.skip("no MySQL -> make mysql")
        if os.geteuid() != 0:
            pytest.skip("MySQL's server is started by root as another user")
        return command()

    @property
    def _shared(self) -> list[str]:
        return [f"--basedir={FOLDER / 'usr'}", f"--lc-messages-dir={FOLDER / 'usr/share/mysql'}", "--secure-file-priv=NULL"]

    def create(self) -> None:
        """See `MariaServer`."""
        options = ["--no-defaults", self.tmpdir, f"--datadir={self.folder / 'data'}", *self._shared, "--initialize-insecure"]
        words = [*self.as_user(), *self.program, *options]
        made = subprocess.run(words, capture_output=True, text=True, check=False, cwd=self.folder)
        assert made.returncode == 0, made.stderr + made.stdout

    def options(self) -> list[str]:
        """See `MariaServer`."""
        return [*self._shared, "--mysqlx=0", "--skip-log-bin", "--innodb-redo-log-capacity=64M"]
