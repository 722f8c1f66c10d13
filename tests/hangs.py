"""Name a test that hangs, so that the log of a run shows it although the run is ended from outside.

pytest's `faulthandler_timeout` ends the process of such a test with the stacks of its threads, which do not
contain the test's id. Half of that time into a test, its id is written to stderr.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest


class Hangs:
    """Report each test that has used half of its time.

    Args:
        limit_s: seconds after which faulthandler ends the process.
        stderr: file descriptor to write to; pytest captures the usual one.
    """

    def __init__(self, limit_s: float, stderr: int) -> None:
        self.limit_s, self.stderr = limit_s, stderr

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Watch a test with its fixtures."""
        timer = threading.Timer(self.limit_s / 2, self.report, [item.nodeid])
        timer.daemon = True
        timer.start()
        try:
            return (yield)
        finally:
            timer.cancel()

    def report(self, test: str) -> None:
        """Write the id of the running test."""
        worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
        text = f"\n[{worker}] {test} has run for {self.limit_s / 2:g} s; its process is ended at {self.limit_s:g} s\n"
        os.write(self.stderr, text.encode())


def pytest_configure(config: pytest.Config) -> None:
    """Watch if there is a limit. Capturing has not begun yet, so file descriptor 2 is the log."""
    if limit_s := float(config.getini("faulthandler_timeout") or 0):
        config.pluginmanager.register(Hangs(limit_s, os.dup(2)), "kpipe-hangs")
