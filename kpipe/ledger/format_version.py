"""Check and upgrade the format of what kpipe stores: one number for all destinations and the home.

Each store records the number beside its ledger. A store without one is at `UNVERSIONED`. An older store is read as it
is; the first commit upgrades it, step by step, in its own transaction. A newer store is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from kpipe.errors import FormatTooNew, LedgerMismatch

__all__ = ["FORMAT_VERSION", "MEMBER", "UNVERSIONED", "check", "pending", "unchanged", "upgraded"]

#: The format that this kpipe writes. A change of what any store contains needs a higher number and a step in each registry.
FORMAT_VERSION = 2
#: The format of stores that record no number: those written before there was one.
UNVERSIONED = 0
#: The member of a JSON document that records the number.
MEMBER = "format"

_S = TypeVar("_S")


def check(found: int, store: str) -> None:
    """Refuse a store that a newer kpipe has written.

    Args:
        found: the number that the store records.
        store: names it in the message.

    Raises:
        FormatTooNew: this kpipe cannot read it.
    """
    if found > FORMAT_VERSION:
        raise FormatTooNew(
            f"{store}: written by a newer kpipe: expected format {FORMAT_VERSION} or older, found {found}", "upgrade kpipe"
        )


def pending(found: int, steps: Mapping[int, _S]) -> Iterator[_S]:
    """Return the steps from that format to the present one, in order.

    Args:
        found: the number that the store records, which is checked.
        steps: by the number that each upgrades from, one for every older format.
    """
    return (steps[version] for version in range(found, FORMAT_VERSION))


def upgraded(document: Mapping[str, Any], store: str, steps: Mapping[int, Callable[[dict[str, Any]], Any]]) -> dict[str, Any]:
    """Return a JSON document in the present format, without its number; `document` stays as it is.

    Args:
        document: as it was read.
        store: names it in messages.
        steps: by the number that each upgrades from; they change the document that they are given.

    Raises:
        FormatTooNew: this kpipe cannot read it.
        LedgerMismatch: the document's number is invalid.
    """
    said = dict(document)
    found = said.pop(MEMBER, UNVERSIONED)
    if not isinstance(found, int) or found < UNVERSIONED:
        raise LedgerMismatch(f"{store}: invalid {MEMBER}: expected a number, found {found!r}", "restore a backup")
    check(found, store)
    for step in pending(found, steps):
        step(said)
    return said


def unchanged(*_: object) -> None:
    """Change nothing: the step of a store whose contents a new format leaves as they are."""
