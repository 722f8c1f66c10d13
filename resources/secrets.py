"""Values that must not be shown, and how they are taken out of texts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

__all__ = ["MASK", "Secret", "redact", "secrets_in"]

MASK = "***"


class Secret(str):
    """A string that its own repr does not show, nor does the repr of whatever holds it (dict, dataclass, exception).

    To clients it is a plain string; `str()` and `format()` give the value. Pickles as itself.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return f"'{MASK}'"


def secrets_in(config: Mapping[str, object]) -> tuple[str, ...]:
    """The secret values of client settings, for `redact`."""
    return tuple(str(value) for value in config.values() if isinstance(value, Secret))


def redact(text: str, secrets: Iterable[str]) -> str:
    """The text with every secret masked and control characters escaped: safe for a log line or a message."""
    for value in sorted({s for secret in secrets for s in (secret, secret.strip())} - {""}, key=len, reverse=True):
        text = text.replace(value, MASK)
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)
