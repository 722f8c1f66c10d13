"""Scripts in the form of the vendor's quick start and demonstrations load their topics: real Kafka, Spark and DuckDB.

The pages are those of tests/kpipe/sql/corpus.py; names and brokers are ours, and so are the programs.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.commandline import Kpipe

pytestmark = [pytest.mark.broker, pytest.mark.spark]

_LENGTHS = """#!/usr/bin/env python3
import re, struct, sys
while head := sys.stdin.buffer.read(8):
    record = sys.stdin.buffer.read(struct.unpack("L", head)[0]).decode()
    number, user, body = record.split("\\t")
    for name in re.findall(r"@(\\w+)", body):
        sys.stdout.write(f"{number}\\t{user}\\t{name}\\n")
"""


def test_the_quick_start(kpipe: Kpipe, topic: Any, write: Any) -> None:
    name = topic(1)
    write(name, ["the quick", "brown fox", "jumped over", "the lazy dog"])
    said = kpipe("sql", f"""
        CREATE DATABASE quickstart_kafka; USE quickstart_kafka; CREATE TABLE messages (id text);
        CREATE PIPELINE `quickstart_kafka` AS LOAD DATA KAFKA '{kpipe.brokers}/{name}' INTO TABLE `messages`;
        TEST PIPELINE quickstart_kafka LIMIT 1; START PIPELINE quickstart_kafka FOREGROUND LIMIT 1 BATCHES;
    """).stdout  # fmt: skip
    assert "1 offset of 1 partition: 1 row" in said
    found = kpipe.sql("SELECT id FROM messages ORDER BY id")
    assert found == [("brown fox",), ("jumped over",), ("the lazy dog",), ("the quick",)]


def test_tables_with_computed_and_numbered_columns(kpipe: Kpipe, topic: Any, write: Any) -> None:
    """The demonstration of tweets: keys, REPLACE, and columns that the table makes of the JSON of another."""
    name = topic(1)
    tweets = [
        {"text": "first", "retweet_count": 1},
        {"text": "second", "retweet_count": 5},
        {"text": "again", "retweet_count": 7},
    ]
    write(name, [f"{number}\t{json.dumps(tweet)}" for number, tweet in zip((1, 2, 1), tweets, strict=True)])
    kpipe("sql", f"""
        CREATE TABLE `tweets` (`id` BIGINT PRIMARY KEY, `tweet` JSON, `text` AS `tweet`::$text PERSISTED TEXT,
            `retweet_count` AS `tweet`::%retweet_count PERSISTED INT);
        CREATE PIPELINE `tweets` AS LOAD DATA KAFKA "{kpipe.brokers}/{name}" REPLACE INTO TABLE `tweets`
            FIELDS TERMINATED BY "\\t" (`id`, `tweet`);
        CREATE TABLE log (n BIGINT(20) NOT NULL AUTO_INCREMENT, id INT(11) NOT NULL, kind VARCHAR(9) NOT NULL DEFAULT 'tweet',
            loaded DATETIME DEFAULT CURRENT_TIMESTAMP, PRIMARY KEY (n), SHARD KEY (id), KEY (kind) USING HASH);
        CREATE PIPELINE log AS LOAD DATA KAFKA "{kpipe.brokers}/{name}" INTO TABLE log FIELDS TERMINATED BY "\\t" (id, @tweet);
        START PIPELINE `tweets` FOREGROUND; START PIPELINE log FOREGROUND;
    """)  # fmt: skip
    assert kpipe.sql("SELECT id, text, retweet_count FROM tweets ORDER BY id") == [(1, "again", 7), (2, "second", 5)]
    assert kpipe.sql("SELECT n, id, kind, loaded IS NOT NULL FROM log ORDER BY n") == [
        (1, 1, "tweet", True), (2, 2, "tweet", True), (3, 1, "tweet", True),
    ]  # fmt: skip
    assert all(proof["ok"] for proof in (kpipe.json("verify", name)[0] for name in ("tweets", "log")))


def test_a_program_for_singlestore_is_recognized_then_declared(kpipe: Kpipe, topic: Any, write: Any, tmp_path: Path) -> None:
    """The talk of 2016: a program that reads each record behind its length."""
    name, program = topic(1), tmp_path / "transform.py"
    program.write_text(_LENGTHS)
    program.chmod(0o755)
    write(name, ["1\tada\thi @bob and @eve", "2\tbob\tnothing", "3\teve\t@ada"])
    text = f"""CREATE OR REPLACE PIPELINE links AS LOAD DATA KAFKA "{kpipe.brokers}/{name}"
        WITH TRANSFORM ("file://{program}", "", ""){{}} INTO TABLE tweet_links FIELDS TERMINATED BY "\\t" (id, username, ref);"""
    kpipe("sql", "CREATE TABLE tweet_links (id TEXT, username TEXT, ref TEXT, SHARD KEY (username)); " + text.format(""))
    for statement in ("TEST PIPELINE links", "START PIPELINE links FOREGROUND"):
        said = kpipe("sql", statement, status=1).stderr
        assert "expected length-prefixed records, found lines" in said and "STDIN LENGTH_PREFIXED" in said
    kpipe("sql", text.format(" STDIN LENGTH_PREFIXED") + "START PIPELINE links FOREGROUND")
    found = kpipe.sql("SELECT id, username, ref FROM tweet_links ORDER BY ALL")
    assert found == [("1", "ada", "bob"), ("1", "ada", "eve"), ("3", "eve", "ada")]


def test_a_whole_record_goes_into_a_json_column(kpipe: Kpipe, topic: Any, write: Any) -> None:
    name = topic(1)
    write(name, ['{"id": 1, "user": {"name": "ada"}}', '{"id": 2}'])
    kpipe("sql", f"""CREATE PIPELINE whole AS LOAD DATA KAFKA '{kpipe.brokers}/{name}' INTO TABLE whole FORMAT JSON (j <- %);
        START PIPELINE whole FOREGROUND""")  # fmt: skip
    assert kpipe.sql("SELECT typeof(j), j->>'$.id' FROM whole ORDER BY ALL") == [("JSON", "1"), ("JSON", "2")]
