"""Run many small cases in one test: collecting and reporting a test costs more than such a case runs."""

from __future__ import annotations

import functools
import inspect
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

__all__ = ["Selection", "each_case"]

Case = tuple[str, dict[str, Any]]


class Selection:
    """Which cases run; `tests/conftest.py` sets it from pytest's options."""

    one_in: ClassVar[dict[str, int]] = {}  # of these files, by name, one case in so many
    containing: ClassVar[str | None] = None  # cases whose name contains this


def each_case(names: str | Sequence[str], values: Iterable[Any], ids: Any = None) -> Callable[[Callable[..., None]], Any]:
    """Run a test over all values: `pytest.mark.parametrize` in one test, with the same arguments.

    All cases run. Each one that fails is reported as a subtest with its own name and traceback. Cases share
    the test's fixtures, so a fixture must be one that a case leaves as it found it.
    `pytest --case TEXT` runs the cases whose name contains the text.

    Args:
        names: parameters of the test that a case gives values to.
        values: one value or tuple for each case, or `pytest.param` with an id and without marks.
        ids: names of the cases, or a function that names a value.
    """
    parameters = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    cases = list(_named(parameters, values, ids))

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        inner: list[Case] = getattr(test, "cases", [("", {})])
        crossed = [("-".join(filter(None, (a, b))), {**one, **other}) for b, other in cases for a, one in inner]
        body = getattr(test, "body", test)
        return _test_of(test, body, crossed)

    return decorate


def _test_of(test: Callable[..., None], body: Callable[..., None], cases: list[Case]) -> Callable[..., None]:
    """Return a test that runs a body with each case."""
    signature = inspect.signature(body)
    given = cases[0][1] if cases else {}
    fixtures = [parameter for name, parameter in signature.parameters.items() if name not in given]
    file = Path(inspect.getfile(body)).name

    @functools.wraps(test)  # with its marks
    def run(*, subtests: pytest.Subtests, **values: Any) -> None:
        chosen = _chosen(cases, Selection.one_in.get(file, 1))
        if not chosen:
            pytest.skip("no case of this test is selected")
        for name, case in chosen:
            try:
                body(**values, **case)
            except (Exception, pytest.fail.Exception):
                with subtests.test(msg=name):
                    raise

    added = inspect.Parameter("subtests", inspect.Parameter.KEYWORD_ONLY)
    run.__signature__ = signature.replace(parameters=[*fixtures, added])  # type: ignore[attr-defined]
    run.cases, run.body = cases, body  # type: ignore[attr-defined]
    return run


def _chosen(cases: list[Case], one_in: int) -> list[Case]:
    """Return the cases that run; a hash of their names selects samples, the same ones in every run."""
    if Selection.containing is not None:
        return [case for case in cases if Selection.containing in case[0]]
    return [case for case in cases if zlib.crc32(case[0].encode()) % one_in == 0] or cases[:1]


def _named(parameters: list[str], values: Iterable[Any], ids: Any) -> Iterator[Case]:
    """Return cases with names as `parametrize` gives them: by `pytest.param(id=)`, by ids, else by their values."""
    for at, value in enumerate(values):
        name = None
        if hasattr(value, "marks"):
            if value.marks:
                raise ValueError(f"each_case: {value.id}: cases have no marks; use pytest.mark.parametrize")
            name, parts = value.id, tuple(value.values)
        else:
            parts = (value,) if len(parameters) == 1 else tuple(value)
        if name is None and ids is not None:
            name = "-".join(str(ids(part)) for part in parts) if callable(ids) else str(ids[at])
        name = name or "-".join(map(str, parts))
        printable = name.encode("utf-8", "backslashreplace").decode("utf-8")  # lone surrogates cannot be reported
        yield printable, dict(zip(parameters, parts, strict=True))
