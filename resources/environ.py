"""The environment variables of this process, read while other threads change them."""

from __future__ import annotations

import os

__all__ = ["snapshot"]


def snapshot() -> dict[str, str]:
    """Return a copy of this process's environment.

    `dict(os.environ)` raises KeyError if another thread removes a variable meanwhile, as opening a Dagster instance does.
    """
    return {name: value for name in list(os.environ) if (value := os.environ.get(name)) is not None}
