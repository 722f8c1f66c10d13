"""Create DuckDB engines that can access nothing but the named files and folders."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import duckdb

from resources.duckdb_engine.memory_limit import engine_setting

__all__ = ["closed", "literal", "quote"]

# Set before the first statement.
_CONFIG = {
    "autoinstall_known_extensions": "false",  # DuckDB would download code
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "python_enable_replacements": "false",  # an unknown table would be resolved to a Python variable
}


def quote(*names: str) -> str:
    """Quote names as a qualified SQL identifier; quotes inside are doubled."""
    return ".".join('"' + name.replace('"', '""') + '"' for name in names)


def literal(text: str) -> str:
    """Quote a text as an SQL literal, for settings, which do not support parameters."""
    return "'" + text.replace("'", "''") + "'"


def closed(
    files: Sequence[str],
    folders: Sequence[str],
    temporary: str = "",
    settings: Sequence[str] = (),
    before: Callable[[duckdb.DuckDBPyConnection], None] | None = None,
) -> duckdb.DuckDBPyConnection:
    """Create an engine that can only access these files, and files in these folders.

    Args:
        files: paths, resolved.
        folders: paths, resolved.
        temporary: folder for data that does not fit into memory; empty: no spilling.
        settings: additional settings, `name = value`.
        before: loads extensions, and attaches what cannot be attached later.
    """
    made = duckdb.connect(":memory:", config={**_CONFIG, "temp_directory": temporary, "memory_limit": engine_setting()})
    if before is not None:
        before(made)
    allowed = ", ".join(literal(f"{folder}/") for folder in folders)
    # The order matters: each setting is locked by the next one.
    for setting in (
        *settings,
        # GLOBAL: else it applies to this connection only, and not to its cursors, which run all statements.
        # A time without a zone is UTC. The machine's zone would change it when it is cast to a time with a zone.
        "GLOBAL TimeZone = 'UTC'",
        f"allowed_paths = [{', '.join(map(literal, files))}]",
        f"allowed_directories = [{allowed}]",
        # Rows have Kafka's coordinates; preserving their order takes a quarter of an insert's time (bench of 2 million rows).
        "preserve_insertion_order = false",
        # The default of 5 complete row groups for each thread takes more memory and saves no time (the same bench).
        "write_buffer_row_group_count = 1",
        # An estimate of few rows selects a loop over all pairs, 5 times the time with 4,800 ranges, and quadratic.
        "GLOBAL asof_loop_join_threshold = 0",
        "enable_external_access = false",
        "lock_configuration = true",
    ):
        made.execute(f"SET {setting}")
    return made
