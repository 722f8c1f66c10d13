"""Templates of request bodies: JSON with placeholders, `{"id": ${id}, "all": ${*}}`. No code, and no text inside quotes.

A placeholder takes the place of a JSON value, and is replaced by a complete JSON value. So the content of a record can never
end a string, add a member or become anything but data.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["ROW", "Template"]

#: Name of the placeholder for the whole row.
ROW = "*"
_PLACE = re.compile(r"\$(?:\$|\{([^{}]*)\})")


@dataclass(frozen=True)
class Template:
    """A body with placeholders.

    Attributes:
        texts: texts around the placeholders; one more than the placeholders.
        names: names of the placeholders, in order, with duplicates.
    """

    texts: tuple[str, ...]
    names: tuple[str, ...]

    @classmethod
    def of(cls, text: str) -> Template:
        """Parse a template. `$$` is a dollar sign.

        Raises:
            ValueError: the text is not JSON, or a placeholder is inside quotes or is the name of a member.
        """
        texts, names, at = [""], [], 0
        for match in _PLACE.finditer(text):
            texts[-1] += text[at : match.start()]
            at = match.end()
            if match[1] is None:
                texts[-1] += "$"
                continue
            if not match[1].strip():
                raise ValueError("placeholder ${} has no name: expected ${COLUMN}, or ${*} for all columns")
            if _inside_quotes("".join(texts)):
                raise ValueError(f"{match[0]} is inside quotes: remove them, as a text value has its own")
            texts.append("")
            names.append(match[1].strip())
        texts[-1] += text[at:]
        made = cls(tuple(texts), tuple(names))
        try:
            for value in ("0", '""'):  # a number cannot be a member's name, a text cannot continue a number
                json.loads(made.filled(dict.fromkeys(names, value)), parse_constant=_no_constant)
        except ValueError as error:
            raise ValueError(f"not JSON with values for its placeholders: {error}") from None
        return made

    def filled(self, values: Mapping[str, str]) -> str:
        """Return the body with these values, each of them JSON."""
        parts = [self.texts[0]]
        for name, text in zip(self.names, self.texts[1:], strict=True):
            parts += (values[name], text)
        return "".join(parts)


def _inside_quotes(text: str) -> bool:
    """Return whether a JSON text ends inside a string."""
    return bool(re.sub(r'"(?:[^"\\]|\\.)*"', "", text, flags=re.DOTALL).count('"'))


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not a JSON value")
