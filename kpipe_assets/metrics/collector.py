"""Convert readings to Prometheus' metric families."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kpipe_assets.metrics.families import BY_TOTAL, FAMILIES
from kpipe_assets.metrics.labels import Grouping
from kpipe_assets.metrics.reading import Reading

__all__ = ["STATES", "Readings", "samples"]

STATES = ("running", "waiting", "stopped", "error", "needs_operator", "detached")
_Sample = tuple[str, tuple[str, ...], float]


class Readings(Collector):
    """A collector of readings that were made before.

    Args:
        readings: of all pipelines.
        most: most partitions of a pipeline with series of their own.
    """

    def __init__(self, readings: Sequence[Reading], most: int) -> None:
        self._readings, self._most = readings, most

    def collect(self) -> Iterator[Metric]:
        """Yield every family, also without samples."""
        made: dict[str, Metric] = {}
        for family in FAMILIES:
            kind = CounterMetricFamily if family.type == "counter" else GaugeMetricFamily
            made[family.name] = kind(family.name.removesuffix("_total"), family.help, labels=family.labels)
        for reading in self._readings:
            for name, labels, value in samples(reading, self._most):
                made[name].add_metric(labels, value)  # type: ignore[attr-defined]
        yield from made.values()


def samples(reading: Reading, most: int) -> Iterator[_Sample]:
    """Yield the samples of one pipeline: metric, values of its labels, value."""
    name = _text(reading.pipeline)
    yield "kpipe_up", (name,), float(reading.totals is not None)
    yield "kpipe_source_up", (name,), float(reading.lag is not None)
    yield "kpipe_scrape_duration_seconds", (name,), reading.seconds
    for part, error in reading.errors.items():
        yield "kpipe_scrape_error", (name, part, error), 1.0
    if reading.state:
        for state in dict.fromkeys((*STATES, reading.state)):
            yield "kpipe_pipeline_state", (name, state), float(state == reading.state)
    if reading.totals is not None:
        yield from _of_pipeline(name, reading)
        yield from _of_partitions(name, reading, most)


def _of_pipeline(name: str, reading: Reading) -> Iterator[_Sample]:
    totals = reading.totals
    assert totals is not None
    yield "kpipe_batches_total", (name,), float(totals.batches)
    yield "kpipe_batch_seconds_total", (name, "staging"), totals.staging_seconds
    yield "kpipe_batch_seconds_total", (name, "commit"), totals.commit_seconds
    yield "kpipe_last_commit_timestamp_seconds", (name,), totals.committed
    yield "kpipe_commit_sequence_number", (name,), float(reading.seq)
    yield "kpipe_table_rows", (name,), float(reading.row.get("rows") or 0)
    yield "kpipe_skipped_batches_total", (name,), float(reading.row.get("skipped_batches") or 0)
    yield "kpipe_retries_total", (name,), float(reading.retries)


def _of_partitions(name: str, reading: Reading, most: int) -> Iterator[_Sample]:
    totals = reading.totals
    assert totals is not None
    keys = {*totals.partitions, *reading.positions, *(reading.lag or ())}
    grouping = Grouping(keys, most)
    yield "kpipe_partitions", (name,), float(len(keys))
    yield "kpipe_summed_partitions", (name,), float(grouping.summed)

    def series(metric: str, found: Iterable[tuple[tuple[str, str], float]]) -> Iterator[_Sample]:
        for (topic, partition), value in found:
            yield metric, (name, _text(topic), partition), value

    yield from series("kpipe_committed_offset", grouping.combined({k: float(v) for k, v in reading.positions.items()}, sum))
    for metric, total in BY_TOTAL.items():
        values = {key: float(getattr(sums, total)) for key, sums in totals.partitions.items()}
        yield from series(metric, grouping.combined(values, sum))
    if reading.lag is None:
        return
    yield from series("kpipe_lag_offsets", grouping.combined({k: float(v) for k, v in reading.lag.items()}, sum))
    late, newest = {}, {}
    for key, times in reading.times.items():
        if times.committed is not None:
            newest[key] = times.committed / 1000
        first = times.unread if times.unread is not None else times.committed
        if not reading.lag.get(key):
            late[key] = 0.0
        elif first is not None:
            late[key] = max(0.0, reading.now - first / 1000)
    yield from series("kpipe_lag_seconds", grouping.combined(late, max))
    yield from series("kpipe_newest_committed_record_timestamp_seconds", grouping.combined(newest, max))


def _text(name: str) -> str:
    """Return a name as valid UTF-8: names of files may be any bytes."""
    return name.encode("utf-8", "replace").decode()
