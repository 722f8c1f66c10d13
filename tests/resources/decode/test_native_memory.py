"""The compiled loops stay inside of their buffers, whatever the payloads hold: under the address and undefined sanitizers."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path

import pytest

HERE, SOURCES = Path(__file__).parent, Path(__file__).parents[3] / "resources" / "native"


@pytest.fixture(scope="module")
def fuzzer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not shutil.which("cc"):
        pytest.skip("no C compiler here, so there is no compiled part")
    program = tmp_path_factory.mktemp("fuzz") / "fuzz"
    flags = ["-O1", "-g", "-std=c11", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    built = subprocess.run(
        ["cc", *flags, HERE / "fuzz.c", *sorted(SOURCES.glob("*.c")), "-I", SOURCES, "-o", program],
        capture_output=True,
        text=True,
    )
    if built.returncode and "asan" in built.stderr:
        pytest.skip("the compiler has no sanitizers")
    assert built.returncode == 0, built.stderr
    return program


def run(fuzzer: Path, rounds: int, seed: int) -> None:
    done = subprocess.run([fuzzer, str(rounds), str(seed)], capture_output=True, text=True)
    assert done.returncode == 0, f"seed {seed}: {done.stdout}{done.stderr}"


def test_nothing_is_touched_outside_of_the_buffers(fuzzer: Path) -> None:
    run(fuzzer, 30_000, 1)
    run(fuzzer, 30_000, random.SystemRandom().randrange(1 << 60))


@pytest.mark.chaos
def test_nothing_is_touched_outside_of_the_buffers_for_long(fuzzer: Path) -> None:
    for _ in range(20):
        run(fuzzer, 300_000, random.SystemRandom().randrange(1 << 60))
