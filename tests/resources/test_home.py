"""The home's own small files on a disk that is full."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kpipe.errors import KpipeError
from resources.home import Home


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Home]:
    """A home on a disk of 64 kB."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root")
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(tmp_path)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("a tmpfs cannot be mounted here")
    yield Home.at(tmp_path).make()
    subprocess.run(["umount", str(tmp_path)], check=True)


def test_a_full_disk_is_an_error_that_says_so_and_what_was_written_before_stays(small: Home) -> None:
    small.note("orders", "stopped")
    small.seen("orders").note("uid", 3)
    filler = small.path / "filler"
    with filler.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space"):
        while True:
            file.write(b"x" * 4096)
    for write in (lambda: small.note("orders", "error", "x" * 5000), lambda: small.seen("orders").note("uid", 4)):
        with pytest.raises(KpipeError, match=r"orders.*json: No space left on device") as caught:
            write()
        assert "free space" in caught.value.hint
    assert not list(small.state.glob(".new-*")), "nothing torn is left"
    filler.unlink()
    assert small.noted("orders")["state"] == "stopped" and small.seen("orders").seq == 3
    small.seen("orders").note("uid", 5)
    assert small.seen("orders").seq == 5
