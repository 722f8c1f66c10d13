"""Kafka, Spark and a receiver of webhooks together, through the command line. All of them are real."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tests.receiver import Got, Receiver

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
    return {**fields, "max_records": 10, "allow_hosts": ["127.0.0.1"], "retry_s": 5, **more}


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
    for path in kpipe.home.rglob("*"):
        data = path.read_bytes() if path.is_file() else b""
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
    run.communicate(timeout=180)
    assert run.returncode == -signal.SIGKILL and len(receiver.got) == 3
    receiver.fault = lambda _: ""
    write(name, orders(60, 65), 0, b"one key")
    said = kpipe("run", "hooks").stderr
    assert "a batch that was on its way is finished first" in said
    assert [one.json[0]["order"]["id"] for one in receiver.got] == [0, 10, 20, 20, 30, 40, 50, 60]
    assert receiver.got[2].key == receiver.got[3].key and receiver.got[2].body == receiver.got[3].body
    assert [offset for _, offset, _ in received(receiver)] == list(range(65))
    assert kpipe.json("verify", "hooks")[0]["ok"]


def test_definitions_that_cannot_be_say_why(offline: Any) -> None:
    for fields, words in (
        ({"url": "http://example.com/"}, "use https"),
        ({"url": "https://example.com/", "body": '{"a": "${a}"}'}, "stands inside of quotes"),
        ({"url": "https://example.com/", "credentials": {"token": "{{ env('NOT_SET_ANYWHERE') }}"}}, "NOT_SET_ANYWHERE"),
    ):
        offline.define("hooks", "t", into={"type": "webhook", "table": "sent", **fields})
        assert words in offline("run", "hooks", status=2).stderr
