"""Destinations that other packages bring along: entry points of the group `kpipe.destinations` (docs/guide/destinations.md)."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from kpipe.definition.pipeline import Pipeline
from kpipe.errors import KpipeError, NotAvailable
from kpipe.interfaces import Destination

__all__ = ["GROUP", "names", "open_installed"]

GROUP = "kpipe.destinations"
#: What kpipe asks of every destination.
_METHODS = tuple(name for name in vars(Destination) if not name.startswith("_"))


def names() -> list[str]:
    """Types that installed packages offer."""
    return sorted(entry_points(group=GROUP).names)


def open_installed(pipeline: Pipeline, home: Any) -> Destination | None:
    """The destination that `into.type` names, from the package that offers it; None where none does.

    Args:
        pipeline: whose rows go there.
        home: the folders of `KPIPE_HOME` that a destination may need (`resources.destinations.Home`).

    Raises:
        NotAvailable: two packages offer it, it cannot be loaded, or what it gives is no destination.
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
            f"{where}: {_told(found[0])} has given {type(place).__name__}, which has no {', '.join(missing)}",
            "see kpipe/interfaces.py, Destination; ask whoever maintains the package",
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
            f"{where}: {_told(item)} cannot be loaded: {type(error).__name__}: {error}", "mend or reinstall the package"
        ) from error
    if not callable(opener):
        raise NotAvailable(f"{where}: {_told(item)} is {type(opener).__name__}, not a function", "name one: (pipeline, home)")
    found: Callable[[Pipeline, Any], Any] = opener
    return found


def _told(item: EntryPoint) -> str:
    return f"{item.dist.name if item.dist is not None else 'a package'} ({item.value})"
