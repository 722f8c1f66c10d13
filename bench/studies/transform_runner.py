"""Measure the transform runner: start time of a process, throughput of `cat` and of the tweet example.

python bench/studies/transform_runner.py [MEGABYTES]
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from transforms import Program, TransformRun, lines  # noqa: E402

BLOCK_BYTES = 4 << 20
STARTS = 50


def tweet(number: int) -> bytes:
    return json.dumps(
        {
            "id": 1_800_000_000_000_000_000 + number,
            "created_at": "2026-11-20T10:00:00.123Z",
            "text": f"tweet {number} über #kafka and #spark, with enough words to be as long as tweets usually are",
            "lang": ("en", "de", None)[number % 3],
            "user": {
                "id": number % 9973,
                "name": "Ada Lovelace",
                "screen_name": f"ada_{number % 9973}",
                "followers_count": number % 5000,
                "verified": number % 7 == 0,
                "location": "London",
            },
            "entities": {"hashtags": [{"text": "kafka"}, {"text": "spark"}], "mentions": [{"id": 1}]},
            "coordinates": {"lat": 51.5, "lon": -0.1} if number % 10 == 0 else None,
            "retweet_count": number % 100,
            "favorite_count": number % 1000,
            "reply_to": None,
        },
        ensure_ascii=False,
    ).encode()


def throughput(program: Program, block: bytes, megabytes: int) -> float:
    """Return MB/s of input."""
    blocks = max(1, megabytes * 1_000_000 // len(block))
    run = TransformRun(program, (block for _ in range(blocks)))
    start = time.perf_counter()
    for _ in run:
        pass
    return run.report.bytes_in / (time.perf_counter() - start) / 1e6


def median_ms(action: object, times: int = STARTS) -> float:
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        action()  # type: ignore[operator]
        taken.append(time.perf_counter() - start)
    return statistics.median(taken) * 1e3


def main() -> None:
    megabytes = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    one = tweet(1)
    block = lines([tweet(number) for number in range(BLOCK_BYTES // len(one))])
    flatten = Program((str(ROOT / "transforms/programs/flatten_tweet.py"),))
    cat = Program(("cat",))
    print(f"start and end of `true`, bare      {median_ms(lambda: subprocess.run(['true'], check=True)):8.1f} ms")
    print(f"start and end of `true`, by kpipe  {median_ms(lambda: list(TransformRun(Program(('true',)), ()))):8.1f} ms")
    print(f"start and end of flatten_tweet.py  {median_ms(lambda: list(TransformRun(flatten, ()))):8.1f} ms")
    print(f"cat                                {throughput(cat, block, megabytes):8.0f} MB/s")
    rate = throughput(flatten, block, megabytes // 5)
    print(f"flatten_tweet.py                   {rate:8.0f} MB/s = {rate * 1e6 / len(one):,.0f} tweets/s")
    values = block.split(b"\n")[:-1]
    taken = median_ms(lambda: lines(values, json=True), 10)
    print(f"framing as lines                   {len(block) / taken / 1e3:8.0f} MB/s")


if __name__ == "__main__":
    main()
