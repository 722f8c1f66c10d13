"""Staged files of copies where KPIPE_STAGING names a shared location: a folder or a prefix of their own below it."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from kpipe.errors import KpipeError
from resources.object_store.uri import is_remote

__all__ = ["create_staging", "remove_staging", "staging_of"]


def staging_of(environ: Mapping[str, str], name: str) -> str:
    """Return the location of the copies' staged files; empty if they are in the copies' home."""
    location = environ.get("KPIPE_STAGING", "").rstrip("/")
    return f"{location}/{name}" if location else ""


def create_staging(location: str) -> None:
    """Create the folder; a prefix needs no creation.

    Raises:
        KpipeError: it exists, or cannot be created.
    """
    if location and not is_remote(location):
        try:
            Path(location).mkdir()
        except OSError as error:
            raise KpipeError(f"{location} cannot be created: {error.strerror}", "check KPIPE_STAGING") from error


def remove_staging(location: str) -> None:
    """Remove all staged files of the copies. Best effort: no table references them.

    Args:
        location: as `staging_of` returned it.
    """
    if not is_remote(location):
        shutil.rmtree(location, ignore_errors=True)
        return
    from kpipe_assets.chaos.places import remove_objects
    from resources.object_store.clients import store

    remove_objects(store(location), f"{location}/")
