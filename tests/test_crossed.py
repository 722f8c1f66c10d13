"""The sample of crossed parameters."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from tests import crossed
from tests.crossed import covering, drawn

_FILE = """
import pytest

@pytest.mark.crossed
@pytest.mark.parametrize("place", ["duckdb", "kafka", "delta"])
@pytest.mark.parametrize(("fault", "again"), [("killed", True), ("refused", False)])
def test_one(place, fault, again):
    pass

@pytest.mark.parametrize("place", ["duckdb", "kafka"])
@pytest.mark.parametrize("fault", ["killed", "refused"])
def test_other(place, fault):
    pass

@pytest.mark.drawn(2)
@pytest.mark.parametrize("place", ["duckdb", "kafka", "delta"])
@pytest.mark.parametrize("fault", ["killed", "refused"])
def test_drawn(place, fault):
    pass

@pytest.mark.drawn(2)
def test_without_a_place():
    pass
"""


class Collected:
    """Keep the items that pytest selects."""

    items: list[pytest.Item]

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.items = session.items


def selected(file: Path, marks: str) -> list[str]:
    """Names of the tests of a file that pytest selects."""
    found = Collected()
    options = ["--collect-only", "-qq", "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", str(file.parent), "-m", marks]
    assert pytest.main([*options, str(file)], plugins=[found, crossed]) in (0, 5)
    return [item.name for item in found.items]


def test_each_value_occurs_and_no_case_is_superfluous() -> None:
    cases = [*product("abc", "wxyz")]
    chosen = [cases[at] for at in sorted(covering(cases))]
    assert {first for first, _ in chosen} == {*"abc"} and {second for _, second in chosen} == {*"wxyz"}
    assert len(chosen) == 4
    assert covering([("a",), ("b",)]) == {0, 1}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnknownMarkWarning")
def test_the_other_cases_are_selected_by_chaos(tmp_path: Path) -> None:
    file = tmp_path / "test_of_six.py"
    file.write_text(_FILE)
    quick, chaos = selected(file, "not chaos"), selected(file, "chaos")
    counts = {test: sum(name.startswith(test) for name in quick) for test in ("test_one", "test_other", "test_drawn", "test_w")}
    assert counts == {"test_one": 3, "test_other": 4, "test_drawn": 4, "test_w": 1}
    assert len(chaos) == 3 + 2 and not {*quick} & {*chaos}
    for value in ("duckdb", "kafka", "delta", "killed-True", "refused-False"):
        assert any(value in name for name in quick if name.startswith("test_one"))


def test_destinations_take_turns() -> None:
    names = ["duckdb", "postgres", "mysql"]
    chosen = [drawn(f"test_{number}", names, 2) for number in range(60)]
    assert all(len(some) == 2 for some in chosen)
    assert all(sum(name in some for some in chosen) > 30 for name in names)
    assert drawn("test_1", ["duckdb"], 2) == {"duckdb"}
