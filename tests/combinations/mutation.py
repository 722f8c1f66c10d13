"""Put a defect into a copy of the code, and let the generator search there in a process of its own (mutants.py has them).

A mutant is a list of replacements of text in the sources as they are now. A text that has changed since is an error: then the
mutant must be written again, so that none of them silently tests the fixed code.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Changed", "Mutant", "Verdict", "hunted", "planted", "texts_are_there"]

ROOT = Path(__file__).parents[2]
_TREES = ("kpipe", "kpipe_assets", "resources", "transforms", "tests")


class Changed(AssertionError):
    """A source no longer has the text that a mutant replaces."""


@dataclass(frozen=True)
class Mutant:
    """One defect.

    Attributes:
        item: number of the defect in the review that found it, with a letter where it had several causes.
        name: what is wrong.
        destination: where it is hunted.
        changes: file, its text, and what stands there instead.
        finding: regular expression that a transcript with the finding matches, and that of no other defect.
        of_events: whether the hunt draws only examples of change events.
    """

    item: str
    name: str
    destination: str
    changes: tuple[tuple[str, str, str], ...]
    finding: str
    of_events: bool = False


@dataclass(frozen=True)
class Verdict:
    """What a hunt has come to.

    Attributes:
        examples: that were run until then.
        seconds: that it took.
        seed: of the round that found it; of the last round where nothing was found; 0: the pinned examples.
        finding: first line of the finding; empty: not found.
    """

    examples: int
    seconds: float
    seed: int
    finding: str


def texts_are_there(mutant: Mutant) -> None:
    """Check that the sources have each text that is replaced exactly once.

    Raises:
        Changed: they have not.
    """
    for file, old, _ in mutant.changes:
        number = (ROOT / file).read_text(encoding="utf-8").count(old)
        if number != 1:
            raise Changed(f"mutant {mutant.item} ({mutant.name}): {file} has this text {number} times, not once: {old!r}")


def planted(mutant: Mutant, folder: Path) -> None:
    """Copy the code, and what Python compiled of it, to a folder, and put the defect into it.

    Raises:
        Changed: a text is not there exactly once.
    """
    for name in _TREES:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("*-pytest-*.pyc"))
    texts_are_there(mutant)
    compiled = False
    for file, old, new in mutant.changes:
        path = folder / file
        path.write_text(path.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
        compiled = compiled or file.endswith(".c")
    if compiled:
        _compile(folder / "resources" / "native")


def _compile(folder: Path) -> None:
    library = next(folder.glob("_kpipe*.so"))
    library.unlink()
    flags = ["-O2", "-std=c11", "-shared", "-fPIC", "-I", sysconfig.get_paths()["include"]]
    subprocess.run(["cc", *flags, *map(str, sorted(folder.glob("*.c"))), "-o", str(library)], check=True)


def hunted(mutant: Mutant, folder: Path, seed: int, seconds: float, broker: str | None = None) -> Verdict:
    """Search the copy in a process of its own, with random examples, until the defect is found or the time is over.

    How many examples that is depends on the machine. Then the pinned ones are tried, whose seed is 0.
    """
    found = _run(mutant, folder, broker, "--seed", str(seed), "--seconds", str(seconds))
    return found if found.finding else _run(mutant, folder, broker, "--pinned")


def _run(mutant: Mutant, folder: Path, broker: str | None, *chosen: str) -> Verdict:
    command = [sys.executable, "-m", "tests.combinations", mutant.destination, "--until", mutant.finding, *chosen]
    command += ["--broker", broker] if broker is not None else []
    command += ["--changes"] if mutant.of_events else []
    environ = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=3600)
    if done.returncode:
        raise AssertionError(f"mutant {mutant.item}: the hunt failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    told = json.loads(done.stdout.splitlines()[-1])
    if not Path(told.pop("code")).is_relative_to(folder):
        raise AssertionError(f"mutant {mutant.item}: the hunt has not run the copy")
    return Verdict(**told)
