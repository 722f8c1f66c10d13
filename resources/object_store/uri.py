"""Distinguish paths of files from names of objects (`s3://bucket/key`)."""

from __future__ import annotations

__all__ = ["SCHEME", "is_remote", "split"]

SCHEME = "s3://"


def is_remote(path: object) -> bool:
    """Return whether the name is an object's, not a file's."""
    return str(path).startswith(SCHEME)


def split(uri: str) -> tuple[str, str]:
    """Split an object's name into bucket and key."""
    bucket, _, key = uri.removeprefix(SCHEME).partition("/")
    return bucket, key
