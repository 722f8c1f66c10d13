"""Secret values, and masking them in texts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Protocol, runtime_checkable
from urllib.parse import unquote, unquote_plus

from kpipe.definition.secret_values import MASK, is_secret_parameter

__all__ = ["MASK", "Confidential", "Secret", "redact", "secret_forms", "secrets_in"]

_SHORTEST = 4  # characters of a text that is masked
_LONG = 8  # characters from which a word without digits may be a secret


class Secret(str):
    """String that is masked in its own repr and in that of a container (dict, dataclass, exception).

    Clients can use it as a string; `str()` and `format()` return the value. Pickles as itself.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return f"'{MASK}'"


@runtime_checkable
class Confidential(Protocol):
    """A setting that contains secrets."""

    def secrets(self) -> tuple[str, ...]:
        """Return values that must never be shown."""


def secrets_in(config: Mapping[str, object]) -> tuple[str, ...]:
    """Return the secret values of client settings, for `redact`."""
    plain = [str(value) for value in config.values() if isinstance(value, Secret)]
    return (*plain, *(item for value in config.values() if isinstance(value, Confidential) for item in value.secrets()))


def secret_forms(target: str) -> tuple[str, ...]:
    """Return the texts of a secret path, or query, that a server may repeat: all of it, its parts, and these without escapes.

    A part is a name between slashes, or the value of a parameter. It counts if it has a digit or 8 characters, or if the
    parameter's name suggests a secret: words such as `api`, `hooks` and `json` stay legible in messages.

    Args:
        target: path and query of a URL, or `?` and a query.
    """
    path, _, query = target.partition("?")
    parts = [part for part in path.split("/") if _may_be_secret(part)]
    for parameter in re.split("[&;]", query):
        name, equals, value = parameter.partition("=")
        if is_secret_parameter(unquote(name)) or _may_be_secret(value):
            parts.append(value)
        if not equals and _may_be_secret(name):
            parts.append(name)
    texts = [form for text in (target, path, query, *parts) for form in (text, unquote(text), unquote_plus(text))]
    return tuple(dict.fromkeys(text for text in texts if len(text) >= _SHORTEST))


def _may_be_secret(part: str) -> bool:
    return len(part) >= _LONG or any(sign.isdigit() for sign in part)


def redact(text: str, secrets: Iterable[str]) -> str:
    """Mask every secret, also as part of a JSON text, and escape control characters: the text is safe for log lines."""
    forms = {form for secret in secrets for form in (secret, secret.strip(), json.dumps(secret)[1:-1])}
    for value in sorted(forms - {""}, key=len, reverse=True):
        text = text.replace(value, MASK)
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)
