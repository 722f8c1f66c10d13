"""Copies of the code with one thing broken in each, to see that the tests notice.

Each variant names the text that it replaces, so a change of the code that it breaks is an error here and not a test
that no longer tests anything.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PACKAGES = ("kpipe", "transforms", "resources", "kpipe_assets", "tests")
LANES = "resources/destinations/sql/ledger/ledger_table.py"
OUTCOME = "resources/destinations/commit_protocol.py"
READER = "resources/kafka/range_reader.py"


@dataclass(frozen=True)
class Variant:
    """One thing that is broken.

    Attributes:
        name: what it does wrong.
        file: where.
        changes: texts to replace everywhere in the file, with their replacements.
        tests: the part of the suite that must fail.
        reason: what must be among the reasons that it gives (a regular expression).
        quick: tried each time; else in `make chaos`.
    """

    name: str
    file: str
    changes: tuple[tuple[str, str], ...]
    tests: tuple[str, ...]
    reason: str
    quick: bool = True

    def make(self, folder: Path) -> Path:
        """The tree with the change in it."""
        tree = pristine(folder)
        path = tree / self.file
        text = path.read_text()
        for old, new in self.changes:
            assert old in text, f"variant {self.name!r} no longer fits {self.file}: {old!r}"
            text = text.replace(old, new)
        path.write_text(text)
        return tree


def pristine(folder: Path) -> Path:
    """Our packages and tests as they are, and what Python compiled of them: only what is changed is compiled again."""
    for name in PACKAGES:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("*-pytest-*.pyc"))
    shutil.copy2(ROOT / "pyproject.toml", folder)
    return folder


def tested(tree: Path, tests: tuple[str, ...], broker: Path) -> subprocess.CompletedProcess[str]:
    """Run some tests of a tree, on the broker of that folder."""
    return subprocess.run(
        # Python puts the current folder first: the tree's own packages are imported, not the installed ones.
        [sys.executable, "-m", "pytest", "-vv", "-m", "chaos or not chaos", "-p", "no:cacheprovider", *tests],
        cwd=tree,
        env={**os.environ, "KPIPE_TEST_BROKER": str(broker), "PYTHONPATH": ""},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


RACE = "tests/survival/test_races.py::test_two_at_once[collect.all]"
POINT = "tests/survival/test_points.py::test_killed_in_the_middle[commit.before]"
LOST_ANSWER = "tests/survival/test_points.py::test_failed_in_the_middle[commit.after]"
LYING_COMMIT = "tests/resources/destinations/duckdb/test_commit.py::test_commit_of_an_aborted_transaction_is_not_believed"
CONTROL = (RACE, POINT, LOST_ANSWER, LYING_COMMIT)

VARIANTS = (
    Variant(
        "the ledger is not compared",
        LANES,
        ((" AND l.next_offset = c.next_offset", ""), ('("lane_end", "tail")', '("lane_end",)')),
        (RACE,),
        r"O1 ids more than once in the table",
    ),
    Variant(
        "a ledger that is further than planned is taken for one that fits",
        LANES,
        (
            (" AND l.next_offset = c.next_offset", " AND l.next_offset >= c.next_offset"),
            ('("lane_end", "tail")', '("lane_end",)'),
        ),
        (RACE,),
        r"O1 ids more than once in the table",
        quick=False,
    ),
    Variant(
        "silence is taken for the end of a range",
        READER,
        (
            # Half of what is left comes at once, and then nothing: by time alone the other half might come first.
            ("min(BLOCK_RECORDS, self._span.end - self._last - 1)", "max(1, (self._span.end - self._last - 1) // 2)"),
            ("                yield held, size\n", "                yield held, size\n                return\n"),
        ),
        (POINT,),
        r"O1 rows that are missing",
    ),
    Variant(
        "an answer of the database is believed when it is yes",
        OUTCOME,
        (
            (
                "            seq, ledger = read_back()",
                "            if failure is None:\n                return Committed(commit, commit.changes and 1)\n"
                "            seq, ledger = read_back()",
            ),
        ),
        (LYING_COMMIT,),
        r"DID NOT RAISE",
    ),
    Variant(
        "an answer of the database is believed when it is no",
        OUTCOME,
        (
            (
                "        try:\n            seq, ledger = read_back()",
                "        if failure is not None:\n            raise failure.error\n"
                "        try:\n            seq, ledger = read_back()",
            ),
        ),
        (LOST_ANSWER,),
        r"KPIPE_FAULT: failed at commit.after",
        quick=False,
    ),
    Variant(
        "who fails cleans up",
        "kpipe_assets/runs/runner.py",
        (
            (
                '                self._note("error", error)\n',
                '                self._note("error", error)\n                import shutil\n\n'
                "                shutil.rmtree(self.home.staging)\n                self.home.staging.mkdir()\n",
            ),
        ),
        (RACE,),
        r"O5 staged files of batch \w+ are gone, which nobody has committed",
        quick=False,
    ),
)
