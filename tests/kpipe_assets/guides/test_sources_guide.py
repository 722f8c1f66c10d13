"""docs/how-to/sources.md: its definitions and its statement, with runs that are killed, into a real topic."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.resources.destinations.kafka_place import read_all

pytestmark = [pytest.mark.broker, pytest.mark.spark]
PAGE = (Path(__file__).parents[3] / "docs" / "how-to" / "sources.md").read_text(encoding="utf-8")
YAML = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
SQL = re.findall(r"^```sql\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def placed(text: str, folder: Path, brokers: str, topics: dict[str, str]) -> str:
    """The text of the page with the test's folder, brokers and topics."""
    for name, topic in topics.items():
        text = text.replace(f"topic: {name}", f"topic: {topic}").replace(f"localhost:9092/{name}", f"localhost:9092/{topic}")
    return text.replace("/data", str(folder)).replace("localhost:9092", brokers)


def test_orders_are_written_once_by_runs_that_are_killed(kpipe: Any, tmp_path: Path, brokers: str, topic: Any) -> None:
    target, folder = topic(2), tmp_path / "data"
    (folder / "in").mkdir(parents=True)
    definition = placed(YAML[0], folder, brokers, {"orders": target})
    statement = placed(SQL[0], folder, brokers, {"orders": target})
    kpipe("sql", statement)
    saved = yaml.safe_load((kpipe.home / "pipelines" / "orders_in.yaml").read_text())
    assert saved["type"] == "kpipe_assets.KafkaSource"
    (kpipe.home / "pipelines" / "orders_in.yaml").write_text(definition)
    first = folder / "in" / "a.jsonl"
    first.write_text("".join(json.dumps({"id": number}) + "\n" for number in range(3000)))
    kpipe.outside("run", "orders_in", status=-signal.SIGKILL, KPIPE_FAULT="commit.before:2:kill")
    with first.open("a") as out:
        out.write('{"id": 3000}\nbroken\n')
    (folder / "in" / "b.jsonl").write_text('{"id": 3001}\n{"id": 3002')
    kpipe("run", "orders_in")
    messages = read_all(brokers, target)
    assert sorted(json.loads(message.value())["id"] for message in messages) == list(range(3002))
    assert all(message.key() == b"%d" % json.loads(message.value())["id"] for message in messages)
    (letter,) = read_all(brokers, f"{target}.dead-letters")
    assert dict(letter.headers())["kpipe.topic"] == str(first).encode()
    proof = kpipe.json("verify", "orders_in")[0]
    assert (proof["ok"], proof["rows"], proof["dead_letters"]) == (True, 3002, 1)
    first.write_text('{"id": -1}\n')
    assert f"file {first} was replaced" in kpipe("run", "orders_in", status=3).stderr


def test_visits_have_the_names_of_the_first_line(kpipe: Any, tmp_path: Path, brokers: str, topic: Any) -> None:
    target, folder = topic(1), tmp_path / "data"
    (folder / "visits" / "day").mkdir(parents=True)
    (kpipe.home / "pipelines").mkdir(parents=True, exist_ok=True)
    (kpipe.home / "pipelines" / "visits_in.yaml").write_text(placed(YAML[1], folder, brokers, {"visits": target}))
    (folder / "visits" / "day" / "a.csv").write_text('id,page\n1,"/a,b"\n2,/c\n')
    kpipe("run", "visits_in")
    assert [json.loads(message.value()) for message in read_all(brokers, target)] == [
        {"id": 1, "page": "/a,b"}, {"id": 2, "page": "/c"},
    ]  # fmt: skip
