"""Dagster's migrations, read once in a process.

For every tick of a sensor Dagster's code server opens Dagster's databases anew, and asks alembic which their newest version
is. Alembic compiles some 90 files for the answer, twice: 0.08 of the 0.09 s of CPU that a tick took (bench/idle.py).
They do not change while a process lives.
"""

from __future__ import annotations

from typing import Any

from alembic.script import ScriptDirectory

__all__ = ["read_once"]

_read = ScriptDirectory.from_config


def read_once() -> None:
    """From now on, in this process."""
    known: dict[tuple[str, str], ScriptDirectory] = {}

    def from_config(config: Any) -> ScriptDirectory:
        place = str(config.config_file_name), str(config.get_main_option("script_location"))
        if place not in known:
            known[place] = _read(config)
        return known[place]

    ScriptDirectory.from_config = from_config  # type: ignore[method-assign]
