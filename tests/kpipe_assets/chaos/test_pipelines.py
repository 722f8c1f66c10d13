"""Copies of pipelines with more than one topic, table or lookup: each part of them is copied."""

from __future__ import annotations

import json
from collections.abc import Callable

import duckdb
import pytest
from confluent_kafka import Producer

from kpipe_assets.chaos import campaign
from kpipe_assets.chaos.faults import Fault
from resources.dev_broker.broker import LocalBroker
from tests.kpipe_assets.chaos.conftest import RECORDS, Site
from tests.survival.small import run

pytestmark = [pytest.mark.broker, pytest.mark.chaos]

KILLED = Fault(1, "kill at a failpoint", point="commit.before", nth=3)


@pytest.fixture(autouse=True)
def _one_round(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = iter((False, True))
    monkeypatch.setattr(campaign.Campaign, "is_over", lambda self, _: next(rounds, True))


def test_topics_of_a_pattern(site: Site, chosen: Callable[..., None], kafka_broker: LocalBroker) -> None:
    """One topic has a partition without records, and one appears when the copies are being loaded."""
    producer = Producer({"bootstrap.servers": site.kpipe.brokers})
    for name, partitions in (("a", 1), ("b", 2)):
        kafka_broker.create_topic(f"{site.topic}.{name}", partitions)
        for at in range(RECORDS):
            producer.produce(f"{site.topic}.{name}", json.dumps({"id": at}), partition=0)
    assert producer.flush(60) == 0
    site.define(source={"topic": None, "topic_pattern": rf"^{site.topic}\..*"})
    chosen(KILLED)
    found = site.chaos()
    assert (found["verdict"], found["findings"]) == ("proven", [])
    assert found["window"] == {
        f"{site.topic}.a:0": [0, RECORDS], f"{site.topic}.b:0": [0, RECORDS], f"{site.topic}.b:1": [0, 0],
    }  # fmt: skip
    assert sorted(found["copies"][1]["audits"]) == [f"{site.topic}.a", f"{site.topic}.b"]


def test_tables_with_keys_and_a_lookup_from_the_destination(site: Site, chosen: Callable[..., None]) -> None:
    """The key is the real table's primary key, and the lookup is a table beside it."""
    folder = site.kpipe.home / "data"
    folder.mkdir(parents=True)
    with duckdb.connect(str(folder / "kpipe.duckdb")) as connection:
        connection.execute("CREATE TABLE orders (id BIGINT PRIMARY KEY, name VARCHAR, extra INTEGER)")
        connection.execute("CREATE TABLE names AS SELECT range AS id, 'n' || range AS name FROM range(2000)")
    site.define(
        into={"table": "orders", "on_conflict": "replace"},
        lookups={"who": {"table": "names", "key": "id"}},
        set={"name": "who(id).name"},
        also=[{"table": "texts", "set": {"length": "length(text)"}}],
        errors={"constraint": "dead_letter"},
    )
    assert list(run(site.kpipe.home, "orders"))
    before = (folder / "kpipe.duckdb").read_bytes()
    chosen(KILLED)
    found = site.chaos(keep=True)
    assert (found["verdict"], found["findings"]) == ("proven", [])
    assert "        lookups that copies read from files: who" in site.plan
    assert {copy["not_audited"] for copy in found["copies"]} == {"rows with a key replace and delete each other"}
    name = found["copies"][1]["name"]
    with duckdb.connect(found["copies"][1]["place"], read_only=True) as connection:
        rows = connection.execute(f"SELECT count(*), count(name), count(DISTINCT id) FROM {name}").fetchone()
        assert rows == (2 * RECORDS - 4,) * 3
        assert connection.execute(f"SELECT count(length) FROM {name}_t1").fetchone() == (2 * RECORDS - 4,)
        kinds = dict(
            connection.execute("SELECT column_name, data_type FROM duckdb_columns() WHERE table_name = $1", [name]).fetchall()
        )
        assert kinds["extra"] == "INTEGER", "columns of the real table that no record has"
    assert (folder / "kpipe.duckdb").read_bytes() == before


@pytest.mark.parametrize("kind", ["duckdb", "parquet"])
def test_no_record_gives_a_row(site: Site, chosen: Callable[..., None], kind: str) -> None:
    site.define(where="id < 0", into={"type": kind, "table": "orders"})
    chosen(KILLED)
    found = site.chaos()
    assert (found["verdict"], found["findings"]) == ("proven", [])
    assert {copy["not_audited"] for copy in found["copies"]} == {"no record gave a row"}
    assert [copy["verify"]["dead_letters"] for copy in found["copies"]] == [2, 2]
