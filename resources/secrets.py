"""Secret values, and masking them in texts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Protocol, runtime_checkable

from kpipe.definition.secret_values import MASK

__all__ = ["MASK", "Confidential", "Secret", "redact", "secrets_in"]


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


def redact(text: str, secrets: Iterable[str]) -> str:
    """Mask every secret, also as part of a JSON text, and escape control characters: the text is safe for log lines."""
    forms = {form for secret in secrets for form in (secret, secret.strip(), json.dumps(secret)[1:-1])}
    for value in sorted(forms - {""}, key=len, reverse=True):
        text = text.replace(value, MASK)
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)
