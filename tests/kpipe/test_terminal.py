"""Text from outside on its way to a terminal."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from kpipe.errors import KpipeError
from kpipe.terminal import as_json, plain, plain_lines
from tests.cases import each_case

HOSTILE = [
    "\x1b[31m", "\x1b]0;title\x07", "\x9b31m", "\x7f", "\r", "\x00", "\u202e", "\u2066", "\u200f", "\u200b", "\ufeff", "\u2028",
    "\u2029", "\x85", "\ud800", "\U000e0001",
]  # fmt: skip


@each_case("text", HOSTILE)
def test_what_cannot_be_printed_is_an_escape(text: str) -> None:
    assert plain(f"a{text}b").isprintable() and plain(f"a{text}b") != f"a{text}b"
    assert plain_lines(f"a\n{text}").split("\n")[0] == "a" and plain_lines(text).replace("\n", "").isprintable()
    assert as_json({text: [text]}).isprintable() and json.loads(as_json({text: [text]})) == {text: [text]}
    assert str(KpipeError(f"record {text}", f"hint {text}")).isprintable()


@given(
    st.recursive(
        st.none() | st.integers() | st.text(st.characters()), lambda one: st.lists(one) | st.dictionaries(st.text(), one)
    )
)
def test_json_is_the_same_value_to_a_parser(value: object) -> None:
    text = as_json(value)
    assert text.isprintable() and json.loads(text) == value


def test_what_can_be_printed_stays() -> None:
    assert plain("Grüße, 日本 🎉 \\n") == "Grüße, 日本 🎉 \\n" and as_json({"a": "日本 🎉"}) == '{"a": "日本 🎉"}'
