"""Check at import that no other project's package has the name of one of kpipe's (ADR 0035)."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

__all__ = ["check_import_names"]

_HINT = (
    " -> install kpipe in an environment of its own, and add it to Dagster as a code location (docs/how-to/existing-workspace.md)"
)


def check_import_names() -> None:
    """Check the packages that the names of kpipe's packages lead to.

    Raises:
        ImportError: another package of such a name comes first, so kpipe cannot be imported; or it comes later on
            `sys.path`, so code that imports it would get kpipe's.
    """
    here = Path(__file__).parent.parent
    for name in ("kpipe", "resources", "transforms"):
        spec = find_spec(name)
        found = Path(spec.origin).parent if spec is not None and spec.origin else None
        if found != here / name:
            what = found or "a folder without __init__.py"
            raise ImportError(f"package {name}: expected kpipe's in {here / name}, found {what}{_HINT}", name=name)
    for name in ("resources", "transforms"):
        for folder in map(Path, sys.path):
            hidden = next(filter(Path.is_file, (folder / name / "__init__.py", folder / f"{name}.py")), None)
            if hidden is not None and not (folder / "kpipe" / "__init__.py").is_file():  # that would be another copy of kpipe
                raise ImportError(f"package {name}: kpipe's in {here / name} hides the one in {hidden}{_HINT}", name=name)
