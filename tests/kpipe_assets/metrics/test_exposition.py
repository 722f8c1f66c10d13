"""Metrics of real DuckDB ledgers and made-up brokers, as a scrape returns them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as parsed

from kpipe.definition.pipeline import Pipeline
from kpipe.errors import BrokerUnreachable, DestinationError, InvalidPipeline
from kpipe.interfaces import Destination
from kpipe.ledger.totals import Totals, of_views
from kpipe.topics import PartitionId, PartitionState, TopicSnapshot
from kpipe.verification.clearing import Clearing
from kpipe_assets.metrics import families
from kpipe_assets.metrics.exposition import Exporter, Settings, render
from kpipe_assets.metrics.labels import Grouping
from kpipe_assets.runs.retries import count_retry
from resources.home import Home
from resources.kafka.record_times import RecordTimes
from resources.testing.place import batch, begin, source
from tests.resources.destinations.place import DuckDBPlace

SECRET = "canary-77ad1c"


@dataclass
class Brokers:
    """Brokers whose partitions end at these offsets."""

    ends: dict[int, int]
    seen: dict[int, RecordTimes] = field(default_factory=dict)

    def snapshot(self) -> TopicSnapshot:
        return TopicSnapshot({source(n): PartitionState(0, end, end) for n, end in self.ends.items()})

    def times(self, positions: Mapping[PartitionId, int]) -> Mapping[PartitionId, RecordTimes]:
        return {key: self.seen.get(key.partition, RecordTimes()) for key in positions}


class World:
    """A home with pipeline `tweets`, a DuckDB ledger and brokers."""

    def __init__(self, folder: Path) -> None:
        self.home, self.place = Home.at(folder / "home").make(), DuckDBPlace(folder)
        self.brokers, self.opened = Brokers({0: 0, 1: 0}), 0
        self.add("tweets")

    def add(self, name: str) -> None:
        definition = {
            "name": name, "source": {"brokers": "b:9092", "topic": "tweets", "credentials": {"sasl.password": SECRET}},
            "into": {"table": name},
        }  # fmt: skip
        self.home.save(Pipeline.model_validate(definition))

    def open(self, pipeline: Pipeline) -> Destination:
        self.opened += 1
        return self.place.open(pipeline.name, pipeline.into.table)

    def exporter(self, **settings: float) -> Exporter:
        patient = {"timeout_s": 300.0, **settings}
        return Exporter(self.home, Settings(**patient), self.open, lambda _: self.brokers)  # type: ignore[arg-type]

    def commit(self, ends: Mapping[int, int], **more: object) -> None:
        destination = self.place.open()
        _, ledger = destination.ledger()
        if not ledger.sources():
            destination.commit(begin("tweets", sorted(ends)))
            _, ledger = destination.ledger()
        made = batch(self.place, ledger, ends, **more)  # type: ignore[arg-type]
        destination.commit(replace(made, task_seconds={step.lane.key: 0.25 for step in made.steps}))


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


Values = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def scrape(exporter: Exporter) -> Values:
    text, content_type = exporter.render()
    assert content_type.startswith("text/plain")
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in parsed(text.decode())
        for sample in family.samples
    }


def one(values: Values, name: str, **labels: str) -> float:
    return values[name, tuple(sorted({"pipeline": "tweets", **labels}.items()))]


def by_partition(values: Values, name: str) -> dict[str, float]:
    return {dict(labels)["partition"]: value for (found, labels), value in values.items() if found == name}


def test_values_are_those_of_the_ledger(world: World) -> None:
    world.commit({0: 10, 1: 4}, dead=[(0, 3)], gaps=[(1, 1), (1, 2)])
    world.commit({0: 12})
    world.brokers.ends = {0: 15, 1: 4}
    values = scrape(world.exporter())
    assert by_partition(values, "kpipe_committed_offset") == {"0": 12, "1": 4}
    assert by_partition(values, "kpipe_read_offsets_total") == {"0": 12, "1": 4}
    assert by_partition(values, "kpipe_records_total") == {"0": 12, "1": 2}
    assert by_partition(values, "kpipe_rows_total") == {"0": 11, "1": 2}
    assert by_partition(values, "kpipe_dead_letters") == {"0": 1, "1": 0}
    assert by_partition(values, "kpipe_gap_offsets_total") == {"0": 0, "1": 2}
    assert by_partition(values, "kpipe_core_seconds_total") == {"0": 0.5, "1": 0.25}
    assert by_partition(values, "kpipe_read_bytes_total") == {"0": 110, "1": 20}
    assert by_partition(values, "kpipe_lag_offsets") == {"0": 3, "1": 0}
    assert one(values, "kpipe_batches_total") == 2
    assert one(values, "kpipe_commit_sequence_number") == 3
    assert one(values, "kpipe_batch_seconds_total", stage="staging") == 1.0
    assert one(values, "kpipe_table_rows") == 13
    assert time.time() - 600 < one(values, "kpipe_last_commit_timestamp_seconds") <= time.time()
    assert one(values, "kpipe_up") == one(values, "kpipe_source_up") == 1
    assert one(values, "kpipe_pipeline_state", state="stopped") == 1
    assert one(values, "kpipe_pipeline_state", state="needs_operator") == 0


def test_the_database_and_the_views_give_the_same_sums(world: World) -> None:
    world.commit({0: 10, 1: 4}, dead=[(0, 3)])
    world.commit({0: 12})
    destination = world.place.open()
    summed = destination.totals(3)  # type: ignore[attr-defined]
    viewed = of_views(destination.view("batches"), destination.view("batches_summary"), 3)
    assert replace(summed, commit_seconds=0, committed=0) == replace(viewed, commit_seconds=0, committed=0)
    assert summed.commit_seconds == pytest.approx(viewed.commit_seconds)
    assert summed.committed == pytest.approx(viewed.committed)
    assert destination.totals(2).batches == 1  # type: ignore[attr-defined]
    assert of_views(destination.view("batches"), destination.view("batches_summary"), 2).batches == 1
    assert world.place.open("other").totals(9) == Totals()  # type: ignore[attr-defined]


def test_counters_survive_a_restart_and_the_clearing_of_the_table(world: World) -> None:
    world.commit({0: 10, 1: 4})
    before = scrape(world.exporter())
    destination = world.place.open()
    assert isinstance(destination, Clearing)
    destination.clear(["tweets"], "operator")
    after = scrape(world.exporter())
    counters = [key for key in before if key[0].endswith("_total")]
    assert counters and all(after[key] >= before[key] for key in counters)
    assert (one(before, "kpipe_table_rows"), one(after, "kpipe_table_rows")) == (14, 0)


def test_sums_are_read_again_only_after_a_commit(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.commit({0: 10, 1: 4})
    exporter, reads = world.exporter(), []
    real = type(world.place.open()).totals  # type: ignore[attr-defined]
    monkeypatch.setattr(type(world.place.open()), "totals", lambda self, seq: reads.append(seq) or real(self, seq))
    scrape(exporter), scrape(exporter)
    assert reads == [2]
    world.commit({0: 11})
    assert by_partition(scrape(exporter), "kpipe_rows_total")["0"] == 11
    assert reads == [2, 3]


def test_lag_in_seconds_is_the_age_of_the_first_unread_record(world: World) -> None:
    world.commit({0: 10, 1: 4})
    now = time.time()
    world.brokers = Brokers({0: 12, 1: 4}, {0: RecordTimes(int((now - 90) * 1000), int((now - 60) * 1000)), 1: RecordTimes(7000)})
    values = scrape(world.exporter())
    late = by_partition(values, "kpipe_lag_seconds")
    assert 60 <= late["0"] < 60 + 300 and late["1"] == 0
    newest = by_partition(values, "kpipe_newest_committed_record_timestamp_seconds")
    assert newest == {"0": pytest.approx(now - 90, abs=0.01), "1": 7.0}


def test_many_partitions_become_sums_by_topic(world: World) -> None:
    world.commit(dict.fromkeys(range(5), 2))
    world.brokers.ends = dict.fromkeys(range(5), 3)
    own = scrape(world.exporter(max_partitions=5))
    assert len(by_partition(own, "kpipe_rows_total")) == 5 and one(own, "kpipe_summed_partitions") == 0
    values = scrape(world.exporter(max_partitions=4))
    assert by_partition(values, "kpipe_rows_total") == {"all": 10}
    assert by_partition(values, "kpipe_lag_offsets") == {"all": 5}
    assert one(values, "kpipe_summed_partitions") == one(values, "kpipe_partitions") == 5


def test_many_topics_become_one_sum() -> None:
    keys = {(f"t{number}", 0) for number in range(5)}
    assert Grouping(keys, 5).labels(("t1", 0)) == ("t1", "0")
    assert Grouping(keys, 4).labels(("t1", 0)) == ("all", "all")
    assert Grouping({("a", 0), ("a", 1), ("b", 0)}, 2).labels(("a", 1)) == ("a", "all")


def test_an_unreadable_destination_hides_no_other_pipeline(world: World) -> None:
    world.commit({0: 10, 1: 4})
    world.add("broken")

    def opened(pipeline: Pipeline) -> Destination:
        if pipeline.name == "broken":
            raise DestinationError(f"postgresql://u:{SECRET}@h/db does not answer")
        return world.open(pipeline)

    exporter = Exporter(world.home, Settings(), opened, lambda _: world.brokers)  # type: ignore[arg-type,return-value]
    values = scrape(exporter)
    assert one(values, "kpipe_up") == 1
    assert one(values, "kpipe_up", pipeline="broken") == 0
    assert one(values, "kpipe_scrape_error", pipeline="broken", part="ledger", error="DestinationError") == 1
    assert not [key for key in values if key[0] == "kpipe_batches_total" and ("pipeline", "broken") in key[1]]
    assert SECRET not in exporter.render()[0].decode()


def test_unreachable_brokers_leave_the_values_of_the_ledger(world: World) -> None:
    world.commit({0: 10, 1: 4})

    def no_brokers(_: Pipeline) -> Brokers:
        raise BrokerUnreachable(f"b:9092 with {SECRET}")

    exporter = Exporter(world.home, Settings(), world.open, no_brokers)  # type: ignore[arg-type]
    values = scrape(exporter)
    assert (one(values, "kpipe_up"), one(values, "kpipe_source_up")) == (1, 0)
    assert one(values, "kpipe_scrape_error", part="brokers", error="BrokerUnreachable") == 1
    assert by_partition(values, "kpipe_rows_total") == {"0": 10, "1": 4}
    assert not by_partition(values, "kpipe_lag_offsets")
    assert SECRET not in exporter.render()[0].decode()


@contextmanager
def _hanging(world: World) -> Iterator[tuple[Exporter, list[int], threading.Event]]:
    answers, calls = threading.Event(), list[int]()

    def opened(pipeline: Pipeline) -> Destination:
        if pipeline.name == "slow":
            calls.append(1)
            answers.wait()
        return world.open(pipeline)

    try:
        yield Exporter(world.home, Settings(timeout_s=1.5), opened, lambda _: world.brokers), calls, answers  # type: ignore[arg-type,return-value]
    finally:
        answers.set()


def test_a_destination_that_hangs_is_read_by_one_thread_and_delays_no_scrape_beyond_the_timeout(world: World) -> None:
    world.commit({0: 10, 1: 4})
    world.add("slow")
    world.add("tweets")
    with _hanging(world) as (exporter, calls, answers):
        for _ in range(3):
            values = scrape(exporter)
            assert one(values, "kpipe_up", pipeline="slow") == 0
            assert one(values, "kpipe_scrape_error", pipeline="slow", part="ledger", error="Timeout") == 1
        assert len(calls) == 1
        answers.set()
        while not one(scrape(exporter), "kpipe_up", pipeline="slow"):
            time.sleep(0.05)


def test_hostile_names_are_escaped(world: World) -> None:
    world.commit({0: 10, 1: 4})
    (world.home.pipelines / 'a"b\\c\nkpipe_up{pipeline="x"} 9.yaml').write_text("name: x")
    values = scrape(world.exporter())
    assert one(values, "kpipe_up", pipeline='a"b\\c\nkpipe_up{pipeline="x"} 9') == 0
    assert ("kpipe_up", (("pipeline", "x"),)) not in values
    (world.home.pipelines / "caf\udce9.yaml").write_text("name: x")  # a name that is not UTF-8
    assert one(scrape(world.exporter()), "kpipe_up", pipeline="caf?") == 0


def test_openmetrics_is_served_to_clients_that_accept_it(world: World) -> None:
    world.commit({0: 10, 1: 4})
    text, content_type = world.exporter().render("application/openmetrics-text; version=1.0.0")
    assert content_type.startswith("application/openmetrics-text")
    found = {family.name: family.type for family in openmetrics(text.decode())}
    assert found["kpipe_rows"] == "counter" and found["kpipe_lag_offsets"] == "gauge"


def test_every_family_is_present_and_every_sample_has_its_labels(world: World) -> None:
    world.commit({0: 10, 1: 4})
    world.brokers = Brokers({0: 12, 1: 4}, {0: RecordTimes(1, 2), 1: RecordTimes(1)})
    count_retry(world.home, "tweets")
    count_retry(world.home, "tweets")
    text = world.exporter().render()[0].decode()
    labels = {item.name: set(item.labels) for item in families.FAMILIES}
    assert {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")} == labels.keys()
    values = scrape(world.exporter())
    assert {name for name, _ in values} == labels.keys() - {"kpipe_scrape_error"}
    assert all({key for key, _ in found} == labels[name] for name, found in values)
    assert one(values, "kpipe_retries_total") == 2


def test_a_home_without_pipelines_is_a_valid_answer(tmp_path: Path) -> None:
    assert all(not family.samples for family in parsed(render(Home.at(tmp_path / "home").make()).decode()))


def test_settings_out_of_range_are_refused() -> None:
    assert Settings.from_env({"KPIPE_METRICS_MAX_PARTITIONS": "7", "KPIPE_METRICS_TIMEOUT_S": "2.5"}) == Settings(7, 2.5)
    assert Settings.from_env({}) == Settings()
    for name, text in (("MAX_PARTITIONS", "0"), ("MAX_PARTITIONS", "x"), ("TIMEOUT_S", "nan"), ("TIMEOUT_S", "-1")):
        with pytest.raises(InvalidPipeline, match=f"KPIPE_METRICS_{name}"):
            Settings.from_env({f"KPIPE_METRICS_{name}": text})
