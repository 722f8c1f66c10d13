"""Read a table's ledgers while other runs commit, and delete the files that their commits have superseded."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from kpipe.errors import DestinationBusy, LedgerMismatch

__all__ = ["READS", "at_one_version"]

READS = 3  # of a ledger that other runs change
_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def at_one_version(read: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Repeat a read that begins by loading the table, if a file of the version that it has loaded is missing.

    A later version does not name a superseded file. If it names the same missing file, the file is lost.

    Raises:
        LedgerMismatch: a file is lost.
        DestinationBusy: files were superseded during each read.
    """

    @wraps(read)
    def repeated(*arguments: _Arguments.args, **named: _Arguments.kwargs) -> _Result:
        missing = ""
        for _ in range(READS):
            try:
                return read(*arguments, **named)
            except LedgerMismatch as error:
                if error.what == missing or not isinstance(error.__cause__, FileNotFoundError):
                    raise
                missing = error.what
        what = f"{missing}: during each of {READS} reads, commits have superseded files"
        raise DestinationBusy(what, "run it again when fewer runs commit to the table")

    return repeated
