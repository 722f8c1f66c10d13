"""A stager that is created for the first batch: its imports take as long as all else that an idle run does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from kpipe.batch.batch import Batch, RangeReport
from kpipe.batch.host_stats import Work
from kpipe.column_growth import Closed
from kpipe.schema.columns import Columns
from kpipe.topics import PartitionId

if TYPE_CHECKING:
    from resources.spark.driver.stager import SparkStager

__all__ = ["DeferredStager"]


class DeferredStager:
    """A `SparkStager` that does not exist before it is used.

    Args:
        make: creates it.
    """

    def __init__(self, make: Callable[[], SparkStager]) -> None:
        self._make = make

    @cached_property
    def _stager(self) -> SparkStager:
        return self._make()

    def columns(self, batch: Batch, table: int) -> Columns:
        """See `Stager`."""
        return self._stager.columns(batch, table)

    def sample(self, batch: Batch, tables: Sequence[int]) -> None:
        """See `Sampling`."""
        self._stager.sample(batch, tables)

    def stage(self, batch: Batch, tables: Sequence[Columns], closed: Sequence[Closed] = ()) -> Sequence[RangeReport]:
        """See `Stager`."""
        return self._stager.stage(batch, tables, closed)

    def work(self) -> Work:
        """See `Spread`."""
        return self._stager.work()

    def refuse(self, records: Mapping[PartitionId, Mapping[int, str]]) -> bool:
        """See `Refusing`."""
        return self._stager.refuse(records)

    def give_up(self) -> None:
        """See `Stager`."""
        if "_stager" in self.__dict__:
            self._stager.give_up()

    def release(self) -> None:
        """See `Releasing`."""
        if "_stager" in self.__dict__:
            self._stager.release()
