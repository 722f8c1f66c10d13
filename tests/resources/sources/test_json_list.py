"""The list in a response of an HTTP API: its items as they are written."""

from __future__ import annotations

import pytest

from resources.sources.http.json_list import items, member, parsed


def test_a_number_of_very_many_digits_is_left_to_the_decoder_of_records() -> None:
    """Such a record made the whole page invalid, on each retry."""
    text = '{"data": [{"id": 1, "n": ' + "7" * 5_000 + '}, {"id": 2.50}]}'
    assert parsed(text)["data"][0]["id"] == 1
    found = items(text, "data")
    assert [raw for raw, _ in found] == [text[10 : text.index("}") + 1], '{"id": 2.50}']
    assert [value["id"] for _, value in found] == [1, 2.5]


@pytest.mark.parametrize("text", ['{"data": [{"id": 1}], "data": [{"id": 2}]}', '{"a": {}, "data": [], "data": 5}'])
def test_a_list_that_is_there_twice_is_refused(text: str) -> None:
    """The records of the second one were left out."""
    with pytest.raises(ValueError, match="expected one member data, found two"):
        items(text, "data")


@pytest.mark.parametrize("text", ["\ufeff[]", "[", "{} {}", ""])
def test_other_texts_are_not_json(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parsed(text)


def test_names_may_contain_dots() -> None:
    """Such a link seemed to be absent, and the list ended after its first page."""
    document = {"@odata.nextLink": "u", "a": {"b.c": 1, "b": {"d": 2}}, "a.b": 3}
    paths = {"@odata.nextLink": "u", "a.b.c": None, "a.b": 3, "a": document["a"]}
    assert {path: member(document, path) for path in paths} == paths
    assert member({"a": document["a"]}, "a.b.c") == 1 and member({"a": document["a"]}, "a.b.d") == 2
    text = '{"odata.value": [{"x": 1}], "a": {"b.c": [{"x": 2}]}}'
    assert [items(text, path)[0][0] for path in ("odata.value", "a.b.c")] == ['{"x": 1}', '{"x": 2}']
