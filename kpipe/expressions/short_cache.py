"""Remember results for short texts only: arguments may be contents of records, of any size."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Generic, ParamSpec, TypeVar

__all__ = ["ShortCache", "short_cache"]

_P = ParamSpec("_P")
_T = TypeVar("_T")


class ShortCache(Generic[_P, _T]):
    """A function of texts that remembers the results of its last calls with short ones.

    Args:
        function: the function.
        maxsize: results that are remembered.
        longest: characters of all texts of a call that is remembered.
    """

    def __init__(self, function: Callable[_P, _T], maxsize: int, longest: int) -> None:
        self.function, self.longest, self.__doc__ = function, longest, function.__doc__
        self.cached = lru_cache(maxsize)(function)

    def __call__(self, *texts: _P.args, **named: _P.kwargs) -> _T:
        """Call the function."""
        if sum(map(len, texts)) > self.longest:  # type: ignore[arg-type]
            return self.function(*texts, **named)
        return self.cached(*texts, **named)  # type: ignore[arg-type]


def short_cache(maxsize: int, longest: int = 1000) -> Callable[[Callable[_P, _T]], ShortCache[_P, _T]]:
    """Decorate a function of texts; see `ShortCache`."""
    return lambda function: ShortCache(function, maxsize, longest)
