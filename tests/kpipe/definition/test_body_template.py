"""Bodies with places for values."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kpipe.definition.body_template import Template
from tests.cases import each_case


def test_values_stand_where_the_places_are() -> None:
    template = Template.of('{"a": ${a}, "b": [${b c}, "$$", "${"], "a again": ${ a }}')
    assert template.names == ("a", "b c", "a")
    assert json.loads(template.filled({"a": "1", "b c": '{"x":null}'})) == {"a": 1, "b": [{"x": None}, "$", "${"], "a again": 1}


@given(
    st.text(),
    st.recursive(st.none() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)),
)
def test_no_value_changes_what_stands_around_it(text: str, value: object) -> None:
    template = Template.of('{"before": 1, "text": ${text}, "value": ${value}, "after": "\\"x\\\\"}')
    found = json.loads(template.filled({"text": json.dumps(text), "value": json.dumps(value)}))
    assert found == {"before": 1, "text": text, "value": value, "after": '"x\\'}


@each_case(
    ("text", "words"),
    [
        ('{"a": "${a}"}', "inside quotes"), ('{"a": "x ${a} y"}', "inside quotes"),
        ('{"a": "\\"${a}"}', "inside quotes"),
        ("{${a}: 1}", "not JSON"), ("${a}${b}", "not JSON"), ("1${a}", "not JSON"), ('{"a": ${a}', "not JSON"), ("", "not JSON"),
        ('{"a": ${}}', "has no name"), ('{"a": NaN}', "not JSON"), ('{"a": ${b}}, 1', "not JSON"),
    ],
)  # fmt: skip
def test_what_is_no_template_says_why(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Template.of(text)
