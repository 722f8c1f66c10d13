"""Unpacking of tar archives, on every Python that kpipe runs on."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Literal


def unpack(archive: Path, folder: Path, rules: Literal["data", "tar"] = "data") -> None:
    """Extract an archive that a test has made, or that was checked by its hash.

    Args:
        archive: the tar file, compressed or not.
        folder: where its members go; made if it is missing.
        rules: which filter of PEP 706. Python 3.10.11, 3.11.3 and older ones have none, nor the parameter.
    """
    with tarfile.open(archive) as file:
        if hasattr(tarfile, "data_filter"):
            file.extractall(folder, filter=rules)
        else:
            file.extractall(folder)
