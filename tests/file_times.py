"""List the test files that took longest at the end of a run, so that the log of CI says where its time goes."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator

import pytest
from _pytest.terminal import TerminalReporter

_MOST = 60  # files


class FileTimes:
    """Measure each phase of each test, and list the sums by file.

    Seconds of CPU are those of the test's process and of the children that it has waited for: a broker, database or Spark session
    of a whole run is counted where it ends.
    """

    def __init__(self) -> None:
        self._cpu = _cpu_seconds()

    def pytest_collection_finish(self) -> None:
        """Leave out what collecting took."""
        self._cpu = _cpu_seconds()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Iterator[pytest.TestReport]:
        """Add the CPU seconds since the last report; a report of another process is sent with its attributes."""
        report: pytest.TestReport = yield  # type: ignore[misc]
        now = _cpu_seconds()
        report.cpu, self._cpu = now - self._cpu, now
        return report  # type: ignore[return-value]

    def pytest_terminal_summary(self, terminalreporter: TerminalReporter) -> None:
        """Print seconds of wall-clock time and of CPU, phases, and the file; the longest first."""
        sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0])
        for report in (one for some in terminalreporter.stats.values() for one in some if isinstance(one, pytest.TestReport)):
            of_file = sums[report.nodeid.partition("::")[0]]
            of_file[0] += report.duration
            of_file[1] += getattr(report, "cpu", 0.0)
            of_file[2] += report.when == "call"
        wall, cpu, tests = (sum(one[at] for one in sums.values()) for at in range(3))
        terminalreporter.section("time by file")
        terminalreporter.line(f"{'s':>9}{'CPU s':>9}{'tests':>7}")
        terminalreporter.line(f"{wall:9.0f}{cpu:9.0f}{tests:7.0f} all files")
        for file, (wall, cpu, tests) in sorted(sums.items(), key=lambda item: -item[1][0])[:_MOST]:
            terminalreporter.line(f"{wall:9.1f}{cpu:9.1f}{tests:7.0f} {file}")


def _cpu_seconds() -> float:
    return sum(os.times()[:4])


def pytest_configure(config: pytest.Config) -> None:
    """List files where `CI` is set."""
    if os.environ.get("CI"):
        config.pluginmanager.register(FileTimes())
