"""Parse the response header `Link` (RFC 8288)."""

from __future__ import annotations

import re

__all__ = ["next_link"]

_NAME, _QUOTED, _TOKEN = r'[^\s=;,"]+', r'"(?:[^"\\]|\\.)*"', r'[^\s;,"]+'
_PARAMETER = rf";\s*(?:({_NAME})\s*(?:=\s*(?:({_QUOTED}|{_TOKEN})\s*)?)?)?"
_LINK = re.compile(rf"<([^<>]*)>\s*((?:{_PARAMETER})*)(?:,[\s,]*|$)")
_PARAMETERS = re.compile(_PARAMETER)


def next_link(header: str) -> str:
    """Return the target of the first link whose relations contain `next`; empty if there is none.

    Raises:
        ValueError: the header is not a list of links.
    """
    text = header.strip(" \t,")
    at = 0
    while at < len(text):
        link = _LINK.match(text, at)
        if link is None:
            msg = "not a list of links"
            raise ValueError(msg)
        relations = [value for name, value in _PARAMETERS.findall(link[2]) if name.lower() == "rel"]
        if relations and "next" in relations[0].strip('"').lower().split():  # a second `rel` is ignored
            return link[1]
        at = link.end()
    return ""
