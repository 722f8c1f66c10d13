"""`kpipe run` from the outside: real Kafka, real Spark, real DuckDB."""

from __future__ import annotations

import json
import stat
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

COUNTS = {
    "messages", "rows", "deletes", "dead_letters", "filtered", "gaps", "inserted", "updated", "deleted", "ignored", "bytes",
}  # fmt: skip
KEYS = {"event", "batch", "seq", "ranges", "seconds", "closed_by", *COUNTS}
PROGRAMS = Path(__file__).resolve().parents[3] / "transforms" / "programs"


def records(start: int, end: int) -> list[str]:
    return [json.dumps({"id": n, "name": f"n{n}", "nested": {"even": n % 2 == 0, "list": [n]}}) for n in range(start, end)]


def test_batches_are_bounded_reported_and_exact_and_a_second_run_adds_nothing(kpipe: Any, topic: Any, write: Any) -> None:
    name = topic(3)
    for partition in range(3):
        write(name, records(partition * 1000, partition * 1000 + 250), partition)
    write(name, ["not json", None], 0)
    kpipe.define("plain", name, batch={"max_offsets_per_partition": 100})

    lines = [json.loads(line) for line in kpipe.outside("run", "plain", "--json").stdout.splitlines()]
    assert kpipe.left_behind() == []
    batches, summary = lines[:-1], lines[-1]
    assert [set(line) for line in batches] == [KEYS] * 3
    assert batches[0]["ranges"] == {"0": [0, 100], "1": [0, 100], "2": [0, 100]}
    assert [line["closed_by"] for line in batches] == ["offsets", "offsets", "caught_up"]
    assert summary == {
        **{key: summary[key] for key in ("bytes", "seconds")},
        "event": "summary", "pipeline": "plain", "status": "caught_up", "batches": 3, "messages": 752, "rows": 750,
        "deletes": 0, "dead_letters": 1, "filtered": 1, "gaps": 0, "inserted": 750, "updated": 0, "deleted": 0, "ignored": 0,
        "positions": {"0": 252, "1": 250, "2": 250},
    }  # fmt: skip
    assert kpipe.sql("SELECT count(*), count(DISTINCT id), sum(id), max(nested.list[1]) FROM plain") == [
        (750, 750, sum(sum(range(p * 1000, p * 1000 + 250)) for p in range(3)), 2249)
    ]
    assert kpipe.sql("SELECT _kafka_partition, _kafka_offset FROM plain WHERE id = 1007") == [(1, 7)]

    assert kpipe.json("run", "plain")[-1]["batches"] == 0
    proof = kpipe.json("verify", "plain")[0]
    assert proof["ok"] and not proof["problems"]
    assert (proof["span"], proof["rows"], proof["dead_letters"], proof["filtered"], proof["gaps"]) == (752, 750, 1, 1, 0)
    state = kpipe.json("status", "plain")[0]
    assert (state["state"], state["lag"], state["high"]) == ("stopped", 0, {"0": 252, "1": 250, "2": 250})
    assert state["positions"] == state["high"] and state["last_batch"]["seq"] >= 3 and state["last_error"] is None
    error = kpipe.json("errors", "plain")[0]
    assert (error["load_data_line"], error["partition"], error["offset"]) == ("not json", 0, 250)
    assert "not JSON" in error["error_message"]
    assert len(kpipe.json("batches", "plain", "--limit", "2")) == 2
    assert not list((kpipe.home / "staging").iterdir())


def test_chosen_partitions_a_limit_and_new_fields(kpipe: Any, topic: Any, write: Any) -> None:
    name = topic(4)
    for partition in range(4):
        write(name, records(partition * 100, partition * 100 + 20), partition)
    kpipe.define("part", name, batch={"max_offsets_per_partition": 10})
    first = kpipe.json("run", "part", "--partitions", "0,2-3", "--max-batches", "1")
    assert set(first[0]["ranges"]) == {"0", "2", "3"}
    assert first[-1]["status"] == "limit" and first[-1]["positions"] == {"0": 10, "1": 0, "2": 10, "3": 10}

    write(name, ['{"id": 999, "nested": {"even": true, "list": [], "more": {"deep": "x"}}, "brand_new": 1.5}'], 1)
    assert kpipe.json("run", "part")[-1]["rows"] == 51
    assert kpipe.sql("SELECT brand_new, nested.more.deep FROM part WHERE id = 999") == [(1.5, "x")]
    assert kpipe.sql("SELECT count(*) FROM part") == [(81,)]
    assert kpipe.json("verify", "part")[0]["ok"]


@pytest.mark.parametrize(
    ("program", "transform", "expected"),
    [
        ("upper.sed", {"program": "#!/bin/sh\nexec sed -u 's/name/NAME/'\n"}, [("NAME", 20)]),
        ("odd.awk", {"program": "#!/usr/bin/awk -f\nNR % 2\n", "mode": "filter"}, [("name", 10)]),
        ("twice.sh", {"program": "#!/bin/sh\nexec sed p\n", "mode": "flatmap"}, [("name", 40)]),
    ],
)
def test_programs_of_any_language_in_every_mode(
    kpipe: Any, topic: Any, write: Any, tmp_path: Path, program: str, transform: dict[str, str], expected: list[Any]
) -> None:
    name = topic(1)
    write(name, [json.dumps({"id": n, "name": "x"}) for n in range(20)])
    file = tmp_path / program
    file.write_text(transform["program"])
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    kpipe.define("shaped", name, transform={**transform, "program": str(file)})
    summary = kpipe.json("run", "shaped")[-1]
    assert (summary["messages"], summary["rows"], summary["filtered"]) == (20, expected[0][1], 10 if "odd" in program else 0)
    columns = {row[0] for row in kpipe.sql("SELECT column_name FROM duckdb_columns() WHERE table_name = 'shaped'")}
    assert expected[0][0] in columns
    assert kpipe.json("verify", "shaped")[0]["ok"]


def executable(file: Path, text: str) -> str:
    file.write_text(text)
    file.chmod(0o755)
    return str(file)


def test_programs_that_read_frames_or_envelopes(kpipe: Any, topic: Any, write: Any, tmp_path: Path) -> None:
    name = topic(1)
    write(name, [json.dumps({"id": n, "text": "two\nlines"}, indent=1) for n in range(5)], 0, b"k")
    frames = """#!/usr/bin/env python3
import json, struct, sys
while head := sys.stdin.buffer.read(8):
    record = json.loads(sys.stdin.buffer.read(struct.unpack("@Q", head)[0]))
    print(json.dumps({"id": record["id"], "length": len(record["text"])}))
"""
    kpipe.define("frames", name, transform={"program": executable(tmp_path / "frames.py", frames), "stdin": "length-prefixed"})
    assert kpipe.json("run", "frames")[-1]["rows"] == 5
    assert kpipe.sql("SELECT sum(id), min(length), max(_kafka_offset) FROM frames") == [(10, 9, 4)]

    write(name, [None], 0, b"gone")
    envelopes = """#!/usr/bin/env python3
import json, sys
for line in sys.stdin:
    record = json.loads(line)
    print(json.dumps({"key": record["key"], "at": record["offset"], "null": record["value"] is None}))
"""
    kpipe.define("envelopes", name, transform={"program": executable(tmp_path / "envelopes.py", envelopes), "stdin": "json"})
    assert kpipe.json("run", "envelopes")[-1]["rows"] == 6
    assert kpipe.sql('SELECT key, "at", "null" FROM envelopes WHERE "at" IN (0, 5) ORDER BY 2') == [
        ("k", 0, False),
        ("gone", 5, True),
    ]


def test_a_program_in_an_archive_brings_its_files_and_sees_only_what_it_was_given(
    kpipe: Any, topic: Any, write: Any, tmp_path: Path
) -> None:
    name = topic(2)
    write(name, records(0, 10), 1)
    folder = tmp_path / "kit"
    folder.mkdir()
    (folder / "words.txt").write_text("hello")
    text = """#!/usr/bin/env python3
import json, os, pathlib, sys
word = (pathlib.Path(__file__).parent / "words.txt").read_text()
seen = sorted(name for name in os.environ if name not in ("PATH", "HOME", "LANG", "TMPDIR", "LC_CTYPE"))
for line in sys.stdin:
    print(json.dumps({"word": word, "seen": seen, "args": sys.argv[1:], "part": os.environ["KPIPE_PARTITION"]}))
"""
    executable(folder / "greet.py", text)
    with tarfile.open(tmp_path / "kit.tar.gz", "w:gz") as archive:
        archive.add(folder, "kit")
    kpipe.define(
        "packed", name,
        transform={"archive": str(tmp_path / "kit.tar.gz"), "program": "kit/greet.py", "args": ["-v"], "env": ["GIVEN"]},
    )  # fmt: skip
    assert kpipe.json("run", "packed", GIVEN="yes", NOT_GIVEN="secret")[-1]["rows"] == 10
    (row,) = kpipe.sql("SELECT DISTINCT word, seen, args, part FROM packed")
    names = ["GIVEN", *(f"KPIPE_{x}" for x in ("ATTEMPT", "BATCH", "END_OFFSET", "PARTITION", "START_OFFSET", "TOPIC"))]
    assert row == ("hello", names, ["-v"], "1")


def test_a_program_that_breaks_its_contract_leaves_the_table_alone(kpipe: Any, topic: Any, write: Any, tmp_path: Path) -> None:
    name = topic(1)
    write(name, records(0, 50))
    file = tmp_path / "lossy"
    file.write_text("#!/bin/sh\nexec head -n 7\n")
    file.chmod(0o755)
    kpipe.define("lossy", name, transform={"program": str(file)}, batch={"max_retries": 0})
    done = kpipe("run", "lossy", status=1)
    assert "50 records in, 7 out" in done.stderr and "lossy" not in (done.stdout if "Traceback" in done.stdout else "")
    assert done.stderr.strip().splitlines()[-1].startswith("kpipe: ")
    state = kpipe.json("status", "lossy")[0]
    assert state["state"] == "error" and "50 records in" in state["last_error"] and state["lag"] == 50
    file.write_text("#!/bin/sh\nexec cat\n")
    assert kpipe.json("run", "lossy")[-1]["rows"] == 50
    assert kpipe.json("status", "lossy")[0]["last_error"] is None


def test_the_same_tweets_flattened_by_the_example_program(kpipe: Any, topic: Any, write: Any) -> None:
    from kpipe_assets.example.tweets import tweet

    name = topic(1)
    write(name, [tweet(n).value for n in range(3000)])
    kpipe.define("tweets", name, transform={"program": str(PROGRAMS / "flatten_tweet.py")})
    assert kpipe.json("run", "tweets")[-1]["rows"] == 3000
    assert kpipe.sql("SELECT count(DISTINCT id), count(user_id), count(*) FILTER (lang IS NULL) FROM tweets") == [
        (3000, 3000 - len(range(0, 3000, 211)), 60)
    ]


def test_raw_keeps_bytes_keys_headers_and_tombstones(kpipe: Any, topic: Any, write: Callable[..., int]) -> None:
    name = topic(1)
    write(name, [b"\x00\xff", b"", None], 0, b"k\x00")
    kpipe.define("bytes", name, format={"type": "raw"}, metadata=["partition", "offset", "timestamp", "topic", "key", "headers"])
    kpipe.json("run", "bytes")
    rows = kpipe.sql("SELECT key, value, _kafka_offset, _kafka_topic, _kafka_key, _kafka_headers FROM bytes ORDER BY 3")
    assert rows == [
        (b"k\x00", b"\x00\xff", 0, name, b"k\x00", None),
        (b"k\x00", b"", 1, name, b"k\x00", None),
        (b"k\x00", None, 2, name, b"k\x00", None),
    ]
    assert kpipe.json("verify", "bytes")[0]["ok"]


def test_a_python_object_runs_like_a_file(kpipe: Any, topic: Any, write: Any) -> None:
    from kpipe_assets import KafkaPipeline
    from resources.home import Home

    name = topic(1)
    write(name, records(0, 5))
    made = KafkaPipeline(name="made", source={"brokers": kpipe.brokers, "topic": name}, into={"table": "made"})
    Home(kpipe.home).save(made)
    assert Home(kpipe.home).pipeline("made").to_dict() == made.to_dict()
    assert kpipe.json("run", "made")[-1]["rows"] == 5
