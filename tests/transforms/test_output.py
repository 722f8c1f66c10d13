"""Blocks of lines, counts, environment."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kpipe.errors import InvalidPipeline, TransformFailed
from transforms import check_counts, environment, line_blocks


@given(st.lists(st.text(alphabet="ab\n", max_size=12).map(str.encode), max_size=20), st.integers(1, 30))
def test_blocks_join_to_the_output_and_end_at_lines(chunks: list[bytes], block_bytes: int) -> None:
    blocks = list(line_blocks(chunks, block_bytes=block_bytes))
    assert b"".join(blocks) == b"".join(chunks)
    assert all(block.endswith(b"\n") for block in blocks[:-1])
    assert all(blocks)


@pytest.mark.parametrize("chunk", [b"x" * 10, b"x\n" + b"x" * 9, b"x" * 11 + b"\n"])
def test_a_line_without_end_is_stopped(chunk: bytes) -> None:
    with pytest.raises(TransformFailed, match="line of more than 20 bytes"):
        list(line_blocks([chunk] * 4 if b"\n" not in chunk else [b"x" * 12, b"x" * 12, chunk], max_line_bytes=20))


@pytest.mark.parametrize(
    ("mode", "records", "lines", "good"),
    [
        ("map", 3, 3, True),
        ("map", 3, 2, False),
        ("map", 3, 4, False),
        ("filter", 3, 0, True),
        ("filter", 3, 4, False),
        ("flatmap", 3, 100, True),
    ],
)
def test_counts_by_mode(mode: str, records: int, lines: int, good: bool) -> None:
    if good:
        check_counts(mode, records, lines)
    else:
        with pytest.raises(TransformFailed, match=rf"mode {mode} \(t/0 \[1,4\)\): 3 records in, {lines} out"):
            check_counts(mode, records, lines, "t/0 [1,4)")


def test_an_unknown_mode_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match="no such mode"):
        check_counts("reduce", 1, 1)


def test_the_environment_names_the_range_and_passes_what_is_listed() -> None:
    assert environment("t", 3, 120, 240, "b1", 0, ["TOKEN"], {"TOKEN": "x", "OTHER": "y"}) == {
        "KPIPE_TOPIC": "t",
        "KPIPE_PARTITION": "3",
        "KPIPE_START_OFFSET": "120",
        "KPIPE_END_OFFSET": "240",
        "KPIPE_BATCH": "b1",
        "KPIPE_ATTEMPT": "0",
        "TOKEN": "x",
    }


@pytest.mark.parametrize("name", ["MISSING", "KPIPE_TOPIC", "A=B", ""])
def test_a_variable_that_cannot_be_passed(name: str) -> None:
    with pytest.raises(InvalidPipeline):
        environment("t", 0, 0, 1, "b", 0, [name], {"KPIPE_TOPIC": "mine"})
