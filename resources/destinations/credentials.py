"""Resolve the templates of `into.credentials` to secrets, once or for each connection."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from kpipe.definition.references import rotates
from kpipe.errors import CredentialUnavailable, InvalidPipeline
from resources.secret_references import credential
from resources.secrets import Secret

__all__ = ["Rotating", "rotating", "secrets"]


def secrets(given: Mapping[str, str], known: Collection[str]) -> dict[str, Secret]:
    """Resolve the templates of `into.credentials` when a destination is opened.

    Raises:
        InvalidPipeline: a name is not supported, or its variable is not set.
    """
    _check(given, known)
    return {key: _read(key, template) for key, template in given.items()}


def rotating(given: Mapping[str, str], known: Collection[str]) -> Mapping[str, Secret]:
    """Return the secrets of `into.credentials`; those of files and commands are read again at each access.

    Raises:
        InvalidPipeline: as `secrets`, but files and commands are not read yet.
    """
    if not rotates(given.values()):
        return secrets(given, known)
    _check(given, known)
    for key, template in given.items():
        _read(key, template, read=False)
    return Rotating(given)


class Rotating(Mapping[str, Secret]):
    """Secrets that are read at each access, so that a new connection uses new values. Take them at once: `dict(secrets)`."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = dict(given)

    def __getitem__(self, key: str) -> Secret:
        """Read a secret.

        Raises:
            InvalidPipeline, CredentialUnavailable: it cannot be read.
        """
        return _read(key, self._given[key])

    def __iter__(self) -> Iterator[str]:
        return iter(self._given)

    def __len__(self) -> int:
        return len(self._given)


def _check(given: Mapping[str, str], known: Collection[str]) -> None:
    for key in given:
        if key not in known:
            problem = InvalidPipeline(
                f"into.credentials: {key} is not a credential of this destination", f"use {', '.join(known)}"
            )
            raise problem.about("into", "credentials", key)


def _read(key: str, template: str, read: bool = True) -> Secret:
    try:
        return Secret(credential(f"into.credentials: {key}", template, read=read))
    except (InvalidPipeline, CredentialUnavailable) as error:
        error.about("into", "credentials", key)
        raise
