"""`kpipe ui` as a person sees it: Chromium walks from an empty table to continuous ingest, and presses the real buttons.

What the pages say is compared with what was written to Kafka. KPIPE_WALK_PICTURES=FOLDER keeps the screenshots.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from kpipe.definition.pipeline import Into, Pipeline, Shown, Source, Transform
from kpipe_assets.example.topic import offsets_of, produce
from kpipe_assets.example.tweets import PARTITIONS, tweet
from resources.dev_broker.broker import LocalBroker
from resources.home import Home
from resources.java import JavaHome
from tests.kpipe_assets.browser import Browser, missing, running
from tests.kpipe_assets.dagster_ui import Ui, running_ui

pytestmark = [pytest.mark.slow, pytest.mark.broker, pytest.mark.spark]

PROGRAM = Path(__file__).parents[3] / "transforms" / "programs" / "flatten_tweet.py"
TWEETS, MORE = 10_000, 800
EACH, MORE_EACH = TWEETS // PARTITIONS, MORE // PARTITIONS
END = offsets_of(TWEETS) // PARTITIONS
BROKEN = "0"  # the partition of tweet 9,972, the only one that is not JSON


@pytest.fixture(scope="module")
def ui(
    java: JavaHome,
    kafka_broker: LocalBroker,
    brokers: str,
    free_port: Callable[[], int],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Ui]:
    if why := missing():
        pytest.skip(why)
    home = Home(tmp_path_factory.mktemp("walk") / "home").make()
    home.save(
        Pipeline(
            name="tweets",
            source=Source(brokers=brokers, topic="tweets"),
            transform=Transform(program=str(PROGRAM)),
            columns={"id": "BIGINT", "created_at": "TIMESTAMP WITH TIME ZONE"},
            into=Into(table="tweets"),
            asset=Shown(group="social", owners=["team:insight", "ann@example.com"], tags={"domain": "news"}),
        )
    )
    kafka_broker.create_topic("tweets", PARTITIONS, {"retention.ms": "-1"})
    produce(brokers, "tweets", TWEETS, lambda _: None, lambda: False)
    with running_ui(home, free_port(), "tweets", brokers) as ui:
        yield ui
    kafka_broker.delete_topic("tweets")


@pytest.fixture(scope="module")
def page(ui: Ui, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    pictures = Path(os.environ.get("KPIPE_WALK_PICTURES") or tmp_path_factory.mktemp("pictures"))
    pictures.mkdir(parents=True, exist_ok=True)
    with running(ui.address, pictures) as browser:
        browser.size(1180, 980)
        browser.open(f"/?token={ui.token}")
        browser.click("//*[text()='Hide navigation']")
        yield browser


def button(text: str) -> str:
    return f"//button[normalize-space()='{text}']"


def switch(sensor: str) -> str:
    """On the list of automations."""
    return f"//a[contains(@href, '/sensors/{sensor}')]/..//label[.//*[name()='rect']]"


def partition(page: Browser, key: str, *texts: str, seconds: float = 300) -> tuple[str, dict[str, int]]:
    """What a partition's page shows, once it says these: the run of its newest event, and the numbers that it tells."""
    text = page.sees(*texts, "^kpipe/rows$", path=f"/assets/tweets?view=partitions&partition={key}", seconds=seconds)
    assert "Unsynced" not in text
    (run,) = re.findall(r"^Run\n(\w{8})$", text, re.M)
    names = ("start_offset", "end_offset", "rows", "dead_letters", "gaps")
    rows = page.rows(*(f"kpipe/{name}" for name in names))
    return run, {name: int(rows[f"kpipe/{name}"][0]) for name in names}


def reached(page: Browser, ui: Ui, ends: dict[str, int]) -> None:
    """Wait until partitions are materialized up to these offsets, without a page: one that renews itself takes CPU."""
    page.blank()

    def done() -> bool:
        latest = ui.latest("tweets")
        return {key: latest.get(key, {}).get("kpipe/end_offset") for key in ends} == ends

    ui.until(done, 400)


def read(start: int, end: int, rows: int, dead_letters: int = 0, gaps: int = 0) -> dict[str, int]:
    return {"start_offset": start, "end_offset": end, "rows": rows, "dead_letters": dead_letters, "gaps": gaps}


# In this order: each goes on from where the one before has left the pipeline.


def test_the_sensors_stand_there_and_partitions_have_appeared(page: Browser) -> None:
    page.sees("^tweets_ingest$", "^tweets_metadata$", path="/automation")
    page.turned(f"{switch('tweets_metadata')}/input", True)
    page.turned(f"{switch('tweets_ingest')}/input", False)
    page.click(switch("default_automation_condition_sensor"))
    page.turned(f"{switch('default_automation_condition_sensor')}/input", True)
    page.picture("automation")
    text = page.sees(r"^Missing \(4\)$", path="/assets/tweets?view=partitions")
    assert [*dict.fromkeys(line for line in text.splitlines() if line.isdigit())] == ["0", "1", "2", "3"]
    page.picture("missing")


def test_one_partition_is_launched_from_the_page(page: Browser, ui: Ui) -> None:
    page.sees("^No metadata entries$", path="/assets/tweets?view=partitions&partition=1")
    page.click(button("Materialize…"))
    page.sees("^1 partition$")
    page.picture("launch-one")
    page.click(button("Launch 1 run"))
    page.sees("^Launched run")
    reached(page, ui, {"1": END})
    assert re.search("^partition: 1$", page.sees("^(Success|Failure)$", path="/runs", seconds=400), re.M)
    _, shown = partition(page, "1", r"^Materialized \(1\)$", r"^Missing \(3\)$")
    assert shown == read(0, END, EACH, gaps=END - EACH)
    page.picture("one")


def test_all_partitions_are_launched_from_the_page_as_one_run(page: Browser, ui: Ui) -> None:
    page.open("/assets/tweets")
    page.click(button("Materialize…"))
    page.click(button("All"))
    page.sees("^4 partitions$")
    page.picture("launch-all")
    page.click(button("Launch backfill"))
    page.sees("^Created backfill")
    reached(page, ui, dict.fromkeys("0123", END))
    shown = {BROKEN: partition(page, BROKEN, r"^(Materialized \(4\)|Failed \([1-4]\))$", r"^Materializing \(0\)$", seconds=400)}
    page.picture("partitions")
    shown |= {key: partition(page, key) for key in "123"}
    assert {key: numbers for key, (_, numbers) in shown.items()} == {
        "0": read(0, END, EACH - 1, dead_letters=1, gaps=END - EACH),
        "1": read(END, END, 0),
        "2": read(0, END, EACH, gaps=END - EACH),
        "3": read(0, END, EACH, gaps=END - EACH),
    }
    assert len({run for run, _ in shown.values()}) == 1


def test_the_page_of_the_topic(page: Browser, ui: Ui) -> None:
    page.sees(f"Kafka topic tweets on {ui.brokers}", "^Kafka$", path="/assets/kafka/tweets")
    names = ("log_start", "high_watermark", "last_stable_offset", "records")
    rows = page.rows("timestamp", *(f"kpipe/{name}" for name in names))
    assert [int(rows[f"kpipe/{name}"][-1]) for name in names] == [0, END, END, END]
    assert rows["timestamp"] == ["int64", "ms since 1970 UTC, of the producer or the broker"]
    page.picture("topic")


def test_the_page_of_the_table(page: Browser) -> None:
    described = "^Rows of Kafka topic tweets, through flatten_tweet.py, exactly once.$"
    shown = ["social", "insight", "ann@example.com", "DuckDB", "Spark", "domain: news", "tweets_ingest", "tweets_by_language"]
    page.sees(rf"^Row count\n+{TWEETS - 1:,}$", described, *(f"^{name}$" for name in shown), path="/assets/tweets")
    rows = page.rows("id", "created_at", "hashtags", "kpipe/rows", "kpipe/end_offset")
    assert [rows[name][0] for name in ("id", "created_at", "hashtags")] == ["BIGINT", "TIMESTAMP WITH TIME ZONE", "VARCHAR[]"]
    assert rows["kpipe/end_offset"][-1] == str(END)
    page.picture("table")


def test_the_checks_have_run_and_passed(page: Browser) -> None:
    proven = f"^{PARTITIONS * END:,} offsets accounted for$"
    page.sees(proven, r"(?s)(^Succeeded$.*){5}", path="/assets/tweets?view=checks")
    assert page.rows(BROKEN)[BROKEN] == [f"[0, {END})", *map(str, (END, EACH - 1, 1, 0, END - EACH, EACH - 1))]
    page.picture("checks")


def test_the_lineage_leads_from_the_topic_to_what_is_built_on_the_table(page: Browser) -> None:
    shown = ["kafka", "social", "tweets_by_language", "5 / 5 Passed", "100% filled", "Kafka", "Spark", "DuckDB"]
    both = r"(?s)(\n4 partitions\n.*){2}"
    page.sees(*(f"^{name}$" for name in shown), both, path="/assets/tweets?view=lineage&lineageScope=neighbors")
    page.picture("lineage")


def test_the_sensor_is_switched_on_and_off(page: Browser, ui: Ui) -> None:
    producer = Producer({"bootstrap.servers": ui.brokers})
    for number in range(TWEETS, TWEETS + MORE):
        producer.produce("tweets", tweet(number).value, partition=number % PARTITIONS)
    assert producer.flush(120) == 0
    on = "//label[.//*[name()='rect']]"
    page.open("/locations/kpipe/sensors/tweets_ingest")
    page.turn(on, True)
    page.sees("^1 run requested$", seconds=400)
    page.turned(f"{on}/input", True)
    page.picture("sensor")
    reached(page, ui, {"3": END + MORE_EACH})  # a run that goes on tells Dagster every 30 s
    _, shown = partition(page, "3", f"^{END + MORE_EACH}$", seconds=400)
    assert shown == read(END, END + MORE_EACH, MORE_EACH)
    page.open("/locations/kpipe/sensors/tweets_ingest")
    page.turned(f"{on}/input", True)
    page.turn(on, False)


def test_what_is_built_on_the_table_has_been_computed_by_itself(page: Browser) -> None:
    """Its automation was switched on in the beginning."""
    page.sees("^Row count$", "^Automation condition$|^Eager$|eager", path="/assets/tweets_by_language", seconds=400)
    assert int(page.rows("tweets")["tweets"][-1]) in (TWEETS - 1, TWEETS + MORE - 1)
    page.picture("downstream")


def test_numbers_are_plotted_over_several_materializations(page: Browser) -> None:
    page.open("/assets/tweets")
    page.click(button("Plots"))
    page.click(button("Events"))
    text = page.sees("^kpipe/start_offset$")
    assert {"dagster/row_count", "kpipe/end_offset", "kpipe/rows", "kpipe/lag", "kpipe/bytes"} <= set(text.splitlines())
    page.show("//*[text()='Metadata']")
    page.picture("plots")
