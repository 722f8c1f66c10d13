"""Kafka, Spark and a receiver of webhooks together, through the command line. All of them are real."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import duckdb
import pytest

from kpipe_assets.assets.table_asset import table_asset
from kpipe_assets.assets.table_checks import table_checks
from kpipe_assets.assets.topic_asset import topic_spec
from kpipe_assets.dagster_resources import KafkaResource
from resources.home import Home
from tests.commandline import Kpipe, contents
from tests.kpipe_assets.dying import Destinations, Spark
from tests.patience import looks
from tests.receiver import Got, Receiver
from tests.survival.small import in_worker

pytestmark = pytest.mark.spark
SECRET, TOKEN = "whsec_" + base64.b64encode(b"canary" * 6).decode(), "canary-token-of-the-receiver"


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    monkeypatch.setenv("HOOK_TOKEN", TOKEN)
    made = Receiver()
    yield made
    made.stop()


def into(receiver: Receiver, **more: Any) -> dict[str, Any]:
    credentials = {"signing_secret": "{{ env('HOOK_SECRET') }}", "token": "{{ env('HOOK_TOKEN') }}"}
    body = '{"at": [${_kafka_partition}, ${_kafka_offset}], "order": ${*}}'
    fields = {"type": "webhook", "url": receiver.url, "table": "sent", "credentials": credentials, "body": body}
    return {**fields, "max_records": 10, "allow_hosts": ["127.0.0.1"], "retry_s": 60, **more}


def orders(start: int, end: int) -> list[str]:
    return [json.dumps({"id": n, "text": f'an "order" {n} 🎉', "more": {"n": [n, None]}}) for n in range(start, end)]


def received(receiver: Receiver) -> list[tuple[int, int, int]]:
    return [(*one["at"], one["order"]["id"]) for got in receiver.taken for one in got.json]


def test_the_command_line(kpipe: Any, topic: Any, write: Any, receiver: Receiver) -> None:
    name = topic(2)
    for key in (b"a", b"b", b"c"):
        write(name, orders(0, 30), 0, key)
    write(name, orders(100, 130), 1)
    write(name, ["not json", None], 1)
    answers = iter(["", "lost", "", "500", "cut", "429:0", "reset"])
    receiver.fault = lambda _: next(answers, "")
    kpipe.define(
        "hooks", name, into=into(receiver), batch={"max_offsets_per_partition": 50}, errors={"constraint": "dead_letter"}
    )
    assert kpipe.json("run", "hooks")[-1]["rows"] == 120
    found = received(receiver)
    assert sorted(found) == sorted([(0, n, n % 30) for n in range(90)] + [(1, n, 100 + n) for n in range(30)])
    for key in range(3):  # each key was written as a run of 30
        own = [offset for partition, offset, _ in found if partition == 0 and offset // 30 == key]
        assert own == sorted(own)
    first = receiver.got[0]
    assert first.json[0]["order"]["text"].startswith('an "order" ') and first.headers["authorization"] == f"Bearer {TOKEN}"
    content = f"{first.headers['webhook-id']}.{first.headers['webhook-timestamp']}.".encode() + first.body
    signed = base64.b64encode(hmac.new(base64.b64decode(SECRET[6:]), content, hashlib.sha256).digest()).decode()
    assert first.headers["webhook-signature"] == f"v1,{signed}"

    proof = kpipe.json("verify", "hooks")[0]
    assert proof["ok"] and (proof["rows"], proof["dead_letters"], proof["filtered"]) == (120, 1, 1)
    assert kpipe.json("run", "hooks")[-1]["batches"] == 0
    assert kpipe.sql("SELECT count(*), count(DISTINCT request), min(status), max(status) FROM sent") == [
        (120, len(receiver.taken), 200, 200)
    ]
    shown = kpipe("status", "hooks").stdout + kpipe("batches", "hooks").stdout
    assert "hooks" in shown
    for path, data in contents(kpipe.home):
        assert SECRET.encode() not in data and TOKEN.encode() not in data and SECRET[6:].encode() not in data, path
    # What the receiver refuses is kept whole, and said.
    write(name, orders(500, 503), 1)
    receiver.fault = lambda _: "422"
    line = kpipe.json("run", "hooks")[-1]
    assert (line["rows"], line["dead_letters"]) == (0, 3)
    error = kpipe.json("errors", "hooks")[0]
    assert "HTTP 422" in error["error_message"] and json.loads(error["load_data_line"])["id"] >= 500
    assert kpipe.json("verify", "hooks")[0]["ok"]


def test_killed_in_the_middle_of_a_batch(kpipe: Any, topic: Any, write: Any, receiver: Receiver) -> None:
    """The receiver kills the run that talks to it. The next one sends the rest of that batch first, without reading it again."""
    name = topic(1)
    write(name, orders(0, 60), 0, b"one key")
    kpipe.define("hooks", name, into=into(receiver), batch={"max_offsets_per_partition": 40})
    run = kpipe.start("run", "hooks", HOOK_SECRET=SECRET, HOOK_TOKEN=TOKEN)

    def fault(_: Got) -> str:
        if len(receiver.got) == 2:
            os.killpg(run.pid, signal.SIGKILL)
            return "lost"
        return ""

    receiver.fault = fault
    run.communicate(timeout=600)
    assert run.returncode == -signal.SIGKILL
    assert any(len(receiver.got) == 3 for _ in looks(300)), "the receiver notes what it got after the kill"
    receiver.fault = lambda _: ""
    write(name, orders(60, 65), 0, b"one key")
    said = kpipe("run", "hooks").stderr
    assert "finishing the batch that an earlier run began to send" in said
    assert [one.json[0]["order"]["id"] for one in receiver.got] == [0, 10, 20, 20, 30, 40, 50, 60]
    assert receiver.got[2].key == receiver.got[3].key and receiver.got[2].body == receiver.got[3].body
    assert [offset for _, offset, _ in received(receiver)] == list(range(65))
    assert kpipe.json("verify", "hooks")[0]["ok"]


def test_in_dagster(brokers: str, topic: Any, write: Any, receiver: Receiver, tmp_path: Path) -> None:
    """Materialized; stopped by a password that is wrong; finished by the next run; told once; proven by its checks.

    Spark's place a stand-in takes, which calls the same tasks.
    """
    kpipe = Kpipe(tmp_path / "home", brokers)
    name = topic(2)
    for partition in range(2):
        write(name, [*orders(partition * 100, partition * 100 + 30), "not json"], partition, b"one key")
    kpipe.define("hooks", name, into=into(receiver), batch={"max_offsets_per_partition": 20, "max_retries": 0})
    home = Home.at(kpipe.home)
    pipeline = home.pipeline("hooks")
    resources = {"kafka": KafkaResource(), "spark": Spark(home), "destinations": Destinations(home)}

    with in_worker(), dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions(f"kafka/{name}", ["0", "1"])

        def run() -> dg.ExecuteInProcessResult:
            return dg.materialize(
                [topic_spec(pipeline), table_asset(pipeline, home, "v1")],
                resources=resources,
                instance=instance,
                tags={"dagster/asset_partition_range_start": "0", "dagster/asset_partition_range_end": "1"},
                raise_on_error=False,
            )

        def shown() -> dict[str, int]:
            """Rows that all events together speak of, by partition."""
            found = instance.fetch_materializations(dg.AssetKey("sent"), limit=1000).records
            events = [record.asset_materialization for record in found]
            sums = Counter[str]()
            for event in filter(None, events):
                sums[str(event.partition)] += int(event.metadata["kpipe/rows"].value)
            return dict(sums)

        # In the middle of the first batch the receiver knows the token no more: a part of it is sent.
        receiver.fault = lambda _: "401" if len(receiver.got) >= 3 else ""
        failed = run()
        assert not failed.success
        (failure,) = [event for event in failed.all_events if event.event_type_value == "STEP_FAILURE"]
        assert "401" in str(failure.event_specific_data) and receiver.taken and TOKEN not in str(failed.all_events)
        receiver.fault = lambda _: ""
        done = run()
        assert done.success
        ends = {
            event.partition: event.metadata["kpipe/end_offset"].value for event in done.asset_materializations_for_node("sent")
        }
        assert ends == {"0": 31, "1": 31} and shown() == {"0": 30, "1": 30}
        found = received(receiver)
        assert sorted(found) == [(partition, n, partition * 100 + n) for partition in range(2) for n in range(30)]
        for partition in range(2):
            offsets = [offset for number, offset, _ in found if number == partition]
            assert offsets == sorted(offsets)
        assert run().success and shown() == {"0": 30, "1": 30} and len(received(receiver)) == 60

        def check() -> dict[str, dg.AssetCheckEvaluation]:
            asked = dg.AssetSelection.all_asset_checks()
            told = dg.materialize([table_checks(pipeline, home)], resources=resources, instance=instance, selection=asked)
            return {item.check_name: item for item in told.get_asset_check_evaluations()}

        checks = check()
        assert {item for item, evaluation in checks.items() if not evaluation.passed} == {"dead_letters"}  # 2 of 62
        assert checks["complete"].metadata["kpipe/rows"].value == 60
        with duckdb.connect(str(kpipe.home / "data" / "kpipe.duckdb")) as ledger:  # a receipt is gone
            ledger.execute("DELETE FROM sent WHERE _kafka_partition = 1 AND _kafka_offset = 7")
        assert "found 29 in the table" in (check()["complete"].description or "")


def test_dead_letters_are_not_sent_again(kpipe: Any, topic: Any, write: Any, receiver: Receiver) -> None:
    """They would come behind what was sent since, and the order of a key is what a webhook keeps: refused, with the reason."""
    name = topic(1)
    write(name, orders(0, 2), 0, b"one key")
    receiver.faults = ["422"]
    kpipe.define("hooks", name, into=into(receiver, max_records=1), errors={"constraint": "dead_letter"})
    kpipe("run", "hooks")
    said = kpipe("errors", "hooks", "--retry", status=2).stderr
    assert "dead letters cannot be sent again" in said and "order" in said and "produce the fixed records to the topic" in said
    assert [one.json["order"]["id"] for one in receiver.got] == [0, 1]


def test_definitions_that_cannot_be_say_why(offline: Any) -> None:
    for fields, words in (
        ({"url": "http://example.com/"}, "use https"),
        ({"url": "https://example.com/", "body": '{"a": "${a}"}'}, "is inside quotes"),
        ({"url": "https://example.com/", "credentials": {"token": "{{ env('NOT_SET_ANYWHERE') }}"}}, "NOT_SET_ANYWHERE"),
    ):
        offline.define("hooks", "t", into={"type": "webhook", "table": "sent", **fields})
        assert words in offline("run", "hooks", status=2).stderr


def test_a_batch_is_given_up_on_the_command_line(kpipe: Any, topic: Any, write: Any, receiver: Receiver) -> None:
    """A lost answer, then a password that is wrong: the batch waits, its offsets are not moved, and it can be given up."""
    name = topic(1)
    write(name, orders(0, 30), 0, b"one key")
    kpipe.define("hooks", name, into=into(receiver, retry_s=0), batch={"max_retries": 0})
    receiver.faults = ["lost", "401"]
    kpipe("run", "hooks", status=1)
    assert "--on-unfinished-batch skip" in kpipe("run", "hooks", status=1).stderr
    kpipe.define("hooks", name, into=into(receiver, max_records=7), batch={"max_retries": 0})
    refused = kpipe("sql", "ALTER PIPELINE hooks SET OFFSETS LATEST", status=1).stderr
    assert "is not finished, and the receiver may have taken part of it" in refused
    proof = kpipe.json("verify", "hooks")[0]
    assert proof["ok"] and proof["rows"] == 0 and "given_up" not in proof
    write(name, orders(30, 35), 0, b"one key")
    assert kpipe.json("run", "hooks", "--on-unfinished-batch", "skip")[-1]["rows"] == 5
    assert [one.json[0]["order"]["id"] for one in receiver.got] == [0, 0, 30]
    said = kpipe("verify", "hooks")
    assert "NOT proven: the receiver may have taken rows of batches that were given up" in said.stderr
    assert "no offset twice" not in said.stdout
    ((note,),) = kpipe.sql("SELECT note FROM kpipe_commits WHERE kind = 'give_up'")
    assert "[0, 30); the receiver may have taken part of it; " in note and "command line" in note
