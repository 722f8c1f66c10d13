"""Load destinations of other packages: entry points `kpipe.destinations` (docs/how-to/destinations/your-own.md)."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from kpipe.definition.pipeline import Pipeline
from kpipe.errors import KpipeError, NotAvailable
from kpipe.interfaces import Destination

__all__ = ["GROUP", "names", "open_installed"]

GROUP = "kpipe.destinations"
#: Methods that kpipe requires of every destination.
_METHODS = tuple(name for name in vars(Destination) if not name.startswith("_"))


def names() -> list[str]:
    """Return the types that installed packages offer."""
    return sorted(entry_points(group=GROUP).names)


def open_installed(pipeline: Pipeline, home: Any) -> Destination | None:
    """Open the destination of `into.type` from the package that offers it; None: no package does.

    Args:
        pipeline: its definition.
        home: the folders of `KPIPE_HOME` that a destination may need (`resources.destinations.Home`).

    Raises:
        NotAvailable: two packages offer the type, it cannot be loaded, or its object is not a destination.
    """
    kind = pipeline.into.type
    found = tuple(entry_points(group=GROUP, name=kind))
    if not found:
        return None
    where = f"pipeline {pipeline.name}: into.type {kind}"
    if len({_told(item) for item in found}) > 1:
        raise NotAvailable(f"{where}: two packages offer it: {', '.join(map(_told, found))}", "uninstall one of them")
    place: Any = _loaded(found[0], where)(pipeline, home)
    missing = [name for name in _METHODS if not callable(getattr(place, name, None))]
    if missing:
        raise NotAvailable(
            f"{where}: {_told(found[0])} returned {type(place).__name__} without {', '.join(missing)}",
            "see Destination in kpipe/interfaces; report it to the package's maintainer",
        )
    checked: Destination = place
    return checked


def _loaded(item: EntryPoint, where: str) -> Callable[[Pipeline, Any], Any]:
    try:
        opener = item.load()
    except KpipeError:
        raise
    except Exception as error:
        raise NotAvailable(
            f"{where}: {_told(item)} cannot be loaded: {type(error).__name__}: {error}", "fix or reinstall the package"
        ) from error
    if not callable(opener):
        raise NotAvailable(
            f"{where}: {_told(item)} is {type(opener).__name__}, not a function",
            "the entry point must be a function of (pipeline, home)",
        )
    found: Callable[[Pipeline, Any], Any] = opener
    return found


def _told(item: EntryPoint) -> str:
    return f"{item.dist.name if item.dist is not None else 'a package'} ({item.value})"
