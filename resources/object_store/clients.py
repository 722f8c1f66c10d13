"""Open a client of an object store by the scheme of a name. A client's library is loaded with its first use."""

from __future__ import annotations

import os
from functools import lru_cache

from resources.object_store.config import ADDRESSES, StoreAccess
from resources.object_store.store import Store
from resources.object_store.uri import account, kind
from resources.secrets import Secret

__all__ = ["client", "forget", "load", "store", "use"]

_given: dict[str, StoreAccess] = {}  # set by `use`, by kind


def store(uri: str, secrets: tuple[tuple[str, Secret], ...] = ()) -> Store:
    """Return this process's client for the store of a name and these credentials.

    Without credentials: those set by `use`, or the default chain of the client's library.
    """
    of = kind(uri)
    return _opened(of, account(uri), secrets, tuple(os.environ.get(name) for name in ADDRESSES[of]))


def use(access: StoreAccess | None) -> None:
    """Set the default credentials of this process's clients. None: the default chain of the client's library."""
    wanted = {} if access is None else {access.kind: access}
    if wanted != _given:
        _given.clear()
        _given.update(wanted)
        forget()


def forget() -> None:
    """Create new clients afterwards, as credentials of the environment have changed. Open connections are not closed."""
    _opened.cache_clear()


@lru_cache(maxsize=16)
def _opened(of: str, name: str, secrets: tuple[tuple[str, Secret], ...], address: tuple[str | None, ...]) -> Store:
    del address  # of the environment: a client keeps its address
    default = _given.get(of)
    return client(StoreAccess(None, "", secrets, of) if secrets or default is None else default, name)


def client(access: StoreAccess, name: str = "") -> Store:
    """Create a client.

    Args:
        access: the kind of store, and its settings.
        name: storage account of an object's name, for Azure.

    Raises:
        StoreFailed: the credentials are incomplete.
    """
    secrets = dict(access.secrets)
    if access.kind == "gs":
        from resources.object_store.gcs import GcsStore

        return GcsStore(secrets, access.endpoint)
    if access.kind == "azure":
        from resources.object_store.azure import AzureStore

        return AzureStore(secrets, access.endpoint, name)
    from resources.object_store.s3 import S3Store

    return S3Store(secrets, access.endpoint, access.region)


def load(of: str) -> None:
    """Import the client's library of a kind of store.

    Raises:
        ImportError: it is missing.
    """
    from importlib import import_module

    import_module(f"resources.object_store.{'gcs' if of == 'gs' else of}")
