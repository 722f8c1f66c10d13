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

from kpipe.pipeline import Into, Pipeline, Shown, Source, Transform
from kpipe_assets.example.topic import offsets_of, produce
from kpipe_assets.example.tweets import PARTITIONS, tweet
from resources.home import Home
from resources.java import JavaHome
from resources.local.broker import LocalBroker
from tests.kpipe_assets.browser import Browser, missing, running
from tests.kpipe_assets.dagster_ui import Ui, running_ui

pytestmark = [pytest.mark.slow, pytest.mark.broker, pytest.mark.spark]

PROGRAM = Path(__file__).parent.parent.parent / "transforms" / "programs" / "flatten_tweet.py"
TWEETS, MORE = 10_000, 800
EACH, MORE_EACH = TWEETS // PARTITIONS, MORE // PARTITIONS
END = offsets_of(TWEETS, transactional=True) // PARTITIONS
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
    produce(brokers, "tweets", TWEETS, True, lambda _: None, lambda: False)
    with running_ui(home, free_port(), "tweets", brokers) as ui:
        yield ui
    kafka_broker.delete_topic("tweets")


@pytest.fixture(scope="module")
def page(ui: Ui, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    pictures = Path(os.environ.get("KPIPE_WALK_PICTURES") or tmp_path_factory.mktemp("pictures"))
    pictures.mkdir(parents=True, exist_ok=True)
    with running(ui.address, pictures) as browser:
        browser.size(1280, 980)
        yield browser


def button(text: str) -> str:
    return f"//button[normalize-space()='{text}']"


def switch(sensor: str) -> str:
    """On the list of automations."""
    return f"//a[contains(@href, '/sensors/{sensor}')]/..//label[.//*[name()='rect']]"


def partition(page: Browser, key: str, *texts: str, seconds: float = 60) -> dict[str, str]:
    """What a partition's page shows, once it says these: its newest event's metadata, and `run`."""
    text = page.sees(*texts, "^kpipe/rows$", path=f"/assets/tweets?view=partitions&partition={key}", seconds=seconds)
    assert "Unsynced" not in text
    run = re.search(r"^Run\n(\w{8})$", text, re.M)
    return {"run": run[1] if run else "", **{name: cells[0] for name, cells in page.rows().items()}}


def numbers(shown: dict[str, str]) -> dict[str, int]:
    names = ("start_offset", "end_offset", "rows", "dead_letters", "gaps")
    return {name: int(shown[f"kpipe/{name}"]) for name in names}


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


def test_one_partition_is_launched_from_the_page(page: Browser) -> None:
    page.sees("^No metadata entries$", path="/assets/tweets?view=partitions&partition=1")
    page.click(button("Materialize…"))
    page.sees("^1 partition$")
    page.picture("launch-one")
    page.click(button("Launch 1 run"))
    page.sees("^Launched run")
    assert re.search("^partition: 1$", page.sees("^(Success|Failure)$", path="/runs", seconds=120), re.M)
    shown = partition(page, "1", r"^Materialized \(1\)$", r"^Missing \(3\)$")
    assert numbers(shown) == {"start_offset": 0, "end_offset": END, "rows": EACH, "dead_letters": 0, "gaps": END - EACH}
    page.picture("one")


def test_all_partitions_are_launched_from_the_page_as_one_run(page: Browser) -> None:
    page.open("/assets/tweets")
    page.click(button("Materialize…"))
    page.click(button("All"))
    page.sees("^4 partitions$")
    page.picture("launch-all")
    page.click(button("Launch backfill"))
    page.sees("^Created backfill")
    # Dagster looks for new backfills every 30 s.
    shown = {BROKEN: partition(page, BROKEN, r"^(Materialized \(4\)|Failed \([1-4]\))$", r"^Materializing \(0\)$", seconds=180)}
    page.picture("partitions")
    shown |= {key: partition(page, key, f"^{key}$") for key in "123"}
    assert len({item["run"] for item in shown.values()} - {""}) == 1
    assert sum(numbers(item)["rows"] for item in shown.values()) == 3 * EACH - 1
    nothing = {"rows": 0, "dead_letters": 0, "gaps": 0}
    read = {"start_offset": 0, "end_offset": END, "rows": EACH, "dead_letters": 0, "gaps": END - EACH}
    assert {key: numbers(item) for key, item in shown.items()} == {
        "0": {**read, "rows": EACH - 1, "dead_letters": 1},
        "1": {"start_offset": END, "end_offset": END, **nothing},
        "2": read,
        "3": read,
    }


def test_the_page_of_the_topic(page: Browser, ui: Ui) -> None:
    page.sees(f"Kafka topic tweets on {ui.brokers}", "^Kafka$", "^kpipe/high_watermark$", path="/assets/kafka/tweets")
    rows = page.rows()
    shown = {name: int(rows[f"kpipe/{name}"][-1]) for name in ("log_start", "high_watermark", "last_stable_offset", "records")}
    assert shown == {"log_start": 0, "high_watermark": END, "last_stable_offset": END, "records": END}
    assert rows["timestamp"] == ["int64", "ms since 1970 UTC, of the producer or the broker"]
    page.picture("topic")


def test_the_page_of_the_table(page: Browser) -> None:
    text = page.sees("^Row count$", "^kpipe/rows$", path="/assets/tweets")
    assert re.search(rf"^Row count\n+{TWEETS - 1:,}$", text, re.M)
    for words in ("Rows of Kafka topic tweets, through flatten_tweet.py, exactly once.", "domain: news", "ann@example.com"):
        assert words in text
    assert {"social", "insight", "DuckDB", "Spark", "tweets_ingest", "tweets_by_language"} <= set(text.splitlines())
    rows = page.rows()
    assert rows["id"][0] == "BIGINT"
    assert rows["created_at"][0] == "TIMESTAMP WITH TIME ZONE"
    assert rows["hashtags"][0] == "VARCHAR[]"
    page.picture("table")


def test_the_checks_have_run_and_passed(page: Browser) -> None:
    text = page.sees("accounted for$", path="/assets/tweets?view=checks")
    assert f"\n{PARTITIONS * END:,} offsets accounted for\n" in text
    assert text.count("\nSucceeded\n") == 5
    assert page.rows()["0"] == [f"[0, {END})", *map(str, (END, EACH - 1, 1, 0, END - EACH, EACH - 1))]
    page.picture("checks")


def test_the_sensor_is_switched_on_and_off(page: Browser, ui: Ui) -> None:
    producer = Producer({"bootstrap.servers": ui.brokers})
    for number in range(TWEETS, TWEETS + MORE):
        producer.produce("tweets", tweet(number).value, partition=number % PARTITIONS)
    assert producer.flush(30) == 0
    on = "//label[.//*[name()='rect']]"
    page.open("/locations/kpipe/sensors/tweets_ingest")
    page.click(on)
    page.sees("^1 run requested$", seconds=120)
    page.turned(f"{on}/input", True)
    page.picture("sensor")
    # The one that is built on the table is computed meanwhile: its automation is on.
    page.sees("^tweets_by_language$", "^Materialized$", path="/assets/tweets?view=lineage&lineageScope=neighbors", seconds=180)
    page.picture("lineage")
    # A run that goes on tells Dagster every 30 s.
    shown = partition(page, "3", f"^{END + MORE_EACH}$", seconds=180)
    assert numbers(shown) == {
        "start_offset": END, "end_offset": END + MORE_EACH, "rows": MORE_EACH, "dead_letters": 0, "gaps": 0
    }  # fmt: skip
    page.open("/locations/kpipe/sensors/tweets_ingest")
    page.turned(f"{on}/input", True)
    page.click(on)
    page.turned(f"{on}/input", False)


def test_the_lineage_shows_topic_table_and_what_is_built_on_it(page: Browser) -> None:
    text = page.sees("^tweets_by_language$", "^Materialized$", path="/assets/tweets?view=lineage&lineageScope=neighbors")
    assert text.count("\n4 partitions\n") == 2
    assert {"100% filled", "kafka", "social", "Kafka", "Spark", "DuckDB"} <= set(text.splitlines())


def test_numbers_are_plotted_over_several_materializations(page: Browser) -> None:
    page.open("/assets/tweets")
    page.click(button("Plots"))
    page.click(button("Events"))
    text = page.sees("^kpipe/start_offset$")
    assert {"dagster/row_count", "kpipe/end_offset", "kpipe/rows", "kpipe/lag", "kpipe/bytes"} <= set(text.splitlines())
    page.picture("plots")
