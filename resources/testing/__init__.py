"""The suite that every destination passes, for destinations of other packages, too (docs/guide/destinations.md)."""

from __future__ import annotations

import pytest

# Before any of them is imported: so that an assertion that fails shows its values.
_MODULES = ("commits", "counting", "keyed", "killed", "lake", "place", "state", "tables", "telling")
pytest.register_assert_rewrite(*(f"{__name__}.{name}" for name in _MODULES))
