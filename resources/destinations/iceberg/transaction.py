"""Commit to an Iceberg table on top of exactly the state that was loaded."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pyiceberg.exceptions import RESTError
from pyiceberg.table import Transaction
from pyiceberg.table.metadata import TableMetadata
from sqlalchemy.exc import SQLAlchemyError

from kpipe.errors import DestinationError
from resources.destinations.iceberg.catalogue import OVERTAKEN
from resources.destinations.lakehouse.table_format import Overtaken

__all__ = ["OneAttempt", "sending"]

#: In pyiceberg's errors after a commit to another branch, because the numbers of snapshots are those of all branches; and after
#: another expiry of the same snapshots.
_PASSED = re.compile(r"older than last sequence number|^Snapshot with snapshot id \d+ does not exist")


@contextmanager
def sending(failed: Callable[[Exception], DestinationError]) -> Iterator[None]:
    """Convert the errors of a commit.

    Args:
        failed: converts an error of the catalogue to one without secrets.

    Raises:
        Overtaken: another commit was first, or the catalogue was locked: the caller reads back and retries.
    """
    try:
        yield
    except ValueError as error:
        if _PASSED.search(str(error)) is None:
            raise
        raise Overtaken(str(error)) from error
    except OVERTAKEN as error:
        raise Overtaken(str(error)) from error
    except SQLAlchemyError as error:
        raise Overtaken(failed(error).what) from None
    except RESTError as error:
        raise failed(error) from None


class OneAttempt(Transaction):
    """A transaction that is attempted once, on top of the loaded state.

    pyiceberg would retry on a newer state, and delete the files that it wrote. This overrides two hooks that are not public:
    pyiceberg is pinned to one minor version, and contract tests cover the hooks.
    """

    _known: tuple[Any, Any, TableMetadata] | None = None

    @property
    def table_metadata(self) -> TableMetadata:
        """The table's metadata with the changes so far, computed once for each change.

        pyiceberg computes it at every access, and copies all snapshots: 18 times in a commit, and twice for each expired
        snapshot. At 280 snapshots that took four fifths of a commit.
        """
        base, updates = self._table.metadata, self._updates
        if self._known is None or self._known[0] is not base or self._known[1] is not updates:
            self._known = base, updates, super().table_metadata
        return self._known[2]

    def _register_snapshot_producer(self, producer: Any) -> None:
        producer._clean_all_uncommitted = lambda: None  # after an unknown outcome the table may reference these files
        super()._register_snapshot_producer(producer)

    def _rebuild_snapshot_updates(self) -> None:
        raise Overtaken("another commit created a newer snapshot")
