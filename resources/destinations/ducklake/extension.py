"""Find and load DuckDB's extensions of the installed version: from their packages, or from DuckDB's own folder.

kpipe downloads none: an extension is code.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

import duckdb

from kpipe.errors import NotAvailable
from resources.duckdb_engine.sandbox import literal
from resources.extras import install_hint

__all__ = ["check", "load"]

# Of the package index and of DuckDB's repository: the same names.
_PACKAGE = "duckdb_extension_{}"


def check(subject: str, names: Collection[str]) -> None:
    """Check that extensions of the installed DuckDB's version are there, without loading them.

    Args:
        subject: what needs them: a pipeline and its field.
        names: of the extensions.

    Raises:
        NotAvailable: one is missing, or is for another DuckDB; the message names both versions.
    """
    for name in names:
        if _found(name) is None:
            others = ", ".join(_versions(name)) or "none"
            raise NotAvailable(
                f"{subject} needs DuckDB's extension {name}: expected one for DuckDB {duckdb.__version__}, found {others}",
                f"{install_hint('ducklake')} installs a DuckDB and its extensions;"
                f" or run INSTALL {name} in DuckDB {duckdb.__version__}, as the same user",
            )


def load(connection: duckdb.DuckDBPyConnection, names: Collection[str]) -> None:
    """Load extensions, which `check` has found.

    Raises:
        NotAvailable: see `check`.
        duckdb.Error: a file is damaged, or is not signed by DuckDB.
    """
    check("DuckLake", names)
    for name in names:
        connection.execute(f"LOAD {literal(str(_found(name)))}")


def _versions(name: str) -> list[str]:
    """Return the versions of DuckDB that an installed package has the extension for."""
    found = _folder(name)
    return [] if found is None else sorted(path.parent.name.removeprefix("v") for path in found.glob("*/*.duckdb_extension"))


def _found(name: str) -> Path | None:
    file = f"v{duckdb.__version__}/{name}.duckdb_extension"
    folder = _folder(name)
    if folder is not None and (folder / file).is_file():
        return folder / file
    own = Path.home() / ".duckdb" / "extensions" / f"v{duckdb.__version__}" / _platform() / f"{name}.duckdb_extension"
    return own if own.is_file() else None


def _folder(name: str) -> Path | None:
    """Return the folder of an installed package's extensions."""
    spec = find_spec(_PACKAGE.format(name))
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "extensions"


@lru_cache(maxsize=1)
def _platform() -> str:
    row = duckdb.execute("PRAGMA platform").fetchone()
    return str(row[0]) if row else ""
