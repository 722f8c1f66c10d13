"""Remember results for short texts only: arguments may be contents of records, of any size."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from inspect import signature
from typing import Any, TypeVar

__all__ = ["short_cache"]

_T = TypeVar("_T")


def short_cache(maxsize: int, longest: int = 1000) -> Callable[[Callable[..., _T]], Callable[..., _T]]:
    """Decorate a function of one or two texts, so that it remembers the results of its last calls with short ones.

    Args:
        maxsize: results that are remembered.
        longest: characters of all texts of a call that is remembered.
    """

    def decorated(function: Callable[..., _T]) -> Callable[..., _T]:
        cached = lru_cache(maxsize)(function)

        def of_one(text: str) -> _T:  # called for each record: any number of texts would take three times as long
            return (cached if len(text) <= longest else function)(text)

        def of_two(text: str, other: str) -> _T:
            return (cached if len(text) + len(other) <= longest else function)(text, other)

        call: Any = wraps(function)(of_one if len(signature(function).parameters) == 1 else of_two)
        call.cached = cached
        return call  # type: ignore[no-any-return]

    return decorated
