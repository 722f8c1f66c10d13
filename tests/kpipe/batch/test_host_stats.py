"""What each machine did in a run."""

from __future__ import annotations

from kpipe.batch.batch import Counts, RangeReport
from kpipe.batch.host_stats import HostWork, Work
from kpipe.offsets import Range
from kpipe.topics import PartitionId, TopicId

SOURCE = PartitionId(TopicId("c", "t", "a"), 0)


def report(host: str, records: int, seconds: float) -> RangeReport:
    return RangeReport(SOURCE, Range(0, records), Counts(messages=records, bytes=10 * records), seconds=seconds, host=host)


def test_reports_add_up_by_machine_and_failures_are_told_by_name_or_address() -> None:
    work = Work("app-1", "http://d:4040").with_reports([report("w1/10.0.0.1", 5, 1.0), report("w1/10.0.0.1", 7, 0.5)])
    work = work.with_reports([report("w2", 1, 2.0), report("", 100, 9.0)]).with_failures({"10.0.0.1": 2, "w3": 1})
    assert work.hosts == {
        "w1/10.0.0.1": HostWork(2, 12, 120, 1.5, 2),
        "w2": HostWork(1, 1, 10, 2.0, 0),
        "w3": HostWork(failures=1),
    }
    assert (work.application, work.url) == ("app-1", "http://d:4040")


def test_a_number_of_failures_replaces_an_earlier_one() -> None:
    assert Work().with_failures({"w": 1}).with_failures({"w": 3}).hosts == {"w": HostWork(failures=3)}
