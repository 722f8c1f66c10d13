"""Lines in a buffer: counted and found, in C and without it."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from resources import native
from resources.decode.block import Payloads, count_of

# Around the widths of the loops in resources/native/lines.c: 16, 32, and pieces of 127 times 32.
LENGTHS = [*range(140), 4063, 4064, 4065, 4095, 4096, 4097, 8127, 8128, 8129, 100_001]


@pytest.fixture(params=["compiled", "python"])
def either(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    if request.param == "python":
        monkeypatch.setenv("KPIPE_NATIVE", "0")
    native.library.cache_clear()
    if request.param == "compiled" and native.library() is None:
        pytest.skip("no compiler was there when kpipe was installed")
    yield
    native.library.cache_clear()


@pytest.mark.parametrize("alphabet", [b"\n", b"a\n", b"\na\rbcdefgh", b"abcdefghijklmnopqrstuvwxyz\n"])
def test_bytes_are_counted_and_lines_found(either: None, alphabet: bytes) -> None:
    chance = random.Random(len(alphabet))
    for length in LENGTHS:
        text = bytes(chance.choices(alphabet, k=length))
        assert count_of(b"\n", text) == text.count(b"\n")
        assert count_of(b"\n", text, never=b"\r") == (-1 if b"\r" in text else text.count(b"\n"))
        assert Payloads.of_lines(text + b"\n").values == (text + b"\n").split(b"\n")[:-1]


def test_one_byte_that_must_not_be_there_is_found_wherever_it_is(either: None) -> None:
    for length in (1, 31, 32, 33, 4064, 4070):
        for at in {0, length // 2, length - 1}:
            text = bytearray(b"x" * length)
            text[at] = ord("\r")
            assert count_of(b"\n", bytes(text), never=b"\r") == -1
