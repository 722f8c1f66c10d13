"""Statistics of each machine in a run, to find a slow or failing machine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from kpipe.batch.batch import RangeReport

__all__ = ["HostWork", "Work"]


@dataclass(frozen=True)
class HostWork:
    """Work of one machine in a run.

    Attributes:
        ranges: ranges that it has read, whole or in parts.
        records: records of these ranges.
        bytes: bytes of their keys and values.
        seconds: time spent, summed over parallel tasks.
        failures: tasks that failed, or whose process was lost.
    """

    ranges: int = 0
    records: int = 0
    bytes: int = 0
    seconds: float = 0.0
    failures: int = 0


@dataclass(frozen=True)
class Work:
    """Work of a run: the engine's name for it, and the work of each machine.

    Attributes:
        application: the engine's id of the run.
        url: address of the page that shows the run; empty without such a page.
        hosts: by name; empty on a single machine.
    """

    application: str = ""
    url: str = ""
    hosts: Mapping[str, HostWork] = field(default_factory=dict)

    def with_reports(self, reports: Iterable[RangeReport]) -> Work:
        """Add the work in these reports; reports without a machine are left out."""
        hosts = dict(self.hosts)
        for report in reports:
            if report.host:
                seen = hosts.get(report.host, HostWork())
                hosts[report.host] = replace(
                    seen,
                    ranges=seen.ranges + 1,
                    records=seen.records + report.counts.messages,
                    bytes=seen.bytes + report.counts.bytes,
                    seconds=seen.seconds + report.seconds,
                )
        return replace(self, hosts=hosts)

    def with_failures(self, failures: Mapping[str, int]) -> Work:
        """Set the numbers of failures, by name or address: a machine may be listed as both, separated by a slash."""
        hosts = dict(self.hosts)
        for place, count in failures.items():
            name = next((name for name in hosts if place in name.split("/")), place)
            hosts[name] = replace(hosts.get(name, HostWork()), failures=count)
        return replace(self, hosts=hosts)
