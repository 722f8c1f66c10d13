"""The tree of errors is what the module's first lines draw."""

from __future__ import annotations

import re

from kpipe import errors
from kpipe.errors import Fenced, KpipeError, NeedsOperator, by_name
from tests.cases import each_case

CLASSES = {name: kind for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, KpipeError)}


def drawn() -> dict[str, tuple[str | None, str]]:
    """Class to parent and the rest of its line, from the docstring's tree."""
    found: dict[str, tuple[str | None, str]] = {}
    above: list[tuple[int, str]] = []
    for line in (errors.__doc__ or "").splitlines():
        match = re.match(r"^([ │├└─]*)([A-Z]\w+)(  .*|$)", line)
        if not match or match.group(2) not in CLASSES:
            continue
        depth = len(match.group(1))
        above = [item for item in above if item[0] < depth]
        found[match.group(2)] = (above[-1][1] if above else None, match.group(3))
        above.append((depth, match.group(2)))
    return found


def test_every_class_is_in_the_tree_below_its_parent() -> None:
    parents = {name: (kind.__bases__[0].__name__ if kind is not KpipeError else None) for name, kind in CLASSES.items()}
    assert {name: parent for name, (parent, _) in drawn().items()} == parents


def test_every_class_is_exported() -> None:
    assert set(errors.__all__) == {*CLASSES, "by_name"}
    assert list(errors.__all__) == sorted(errors.__all__)


def test_exit_statuses_are_those_of_the_tree() -> None:
    tree = drawn()
    for name, kind in CLASSES.items():
        at: str | None = name
        while at is not None and "exit" not in tree[at][1]:
            at = tree[at][0]
        assert at is not None
        assert f"exit {kind.exit_status}" in tree[at][1], name


def test_retriable_classes_are_those_that_the_tree_calls_so() -> None:
    assert {name for name, kind in CLASSES.items() if kind.retriable} == {
        n for n, (_, t) in drawn().items() if "(retriable)" in t
    }


@each_case("name", sorted(CLASSES))
def test_an_error_finds_its_class_again_by_name_and_keeps_its_words(name: str) -> None:
    error = by_name(name)("it broke", "do this")
    assert type(error) is CLASSES[name]
    assert str(error) == "it broke -> do this"
    assert str(CLASSES[name]("it broke")) == "it broke"
    assert error.args == ("it broke", "do this")  # survives pickling between processes


@each_case("name", ["Nothing", "annotations", "by_name", "Exception", ""])
def test_a_name_that_is_not_an_error_of_ours_is_a_plain_one(name: str) -> None:
    assert by_name(name) is KpipeError


def test_what_only_an_operator_clears_is_never_retried() -> None:
    assert not any(kind.retriable for kind in CLASSES.values() if issubclass(kind, NeedsOperator))
    assert not Fenced.retriable
