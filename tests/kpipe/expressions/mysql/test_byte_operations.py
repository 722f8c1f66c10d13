"""Operations on bytes: LIKE is compared with a regular expression, and long patterns are not remembered."""

from __future__ import annotations

import re
from itertools import product

from kpipe.expressions.mysql.functions import byte_operations
from kpipe.expressions.mysql.functions.byte_operations import call


def like(text: bytes, pattern: bytes, escape: bytes = b"\\") -> bool:
    return call("like", [text.hex(), pattern.hex(), escape.hex()]) == "1"


def test_like_finds_what_a_regular_expression_finds() -> None:
    texts = [bytes(signs) for length in range(6) for signs in product(b"a\xff", repeat=length)]
    for length in range(6):
        for signs in product(b"a\xff%_", repeat=length):
            pattern = b"".join({37: b".*", 95: b"."}.get(sign, re.escape(bytes([sign]))) for sign in signs)
            expected = re.compile(pattern, re.DOTALL)
            for text in texts:
                assert like(text, bytes(signs)) == bool(expected.fullmatch(text)), (text, bytes(signs))


def test_an_escaped_sign_is_itself() -> None:
    assert like(b"a%", b"a\\%") and not like(b"ab", b"a\\%") and like(b"a_b", b"%\\_%") and like(b"a\\", b"a\\")
    assert like(b"%", b"|%", b"|") and like(b"x\\", b"x\\", b"")


def test_a_long_pattern_takes_time_by_its_length_and_is_not_remembered() -> None:
    cached = byte_operations._parts.cached
    cached.cache_clear()
    text = b"a" * 1_000_000
    assert like(text, text) and like(text, b"%" + text[1:]) and like(text, b"_" * len(text)) and like(text, b"%" * len(text))
    assert cached.cache_info().currsize == 0
    assert like(text, b"a%") and cached.cache_info().currsize == 1


def test_the_last_parts_are_counted_from_the_right() -> None:
    """A delimiter may overlap itself."""
    assert call("substring_index", ["ffffff", "ffff", "-1"]) == ""
    assert call("substring_index", ["ffffff", "ffff", "1"]) == ""
    assert call("substring_index", ["612c622c63", "2c", "-2"]) == "622c63"
    assert call("substring_index", ["612c622c63", "2c", str(2**63 - 1)]) == "612c622c63"
    assert call("substring_index", ["612c622c63", "2c", str(-(2**63))]) == "612c622c63"
