"""Tweets for the demo, reproducible and with the variety of real topics.

Record i is a function of i alone, so a recreated topic has the same records. They contain several scripts and emoji, null
and missing fields, nested objects, records that are not JSON, tombstones, keys, headers and event times.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass

__all__ = ["PARTITIONS", "Tweet", "tweet"]

PARTITIONS = 4
# 2026-11-01T00:00:00Z in ms; one tweet each 37 ms from there.
_FIRST_MS, _STEP_MS = 1_793_491_200_000, 37
_WORDS = (
    ["the", "data", "arrived", "late", "again", "coffee", "first", "offsets", "are", "exclusive", "ship", "it"],
    ["données", "été", "café", "déjà", "vu", "où", "ça"],
    ["データ", "昨日", "届いた", "です", "寿司", "東京"],
    ["данные", "сегодня", "опять", "пришли", "вовремя"],
    ["بيانات", "اليوم", "وصلت", "أخيرا"],
    ["डेटा", "आज", "आया", "चाय"],
)
_LANGUAGES = ("en", "fr", "ja", "ru", "ar", "hi")
_EMOJI = ("🚀", "🎉", "👩🏽‍💻", "🐘", "🌧️", "🏳️‍🌈", "")
_PLACES = ("Basel", "São Paulo", "Kraków", "東京", "Nairobi", None)
# Primes: these records fall on all partitions.
_NOT_JSON, _TOMBSTONE = 9_973, 49_999
_BROKEN = (b"GET / HTTP/1.1", b'{"id": 12, "text": "cut off', b"\xff\xfe\x00not text", b"[1, 2, 3]", b"")


@dataclass(frozen=True)
class Tweet:
    """A Kafka record.

    Attributes:
        partition: its Kafka partition.
        key: id of the user.
        value: the tweet as JSON, invalid bytes, or None for a tombstone.
        timestamp_ms: create time, ms since 1970 UTC.
        headers: name and value.
    """

    partition: int
    key: bytes
    value: bytes | None
    timestamp_ms: int
    headers: list[tuple[str, str | bytes | None]]


def tweet(number: int) -> Tweet:
    """Return the record of a number, from 0."""
    chance = random.Random(number)
    user = chance.randrange(1, 20_000)
    return Tweet(
        partition=number % PARTITIONS,
        key=str(user).encode(),
        value=_value(number, user, chance),
        timestamp_ms=_FIRST_MS + number * _STEP_MS,
        headers=[("source", b"demo"), ("trace", f"{chance.getrandbits(64):016x}".encode())],
    )


def _value(number: int, user: int, chance: random.Random) -> bytes | None:
    if number % _NOT_JSON == _NOT_JSON - 1:
        return _BROKEN[number // _NOT_JSON % len(_BROKEN)]
    if number % _TOMBSTONE == _TOMBSTONE - 1:
        return None
    language = chance.choices(range(len(_LANGUAGES)), (8, 2, 3, 1, 1, 1))[0]
    seconds, ms = divmod(number * _STEP_MS, 1000)
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    content: dict[str, object] = {
        "id": 1_700_000_000_000_000_000 + number,
        "created_at": f"2026-11-{1 + hours // 24:02}T{hours % 24:02}:{minute:02}:{second:02}.{ms:03}Z",
        "text": " ".join([*chance.choices(_WORDS[language], k=chance.randrange(3, 14)), chance.choice(_EMOJI)]).strip(),
        "lang": _LANGUAGES[language] if number % 50 else None,
        "retweet_count": int(chance.paretovariate(1.2)) - 1,
        "favorite_count": int(chance.paretovariate(1.1)) - 1,
        "reply_to": 1_700_000_000_000_000_000 + chance.randrange(number) if number and not number % 3 else None,
    }
    if number % 211:  # a few have no user at all
        content["user"] = {
            "id": user,
            "name": f"user {user}",
            "screen_name": f"u{user}",
            "followers_count": int(chance.paretovariate(0.9)) if user % 17 else None,
            "verified": user % 100 == 0,
            "location": chance.choice(_PLACES),
        }
    if number % 4:
        tags = chance.sample(("kafka", "spark", "duckdb", "dagster", "東京", "café"), chance.randrange(3))
        content["entities"] = {
            "hashtags": [{"text": tag} for tag in tags],
            "mentions": [{"id": chance.randrange(1, 20_000)} for _ in range(chance.randrange(3))],
        }
    if not number % 5:
        content["coordinates"] = {"lat": round(chance.uniform(-60, 70), 5), "lon": round(chance.uniform(-180, 180), 5)}
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()
