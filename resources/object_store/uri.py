"""Names of files and of objects: a path, or `s3://bucket/key`."""

from __future__ import annotations

__all__ = ["SCHEME", "is_remote", "split"]

SCHEME = "s3://"


def is_remote(path: object) -> bool:
    """Whether that is the name of an object and not of a file."""
    return str(path).startswith(SCHEME)


def split(uri: str) -> tuple[str, str]:
    """Bucket and key."""
    bucket, _, key = uri.removeprefix(SCHEME).partition("/")
    return bucket, key
