"""Files, returns and climbs of a walk through product files (bench/studies/walk.py)."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bench.studies.walk import Walk, trace


def test_a_return_is_a_move_into_a_file_that_was_visited_before() -> None:
    walk = Walk()
    for caller, callee in [
        (None, "kpipe/a.py"),
        ("kpipe/a.py", "resources/b.py"),
        ("resources/b.py", "kpipe/c.py"),
        ("kpipe/a.py", "kpipe/c.py"),
        ("kpipe/a.py", "kpipe/c.py"),
        ("kpipe/c.py", "kpipe/c.py"),
        ("kpipe/c.py", "kpipe/d.py"),
    ]:
        walk.enter(caller, callee)
    assert walk.counts() == {"files": 4, "moves": 4, "returns": 1, "climbs": 1}
    assert walk.shallow().counts() == {"files": 3, "moves": 3, "returns": 1, "climbs": 1}  # d.py calls no other file


def test_a_trace_sees_calls_between_product_files_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {
        "kpipe/walked_core.py": "def plan(): return sum(1 for _ in range(3))\n",
        "resources/walked_edge.py": "from walked_core import plan\ndef stage(): return [plan(), plan()]\n",
        "other/walked_test.py": "from walked_edge import stage\ndef begin(): return stage()\n",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(text)
        monkeypatch.syspath_prepend(str((tmp_path / name).parent))
    from walked_test import begin  # type: ignore[import-not-found]

    walk = trace(tmp_path, begin)
    assert list(walk.visited) == ["resources/walked_edge.py", "kpipe/walked_core.py"]
    assert walk.moves == {("resources/walked_edge.py", "kpipe/walked_core.py"): False}
    assert sys.getprofile() is None
