"""Distinguish paths of files from names of objects, and take names apart: `s3://`, `gs://`, `az://` and `abfss://`."""

from __future__ import annotations

import re

__all__ = ["FORMS", "account", "expected_form", "is_remote", "kind", "split"]

_KEY = r"(/[A-Za-z0-9_.=-]+)*/?"
#: By scheme: kind of the store, form of a name for messages, and pattern of the part before the key.
_STORES = {
    "s3": ("s3", "s3://bucket/key", r"[a-z0-9][a-z0-9.-]+"),
    "gs": ("gs", "gs://bucket/key", r"[a-z0-9][a-z0-9._-]+"),
    "az": ("azure", "az://container/key", r"[a-z0-9][a-z0-9-]+"),
    "abfss": (
        "azure",
        "abfss://container@account.dfs.core.windows.net/key",
        r"[a-z0-9][a-z0-9-]+@[a-z0-9]{3,24}\.dfs\.core\.windows\.net",
    ),
}
_SCHEMES = tuple(f"{scheme}://" for scheme in _STORES)

#: Forms of names, for messages.
FORMS = ", ".join(form for _, form, _ in _STORES.values())


def is_remote(path: object) -> bool:
    """Return whether the name is an object's, not a file's."""
    return str(path).startswith(_SCHEMES)


def kind(uri: str) -> str:
    """Return the kind of an object's store: `s3`, `gs` or `azure`."""
    return _STORES[uri.partition("://")[0]][0]


def account(uri: str) -> str:
    """Return the storage account in an `abfss://` name; empty for other names."""
    return split(uri)[0].partition("@")[2].partition(".")[0]


def expected_form(uri: str) -> str | None:
    """Return the form that the name of a folder of objects does not have; None: the name is valid."""
    scheme, _, rest = uri.partition("://")
    _, form, bucket = _STORES[scheme]
    valid = re.fullmatch(bucket + _KEY, rest) and not {".", ".."} & {*rest.split("/")}
    return None if valid else form


def split(uri: str) -> tuple[str, str]:
    """Split an object's name into bucket and key. A bucket in Azure is a container, with its account where the name has it."""
    bucket, _, key = uri.partition("://")[2].partition("/")
    return bucket, key
