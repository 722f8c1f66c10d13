"""`kpipe sql` at a real terminal: Tab, lines until the semicolon, the arrow up, Ctrl-C, Ctrl-D, and what stays in the history."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import threading
import time
from pathlib import Path

from tests.commandline import Kpipe

_DRAWN = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """A pseudo terminal with `kpipe sql` in it; answers where the cursor is, as every terminal does."""

    def __init__(self, kpipe: Kpipe) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "kpipe_assets.cli", "sql"], stdin=theirs, stdout=theirs, stderr=theirs,
            env=kpipe.environment(TERM="xterm"), start_new_session=True,
        )  # fmt: skip
        os.close(theirs)
        self._shown, self._lock = "", threading.Lock()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        """Read until `kpipe sql` has ended, even if a process that it started has kept the terminal open."""
        while select.select([self._ours], [], [], 0.5)[0] or self.process.poll() is None:
            try:
                data = os.read(self._ours, 65536)
            except OSError:  # the other side has been closed
                return
            for _ in range(data.count(b"\x1b[6n")):
                os.write(self._ours, b"\x1b[1;1R")
            with self._lock:
                self._shown += data.decode(errors="replace")

    def sees(self, words: str) -> None:
        """Wait for words behind those that were seen last."""
        deadline = time.monotonic() + 300
        while words not in (text := _DRAWN.sub("", self._shown)):
            assert time.monotonic() < deadline and self.process.poll() is None, f"no {words!r} in {text!r}"
            time.sleep(0.05)
        with self._lock:
            text = _DRAWN.sub("", self._shown)
            self._shown = text[text.index(words) + len(words) :]

    def types(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def ends(self) -> int:
        """Its exit status."""
        try:
            return self.process.wait(300)
        finally:
            self.process.kill()
            self.process.wait()
            self._reader.join()
            os.close(self._ours)


def test_a_dialogue_at_a_terminal(offline: Kpipe) -> None:
    at = Terminal(offline)
    try:
        at.sees("kpipe>")
        at.types("SHOW PIPE\t")
        at.sees("LINES")
        at.types(";\r")
        at.sees("0 rows")
        at.sees("kpipe>")
        at.types("SELECT 41 +\r 1 AS answer;\r")
        at.sees("answer")
        at.sees("42")
        at.sees("kpipe>")
        at.types("START PIPLINE x;\r")
        at.sees("did you mean PIPELINE?")
        at.sees("kpipe>")
        at.types("\x10\x10")  # Ctrl-P: back in the history, twice
        at.sees("41 +")
        at.types("\x03")  # Ctrl-C gives that up, and not the dialogue
        at.sees("kpipe>")
        at.types("SHOW PIPELINES;\r")
        at.sees("0 rows")
        at.sees("kpipe>")
        at.types("\x04")
    finally:
        if sys.exc_info()[0]:
            at.process.kill()
        status = at.ends()
    assert status == 0
    kept = (Path(offline.home) / "sql_history").read_text()
    assert "+SHOW PIPELINES;" in kept and "+SELECT 41 +\n+ 1 AS answer;" in kept
    assert (Path(offline.home) / "sql_history").stat().st_mode & 0o077 == 0
