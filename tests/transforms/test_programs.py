"""The examples do what their first lines say."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transforms import Program, TransformRun, check_counts, length_prefixed, lines, resolve, run

PROGRAMS = Path(__file__).resolve().parents[2] / "transforms" / "programs"

TWEET = {
    "id": 1,
    "created_at": "2026-11-20T10:00:00.123Z",
    "text": "größer\nals 𝄞",
    "lang": "de",
    "user": {
        "id": 7,
        "name": "Ada",
        "screen_name": "ada",
        "followers_count": 3,
        "verified": True,
        "location": "London",
    },
    "entities": {"hashtags": [{"text": "kafka"}, {"text": "spark"}], "mentions": [{"id": 1}, {"id": 2}]},
    "coordinates": {"lat": 51.5, "lon": -0.1},
    "retweet_count": 4,
    "favorite_count": 5,
    "reply_to": None,
}
FLAT = {
    "id": 1,
    "created_at": "2026-11-20T10:00:00.123Z",
    "lang": "de",
    "text": "größer\nals 𝄞",
    "user_id": 7,
    "user_name": "ada",
    "followers": 3,
    "verified": True,
    "location": "London",
    "hashtags": ["kafka", "spark"],
    "mentions": 2,
    "lat": 51.5,
    "lon": -0.1,
    "retweets": 4,
    "favorites": 5,
    "reply_to": None,
}


def output(program: str | Path, data: bytes, *args: str) -> list[bytes]:
    path = PROGRAMS / program
    resolve(path)
    out = b"".join(run(Program((str(path), *args), idle_timeout_s=600), [data] if data else []))
    assert out == b"" or out.endswith(b"\n")
    return out.split(b"\n")[:-1]


def flatten(*values: bytes) -> list[bytes]:
    return output("flatten_tweet.py", lines(values))


def test_a_tweet_becomes_flat() -> None:
    for ascii_only in (True, False):
        (row,) = flatten(json.dumps(TWEET, ensure_ascii=ascii_only).encode())
        assert json.loads(row) == FLAT
        assert list(json.loads(row)) == list(FLAT)


@pytest.mark.parametrize("value", [None, "missing", 7, "nonsense", [], {}])
def test_what_is_missing_null_or_nonsense_is_null(value: object) -> None:
    tweet = {**TWEET, "user": value, "entities": value, "coordinates": value}
    if value == "missing":
        for name in ("user", "entities", "coordinates"):
            del tweet[name]
    (row,) = map(json.loads, flatten(json.dumps(tweet).encode()))
    empty = dict.fromkeys(("user_id", "user_name", "followers", "verified", "location", "lat", "lon"))
    assert row == {**FLAT, **empty, "hashtags": [], "mentions": 0}


def test_what_is_no_tweet_goes_through_unchanged() -> None:
    odd = [b"no json", b"", b"[1]", b"3", b"\xff\xfe", b'{"id":1', b'{"id":1} {"id":2}', b"null", b"[" * 100_000]
    assert flatten(*odd) == odd


def test_white_space_and_half_surrogates_are_json() -> None:
    rows = flatten(b'  {"id": 1}  \r', rb'{"id":2,"text":"\ud800"}')
    assert [json.loads(row)["id"] for row in rows] == [1, 2]
    assert json.loads(rows[1])["text"] == "\ud800"


def test_lines_longer_and_shorter_than_a_read_keep_their_order() -> None:
    values = [json.dumps({"id": number, "text": "x" * (number % 7 * 400_000)}).encode() for number in range(30)]
    assert [json.loads(row)["id"] for row in flatten(*values)] == list(range(30))


@settings(max_examples=15, deadline=None)
@given(st.lists(st.binary(max_size=30).filter(lambda value: b"\n" not in value), max_size=30))
def test_one_line_out_for_each_line_in(values: list[bytes]) -> None:
    transform = TransformRun(Program((str(PROGRAMS / "flatten_tweet.py"),), idle_timeout_s=600), [lines(values)])
    check_counts("map", len(values), b"".join(transform).count(b"\n"))


def test_awk_that_drops_every_other_record_is_caught_in_map_mode() -> None:
    transform = TransformRun(Program(("awk", "NR % 2")), [b"1\n2\n3\n4\n"])
    assert b"".join(transform) == b"1\n3\n"
    check_counts("filter", 4, 2)
    with pytest.raises(Exception, match="4 records in, 2 out"):
        check_counts("map", 4, 2)


def test_errors_only_in_awk() -> None:
    log = '1.2.3.4 - - [20/Nov/2026:10:00:00 +0000] "GET / HTTP/1.1" {} 12'
    values = [log.format(status).encode() for status in (200, 500, 404, 503)]
    assert output("errors_only.awk", lines(values)) == [values[1], values[3]]


def test_mask_email_in_sed() -> None:
    assert output("mask_email.sed", b"from ada.l+x@example.co.uk to b@c\n\n") == [b"from ***@*** to b@c", b""]


def test_split_words_in_sh() -> None:
    rows = output("split_words.sh", b"Hello, world\nagain\n")
    assert [json.loads(row)["word"] for row in rows] == ["hello", "world", "again"]


def test_read_frames_takes_newlines_and_any_bytes() -> None:
    values = [b"a\nb", b"", bytes(range(256))]
    rows = [json.loads(row) for row in output("read_frames.py", length_prefixed(values))]
    assert rows == [{"bytes": len(value), "sha256": hashlib.sha256(value).hexdigest()} for value in values]


def test_read_frames_refuses_a_torn_frame() -> None:
    with pytest.raises(Exception, match=r"exited with status 1.*input ends inside a value"):
        output("read_frames.py", length_prefixed([b"abc"])[:-1])


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_count_words_in_c(tmp_path: Path) -> None:
    binary = tmp_path / "count_words"
    command = ["cc", "-O2", "-Wall", "-Wextra", "-Werror", "-o", str(binary), str(PROGRAMS / "count_words.c")]
    subprocess.run(command, check=True)
    rows = output(binary, b"one two\n\n  three\tfour\r\n" + b"x" * 3_000_000 + b"\n")
    assert [(row["words"], row["bytes"]) for row in map(json.loads, rows)] == [(2, 7), (0, 0), (2, 13), (1, 3_000_000)]


@pytest.mark.skipif(shutil.which("go") is None, reason="no Go compiler")
def test_keep_lang_in_go(tmp_path: Path) -> None:
    binary = tmp_path / "keep_lang"
    subprocess.run(["go", "build", "-o", str(binary), str(PROGRAMS / "keep_lang.go")], check=True, cwd=tmp_path)
    values = [b'{"lang":"en"}', b'{"lang":"fr"}', b'{"lang":null}', b"no json", b'{"lang":"de"}']
    assert output(binary, lines(values), "en", "de") == [values[0], values[3], values[4]]
