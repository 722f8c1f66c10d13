"""The memory limit of DuckDB engines: half of what the process can use, or KPIPE_DUCKDB_MEMORY.

DuckDB's own default is 80 % of the machine. That leaves too little to the JVM and the workers, and a container's parents may
have smaller limits.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from kpipe.errors import InvalidPipeline
from resources.available_memory import available_bytes

__all__ = ["LEAST_BYTES", "VARIABLE", "engine_bytes", "engine_setting"]

VARIABLE = "KPIPE_DUCKDB_MEMORY"

_SIZE = re.compile(r"(\d{1,9}(?:\.\d{1,3})?) ?(|K|M|G|T)(i?)B", re.IGNORECASE)
#: Engines with a smaller limit fail for blocks of ordinary size.
LEAST_BYTES = 64_000_000


def engine_bytes(environ: Mapping[str, str] | None = None) -> int:
    """Return the memory limit of an engine in bytes.

    Args:
        environ: variables; None: this process's environment.

    Raises:
        InvalidPipeline: the variable is not a size, or too small.
    """
    text = (os.environ if environ is None else environ).get(VARIABLE, "").strip()
    if not text:
        return max(LEAST_BYTES, available_bytes() // 2)
    size = _SIZE.fullmatch(text)
    scale = (1024 if size[3] else 1000) ** ["", "K", "M", "G", "T"].index(size[2].upper()) if size else 0
    found = int(float(size[1]) * scale) if size else 0
    if found < LEAST_BYTES:
        raise InvalidPipeline(
            f"{VARIABLE}: invalid size: expected {LEAST_BYTES // 10**6}MB or more, found {text[:40]!r}",
            f"set it to a size such as 2GB, or unset it: {VARIABLE}",
        )
    return found


def engine_setting(environ: Mapping[str, str] | None = None) -> str:
    """Return the limit as a value of DuckDB's `memory_limit`; see `engine_bytes`."""
    return f"{engine_bytes(environ) // 1024}KiB"
