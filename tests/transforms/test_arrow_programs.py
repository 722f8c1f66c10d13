"""The examples with `stdin: arrow` write what their first lines say."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from kpipe.topics import PartitionId, TopicId
from resources.decode.arrow.ipc_stream import Batches
from resources.kafka.record_block import RecordBlock
from resources.spark.task.arrow_input import RecordStream
from tests.transforms.test_programs import FLAT, PROGRAMS, TWEET
from transforms import Program, TransformRun, resolve

SOURCE = PartitionId(TopicId("c", "i", "t"), 0)


def output(program: str | Path, *blocks: Sequence[bytes | None]) -> list[dict[str, object]]:
    """Rows that a program writes for blocks of values; their offsets count from 0."""
    path = PROGRAMS / program
    resolve(path)
    stream, start, parts = RecordStream(SOURCE, False), 0, []
    for values in blocks:
        held = RecordBlock.of(range(start, start + len(values)), [0] * len(values), values)
        parts += list(stream.framed(held))
        start += len(values)
    run = TransformRun(Program((str(path),), line_output=False, idle_timeout_s=600), [*parts, stream.end()])
    return [row for batch in Batches(run) for row in batch.to_pylist()]


def needs(library: str) -> None:
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed")


def test_identity_with_pyarrow() -> None:
    (row,) = output("arrow_identity.py", [b"\xff"])
    assert (row["key"], row["value"], row["headers"], row["partition"], row["offset"]) == (None, b"\xff", [], 0, 0)


def test_tweets_become_flat_with_duckdb() -> None:
    values = [json.dumps({**TWEET, "id": at, "more": [1]}, indent=at % 2 or None).encode() for at in range(4)]
    rows = output("arrow_flatten_tweet.py", values[:3], values[3:])
    assert rows == [{**FLAT, "id": at} for at in range(4)]
    assert list(rows[0]) == list(FLAT)


def test_a_value_that_is_no_tweet_is_a_row_of_nulls() -> None:
    tweet = json.dumps(TWEET).encode()
    odd: list[bytes | None] = [tweet, b"no json", None, b"", b"[1]", b'{"id":1} {"id":2}', b'{"id":"x"}', b"\xff", tweet]
    rows = output("arrow_flatten_tweet.py", odd)
    assert [row["id"] for row in rows] == [1, *[None] * 7, 1]
    assert rows[0] == rows[-1] == FLAT


def test_missing_parts_are_null() -> None:
    (row,) = output("arrow_flatten_tweet.py", [b'{"id": 5, "user": null}'])
    assert row == {**dict.fromkeys(FLAT), "id": 5, "hashtags": [], "mentions": 0}
    assert output("arrow_flatten_tweet.py") == []


def test_words_with_duckdb() -> None:
    rows = output("arrow_words_duckdb.py", [b"Hello, world", None], [b"", b"again"])
    assert rows == [
        {"offset": 0, "number": 1, "word": "hello"}, {"offset": 0, "number": 2, "word": "world"},
        {"offset": 3, "number": 1, "word": "again"},
    ]  # fmt: skip
    assert output("arrow_words_duckdb.py") == []


def test_large_orders_with_polars() -> None:
    needs("polars")
    values = [json.dumps({"id": at, "amount": amount}).encode() for at, amount in enumerate((99.5, 100.5, None, 250))]
    rows = output("arrow_large_orders_polars.py", values[:2], values[2:])
    assert rows == [{"offset": 1, "id": 1, "amount": 100.5}, {"offset": 3, "id": 3, "amount": 250.0}]
    assert output("arrow_large_orders_polars.py") == []


def test_prices_with_pandas() -> None:
    needs("pandas")
    values = [json.dumps({"id": at, "net": at * 10}).encode() for at in range(3)]
    assert output("arrow_price_pandas.py", values) == [{"id": at, "gross": round(at * 11.9, 2)} for at in range(3)]


@pytest.mark.chaos  # Go's proxy must answer, and the build takes a minute of CPU
def test_lengths_in_go(tmp_path: Path) -> None:
    """Built with the library that the program names, from Go's proxy."""
    go = shutil.which("go") or pytest.skip("no Go compiler")
    shutil.copy(PROGRAMS / "arrow_lengths.go", tmp_path / "main.go")
    (library,) = set(re.findall(r"github\.com/apache/arrow-go/v\d+", (tmp_path / "main.go").read_text()))
    for command in (("mod", "init", "lengths"), ("get", f"{library}@v18.8.0"), ("mod", "tidy"), ("build", "-o", "lengths")):
        done = subprocess.run(
            [go, *command], cwd=tmp_path, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=1800
        )
        if done.returncode and "dial tcp" in done.stderr:
            pytest.skip(f"{library} cannot be fetched: {done.stderr.splitlines()[-1]}")
        assert done.returncode == 0, done.stderr
    rows = output(tmp_path / "lengths", [b"abc", None], [b"", b"\xff" * 70_000])
    assert rows == [{"bytes": 3}, {"bytes": None}, {"bytes": 0}, {"bytes": 70_000}]


def test_every_program_here_is_an_example_above() -> None:
    text = Path(__file__).read_text()
    assert {path.name for path in PROGRAMS.glob("arrow_*")} == set(re.findall(r'"(arrow_\w+\.\w+)"', text))
