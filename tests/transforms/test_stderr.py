"""The tail of stderr: bounded, redacted, safe to print (faults C10, D6)."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kpipe.errors import TransformFailed
from transforms import Program, TransformRun
from transforms.stderr import Tail, escape

SECRET = "hunter2-c4n4ry"


def test_a_flood_is_drained_and_capped() -> None:
    program = Program(
        ("sh", "-c", "head -c 30000000 /dev/zero | tr '\\0' 'e' >&2; echo the end >&2; cat"), stderr_tail_bytes=1000
    )
    transform = TransformRun(program, [b"1\n"])
    assert b"".join(transform) == b"1\n"
    assert transform.report.stderr_bytes == 30_000_008
    assert len(transform.report.stderr) <= 1001
    assert transform.report.stderr.endswith("the end\n")


def test_a_secret_is_in_no_message() -> None:
    text = f"echo connecting with {SECRET} >&2; printf '%s' {SECRET} >&2; exit 1"
    program = Program(("sh", "-c", text), env={"PASSWORD": SECRET}, secrets=(SECRET,))
    transform = TransformRun(program, [])
    with pytest.raises(TransformFailed) as caught:
        list(transform)
    assert "connecting with ***" in caught.value.what
    for said in (str(caught.value), repr(caught.value), transform.report.stderr):
        assert SECRET not in said
    assert SECRET not in repr(Program(("cat",), env={"PASSWORD": SECRET}, secrets=(SECRET,)))


def test_a_secret_that_comes_in_pieces_and_in_colour_is_in_no_message() -> None:
    text = (
        "import os, sys, time\n"
        f"for byte in b'\\x1b[31m{SECRET}\\x1b[0m and {SECRET}{SECRET}\\n':\n"
        "    os.write(2, bytes([byte]))\n"
        "    time.sleep(0.002)\n"
        "sys.exit(1)\n"
    )
    transform = TransformRun(Program((sys.executable, "-c", text), secrets=(SECRET,)), [])
    with pytest.raises(TransformFailed) as caught:
        list(transform)
    assert caught.value.what.endswith(r"stderr: \x1b[31m***\x1b[0m and ***")
    assert not any(part in transform.report.stderr for part in (SECRET, SECRET[:4], SECRET[-4:]))


def test_a_flood_of_one_line_with_secrets_in_it_is_capped_and_shows_none() -> None:
    # The last one is cut in the middle.
    text = f"while :; do printf '%s' '{'x' * 50}{SECRET}{'y' * 7}'; done | head -c 3000023 >&2; exit 1"
    transform = TransformRun(Program(("sh", "-c", text), secrets=(SECRET,), stderr_tail_bytes=1000), [])
    with pytest.raises(TransformFailed) as caught:
        list(transform)
    assert transform.report.stderr_bytes == 3_000_023
    assert len(caught.value.what) < 1000
    for said in (caught.value.what, transform.report.stderr):
        kept = said.partition("stderr: ")[2] or said
        assert set(kept.replace("***", "").strip()) <= {"x", "y"}, kept[-200:]


def test_control_characters_are_spelled_out() -> None:
    program = Program(("printf", "x"), line_output=False)
    assert list(TransformRun(program, [])) == [b"x"]
    program = Program(("sh", "-c", r"printf '\033[31mred\033[0m\r\nINFO forged\342\200\256\377\n' >&2; exit 1"))
    with pytest.raises(TransformFailed) as caught:
        list(TransformRun(program, []))
    assert caught.value.what.endswith(r"stderr: \x1b[31mred\x1b[0m | INFO forged\u202e\xff")
    assert caught.value.what.isprintable()


def test_only_the_last_lines_are_in_the_message() -> None:
    tail = Tail(65536)
    tail.add(b"".join(b"line %d\n" % number for number in range(100)))
    assert tail.last() == "line 95 | line 96 | line 97 | line 98 | line 99"
    assert tail.lines()[0] == "line 0"


def test_a_key_of_several_lines_is_found_in_each_of_them() -> None:
    tail = Tail(1000, ["-----BEGIN-----\nAAAABBBB\nCCCCDDDD\n-----END-----"])
    tail.add(b"key: CCCCDDDD and AAAABBBB\n")
    assert tail.text() == "key: *** and ***\n"


@given(
    before=st.integers(0, 60),
    after=st.integers(0, 60),
    limit=st.integers(1, 40),
    cuts=st.lists(st.integers(1, 30), max_size=8),
)
def test_no_part_of_a_secret_is_shown_wherever_it_is_cut(before: int, after: int, limit: int, cuts: list[int]) -> None:
    secret = "0123456789"
    data = b"." * before + secret.encode() + b"." * after
    tail = Tail(limit, [secret])
    for size in [*cuts, len(data)]:
        tail.add(data[:size])
        data = data[size:]
    assert not any(character.isdigit() for character in tail.text())
    assert len(tail._kept) <= 2 * limit + len(secret)


@given(st.integers(0, 9), st.text("ab", max_size=5))
def test_a_secret_that_was_torn_by_the_programs_end_is_not_shown(written: int, before: str) -> None:
    tail = Tail(1000, ["0123456789"])
    tail.add(before.encode() + b"0123456789"[:written])
    assert tail.text().strip() == before + ("***" if written >= 4 else "0123"[:written])


@given(st.text())
def test_escaped_text_prints(text: str) -> None:
    assert escape(text).isprintable()
