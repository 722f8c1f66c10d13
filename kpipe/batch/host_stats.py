"""Where the work of a run was done: what people look at when one machine of many is slow, or fails."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from kpipe.batch.batch import RangeReport

__all__ = ["HostWork", "Work"]


@dataclass(frozen=True)
class HostWork:
    """What one machine has done in a run.

    Attributes:
        ranges: that it has read, whole or in parts.
        records: in them.
        bytes: of their keys and values.
        seconds: time spent on them, summed over what ran at once.
        failures: tasks that failed there, or whose process was lost.
    """

    ranges: int = 0
    records: int = 0
    bytes: int = 0
    seconds: float = 0.0
    failures: int = 0


@dataclass(frozen=True)
class Work:
    """The engine's name for a run, and what each machine did.

    Attributes:
        application: the engine's id of it.
        url: of the page that shows it while it runs; empty when there is none.
        hosts: by name; empty where all is done on one machine.
    """

    application: str = ""
    url: str = ""
    hosts: Mapping[str, HostWork] = field(default_factory=dict)

    def with_reports(self, reports: Iterable[RangeReport]) -> Work:
        """What these tell, added; those that name no machine are left out."""
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
        """With these numbers of failures, by name or address: a machine's name may be both, with a slash between."""
        hosts = dict(self.hosts)
        for place, count in failures.items():
            name = next((name for name in hosts if place in name.split("/")), place)
            hosts[name] = replace(hosts.get(name, HostWork()), failures=count)
        return replace(self, hosts=hosts)
