"""Send lookups to tasks as Spark's broadcasts."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from resources.lookups.reference_table import LookupRows, Reference

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["Broadcasts"]


class Broadcasts:
    """Broadcasts of one pipeline's lookups.

    Args:
        context: of Spark.
    """

    def __init__(self, context: SparkContext) -> None:
        self._context = context
        self._shipped: dict[str, tuple[Reference, Any]] = {}

    def of(self, lookups: Mapping[str, LookupRows]) -> Mapping[str, LookupRows]:
        """Return the lookups for tasks: each version is broadcast once, and destroyed when a newer one is broadcast."""
        for name, rows in lookups.items():
            shipped, reference = self._shipped.get(name), rows.value
            if shipped is None or shipped[0].version != reference.version:
                self._shipped[name] = reference, self._context.broadcast(reference)
                if shipped is not None:
                    shipped[1].destroy()
        return {name: self._shipped[name][1] for name in lookups}

    def release(self) -> None:
        """Destroy all: each has a file on the driver's disk, which PySpark otherwise keeps until Spark ends."""
        from py4j.protocol import Py4JError

        shipped, self._shipped = self._shipped, {}
        for _, broadcast in shipped.values():
            with suppress(Py4JError, OSError):  # Spark has ended, and its folder is removed as a whole
                broadcast.destroy()
