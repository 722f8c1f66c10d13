"""Batches that a webhook has begun and not finished."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


class Crash(BaseException):
    """Stands for a kill: no handler of the code runs."""


def killed(patch: pytest.MonkeyPatch, where: Any, name: str, after: bool, nth: int) -> None:
    """Arm a kill at the nth call."""
    real: Callable[..., Any] = getattr(where, name)
    calls = 0

    def call(*args: Any, **more: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls < nth:
            return real(*args, **more)
        if after:
            real(*args, **more)
        raise Crash

    patch.setattr(where, name, call)
