"""The header `Link`, as servers write it."""

from __future__ import annotations

import pytest

from resources.sources.http.link_header import next_link


@pytest.mark.parametrize(
    "header",
    [
        "<u>; rel=next",
        '<u>; rel="next"',
        '<u>;rel="next last"',
        "<u> ; REL = NEXT ; x",
        '<u>; title="a, b"; rel="next"',
        '<u>; title="a; rel=\\"prev\\""; rel="next"; rel="prev"',
        '<a>; rel="prev", <u>; rel="https://example.com/x next";',
        "<a>; rel=prev, , <u>; title*=UTF-8'de'n%c3%a4chstes; rel=next,",
    ],
)
def test_the_next_page_is_found(header: str) -> None:
    assert next_link(header) == "u"


@pytest.mark.parametrize("header", ["", "<a>; rel=prev", '<a>; title="<u>; rel=next"', "<a>; rel=prev; rel=next", "<a>; rel"])
def test_the_last_page_has_no_next_one(header: str) -> None:
    assert next_link(header) == ""


@pytest.mark.parametrize("header", ["u; rel=next", '<u>; rel="next', "<u> rel=next", "<u>; rel=a b", "<u" + "; x= " * 5_000])
def test_another_text_is_refused(header: str) -> None:
    with pytest.raises(ValueError, match="not a list of links"):
        next_link(header)
