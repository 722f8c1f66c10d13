"""What only an operator can decide: exit status 3 until decided, and the decision is in the ledger."""

from __future__ import annotations

import json
import shutil
from typing import Any

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient


def ids(start: int, end: int) -> list[str]:
    return [json.dumps({"id": n}) for n in range(start, end)]


def notes(kpipe: Any) -> list[tuple[str, str]]:
    return kpipe.sql("SELECT kind, note FROM kpipe_commits WHERE kind <> 'batch' ORDER BY seq")


def delete_records(brokers: str, topic: str, before: int) -> None:
    admin = AdminClient({"bootstrap.servers": brokers})
    for future in admin.delete_records([TopicPartition(topic, 0, before)]).values():
        future.result(120)


def test_offsets_lost_to_retention(kpipe: Any, topic: Any, write: Any, brokers: str) -> None:
    name = topic(1)
    write(name, ids(0, 100))
    kpipe.define("lossy", name, batch={"max_offsets_per_partition": 30})
    kpipe("run", "lossy", "--max-batches", "1")
    delete_records(brokers, name, 50)
    for _ in range(2):  # sticky
        done = kpipe("run", "lossy", status=3)
        assert "[30, 50)" in done.stderr and f"{name}/0" in done.stderr
        assert "kpipe run lossy --on-data-loss record" in done.stderr
    assert kpipe.json("status", "lossy")[0]["state"] == "needs_operator"
    assert kpipe.json("run", "lossy", "--on-data-loss", "record")[-1]["rows"] == 50
    assert kpipe.sql("SELECT count(*), min(id), max(id) FROM lossy WHERE id NOT BETWEEN 30 AND 49") == [(80, 0, 99)]
    assert any(kind == "loss" and "[30, 50)" in note for kind, note in notes(kpipe))
    proof = kpipe.json("verify", "lossy")[0]
    assert proof["ok"] and proof["span"] == 80 and proof["partitions"]["0"]["ranges"] == [[0, 30], [50, 100]]
    assert kpipe.json("status", "lossy")[0]["state"] == "stopped"


def test_a_recreated_topic(kpipe: Any, topic: Any, kafka_broker: Any, write: Any) -> None:
    name = topic(1)
    write(name, ids(0, 10))
    kpipe.define("again", name)
    kpipe("run", "again")
    kafka_broker.delete_topic(name)
    kafka_broker.create_topic(name, 1)
    write(name, ids(100, 130))  # more than before: by offsets alone it would look like the same topic, grown
    done = kpipe("run", "again", status=3)
    assert "was recreated" in done.stderr and "--on-new-topic begin" in done.stderr
    assert kpipe.sql("SELECT count(*) FROM again") == [(10,)]
    assert kpipe.json("run", "again", "--on-new-topic", "begin")[-1]["rows"] == 30
    assert kpipe.sql("SELECT count(*), sum(id) FROM again") == [(40, sum(range(10)) + sum(range(100, 130)))]
    assert kpipe.json("verify", "again")[0]["ok"]
    assert kpipe.json("run", "again")[-1]["batches"] == 0


def test_a_destination_that_went_back(kpipe: Any, topic: Any, write: Any) -> None:
    name = topic(1)
    write(name, ids(0, 10))
    kpipe.define("back", name)
    kpipe("run", "back")
    database = kpipe.home / "data" / "kpipe.duckdb"
    shutil.copy(database, kpipe.home / "older")
    write(name, ids(10, 20))
    kpipe("run", "back")
    shutil.copy(kpipe.home / "older", database)
    done = kpipe("run", "back", status=3)
    assert "--on-older-ledger accept" in done.stderr
    assert kpipe.json("verify", "back", status=1)[0]["ok"] is False
    assert kpipe.json("run", "back", "--on-older-ledger", "accept")[-1]["rows"] == 10
    assert kpipe.sql("SELECT count(*), count(DISTINCT id) FROM back") == [(20, 20)]
    assert any(kind == "accept_ledger" for kind, _ in notes(kpipe))

    database.unlink()
    assert kpipe("run", "back", status=3).stderr.count("--on-older-ledger accept") == 1
    assert kpipe.json("run", "back", "--on-older-ledger", "accept")[-1]["rows"] == 20


def test_starts_and_ends(kpipe: Any, topic: Any, write: Any) -> None:
    name = topic(1)
    write(name, ids(0, 50))
    kpipe.define("tail", name, source={"start": "latest"})
    assert kpipe.json("run", "tail")[-1]["batches"] == 0
    kpipe.define("span", name, source={"start": {"0": 7}, "end": {"0": 9}})
    assert kpipe.json("run", "span", "--follow")[-1]["rows"] == 2  # ends by itself: a bounded pipeline is finished
    assert kpipe.sql("SELECT list(id ORDER BY id) FROM span") == [([7, 8],)]
    kpipe.define("since", name, source={"start": {"timestamp": "2001-01-01T00:00:00Z"}, "end": "latest"})
    assert kpipe.json("run", "since")[-1]["rows"] == 50
    write(name, ids(50, 53))
    assert kpipe.json("run", "tail")[-1]["rows"] == 3
    assert kpipe.json("run", "since")[-1]["rows"] == 0
    assert all(kpipe.json("verify", pipeline)[0]["ok"] for pipeline in ("tail", "span", "since"))


def test_schema_policies(kpipe: Any, topic: Any, write: Any) -> None:
    name = topic(1)
    write(name, ids(0, 3))
    kpipe.define("strict", name, schema="fail")
    kpipe.define("blind", name, schema="ignore")
    kpipe("run", "strict")
    kpipe("run", "blind")
    write(name, ['{"id": 3, "more": 1}'])
    assert "more BIGINT" in kpipe("run", "strict", status=1).stderr
    assert kpipe.json("run", "blind")[-1]["rows"] == 1
    assert kpipe.sql("SELECT count(*) FROM strict") == [(3,)]
    assert kpipe.sql("SELECT count(*) FROM duckdb_columns() WHERE table_name = 'blind' AND column_name = 'more'") == [(0,)]


def test_dead_letter_policies(kpipe: Any, topic: Any, write: Any) -> None:
    name = topic(1)
    write(name, [*ids(0, 3), "junk", "more junk"])
    kpipe.define("strict", name, errors={"parse": "fail"})
    done = kpipe("run", "strict", status=1)
    assert f"{name}/0 offset 3" in done.stderr and "not JSON" in done.stderr
    kpipe.define("few", name, errors={"max_dead_letters": 1})
    assert "errors.max_dead_letters: expected at most 1 dead letters" in kpipe("run", "few", status=1).stderr
    kpipe.define("skip", name, errors={"parse": "skip"})
    summary = kpipe.json("run", "skip")[-1]
    assert (summary["rows"], summary["dead_letters"], summary["filtered"]) == (3, 0, 2)
    assert kpipe.json("verify", "skip")[0]["ok"]


def test_an_empty_batch_moves_the_ledger(kpipe: Any, topic: Any, write: Any) -> None:
    name = topic(1)
    write(name, [None] * 20)
    kpipe.define("nothing", name, columns={"id": "BIGINT"})
    assert kpipe.json("run", "nothing")[-1]["filtered"] == 20
    assert kpipe.json("status", "nothing")[0]["lag"] == 0
    assert kpipe.json("verify", "nothing")[0]["ok"]
