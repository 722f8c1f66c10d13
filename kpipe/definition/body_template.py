"""Bodies of requests: JSON with places for values, `{"id": ${id}, "all": ${*}}`. No code, and no text inside of quotes.

A place stands where a JSON value may stand, and is filled with a whole JSON value. So what a record holds can never end a
string, add a member or be taken for anything but data.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["ROW", "Template"]

#: Name of the place for the whole row.
ROW = "*"
_PLACE = re.compile(r"\$(?:\$|\{([^{}]*)\})")


@dataclass(frozen=True)
class Template:
    """A body with places.

    Attributes:
        texts: what stands around the places; one more than there are places.
        names: of the places, in order; one may come more than once.
    """

    texts: tuple[str, ...]
    names: tuple[str, ...]

    @classmethod
    def of(cls, text: str) -> Template:
        """The template that a text is. `$$` is a dollar sign.

        Raises:
            ValueError: it is not JSON around its places, or a place stands inside of quotes or is the name of a member.
        """
        texts, names, at = [""], [], 0
        for match in _PLACE.finditer(text):
            texts[-1] += text[at : match.start()]
            at = match.end()
            if match[1] is None:
                texts[-1] += "$"
                continue
            if not match[1].strip():
                raise ValueError("${} names nothing; write ${COLUMN}, or ${*} for all columns")
            if _inside_quotes("".join(texts)):
                raise ValueError(f"{match[0]} stands inside of quotes; leave them out: a text brings its own")
            texts.append("")
            names.append(match[1].strip())
        texts[-1] += text[at:]
        made = cls(tuple(texts), tuple(names))
        try:
            for value in ("0", '""'):  # the one is no member's name, the other ends no number
                json.loads(made.filled(dict.fromkeys(names, value)), parse_constant=_no_constant)
        except ValueError as error:
            raise ValueError(f"with values in its places it is no JSON: {error}") from None
        return made

    def filled(self, values: Mapping[str, str]) -> str:
        """The body with these values, each of them JSON."""
        parts = [self.texts[0]]
        for name, text in zip(self.names, self.texts[1:], strict=True):
            parts += (values[name], text)
        return "".join(parts)


def _inside_quotes(text: str) -> bool:
    """Whether a text of JSON ends within a string."""
    return bool(re.sub(r'"(?:[^"\\]|\\.)*"', "", text, flags=re.DOTALL).count('"'))


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no value of JSON")
