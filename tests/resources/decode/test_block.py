"""Lines in a buffer: counted and found, in C and without it."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pyarrow as pa
import pytest

from kpipe.schema.columns import Columns
from resources import native
from resources.decode.block import Decoded, Payloads, count_of

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


def test_a_part_of_a_decoded_block_has_all_of_its_payloads() -> None:
    """Payloads: 0 two rows, 1 filtered, 2 a reject, 3 a delete, 4 one row, 5 refused, 6 a delete, 7 a stop and a row."""
    kept, deleted = [0, 0, 4, 7], [3, 6]
    whole = Decoded(
        pa.table({"n": [0, 1, 2, 3]}), 4, kept, [(2, "bad")], Columns.of({"new": "DATE"}), [(5, "large")],
        deleted, pa.table({"k": [30, 60]}), [(7, "why", "hint")],
    )  # fmt: skip
    for start in range(9):
        for end in range(start, 9):
            part = whole.part(start, end)
            assert part.kept == [at - start for at in kept if start <= at < end] and part.rows == len(part.kept)
            assert part.table.column("n").to_pylist() == [n for n, at in enumerate(kept) if start <= at < end]
            assert part.deleted == [at - start for at in deleted if start <= at < end]
            assert part.keys is not None and part.keys.column("k").to_pylist() == [(at + start) * 10 for at in part.deleted]
            assert part.rejects == ([(2 - start, "bad")] if start <= 2 < end else [])
            assert part.refused == ([(5 - start, "large")] if start <= 5 < end else [])
            assert part.stops == ([(7 - start, "why", "hint")] if start <= 7 < end else [])
            assert part.new_columns == whole.new_columns
    plain = Decoded(pa.table({"n": [0, 1, 2]}), 3).part(1, 3)
    assert (plain.table.column("n").to_pylist(), plain.rows, plain.kept, plain.keys) == ([1, 2], 2, None, None)
