"""The conformance suite of destinations, also for those of other packages (docs/how-to/destinations/your-own.md)."""

from __future__ import annotations

import pytest

# Registered before the modules are imported, so that failed assertions show their values.
_MODULES = ("commits", "counting", "keyed", "killed", "lake", "place", "publication", "state", "tables")
pytest.register_assert_rewrite(*(f"{__name__}.{name}" for name in _MODULES))
