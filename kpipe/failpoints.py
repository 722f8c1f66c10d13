"""Failpoints: named places in the code where a test kills, stops or fails the process.

`KPIPE_FAULT=point:n:action` is read once, when this module is imported. When the process reaches the point for the n-th
time, it is killed (`kill`: SIGKILL), stopped (`stop`: SIGSTOP, until SIGCONT) or failed. `raise` fails it with an error
that no caller expects, as a defect would. Spark's workers inherit the variable and count by themselves; transform programs
do not get it. Without the variable a point costs some 30 ns. No point is inside a loop over records.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

from kpipe.errors import InvalidPipeline

__all__ = [
    "AUDITED", "BY_TOPIC", "DIVIDED", "LETTERS", "MAINTAINED", "POINTS", "REBUILT", "VARIABLE", "Fault", "arm", "failpoint",
]  # fmt: skip

VARIABLE = "KPIPE_FAULT"

#: In the order of a batch. docs/explanation/reliability.md lists the state at each point.
POINTS = (
    "plan.ledger",
    "plan.offsets",
    "plan.frozen",
    "read.first",
    "read.end",
    "tx.spawned",
    "tx.eof",
    "stage.close",
    "stage.fsync",
    "collect.partial",
    "collect.all",
    "commit.verify",
    "commit.open",
    "commit.begin",
    "commit.ledger",
    "commit.register",
    "commit.table",
    "commit.data",
    "commit.dead_letters",
    "commit.history",
    "commit.before",
    "commit.after",
    "readback",
    "publish.before",
    "gc.scan",
    "gc.unlink",
)
#: Of `kpipe rebuild`, beside those of its batches and of the commit that exchanges the tables.
REBUILT = ("rebuild.begun", "rebuild.built", "rebuild.compared", "rebuild.exchanging", "rebuild.exchanged", "rebuild.defined")
#: Of `kpipe maintain`.
MAINTAINED = (
    "maintain.written", "maintain.staged", "maintain.proven", "maintain.committed", "maintain.expired", "maintain.removing",
)  # fmt: skip
#: Between `commit.before` and `commit.after`, only for a destination with `into.audit`.
AUDITED = ("commit.branch", "commit.audit")
#: Between the commit that partitions an audited table and the batch's first commit to its branch.
DIVIDED = ("commit.divided",)
#: Between the commits of two tables, only with tables by topic in a table format.
BY_TOPIC = ("commit.next_table",)

#: Of the transaction that writes dead letters to `errors.topic`.
LETTERS = ("letters.read", "letters.before", "letters.after")


class Fault:
    """Action of `KPIPE_FAULT`, called with the name of each point that is reached.

    Args:
        text: `point:n:action`, n from 1.

    Raises:
        InvalidPipeline: the point or the action does not exist. A misspelled point is never reached, so its test would pass.
    """

    def __init__(self, text: str) -> None:
        self.point, _, rest = text.partition(":")
        number, _, self.action = rest.partition(":")
        if (
            self.point not in (*POINTS, *AUDITED, *DIVIDED, *BY_TOPIC, *REBUILT, *MAINTAINED, *LETTERS)
            or not number.isdigit()
            or int(number) < 1
            or self.action not in ("kill", "stop", "raise")
        ):
            raise InvalidPipeline(
                f"{VARIABLE}: invalid value: expected point:n:kill, point:n:stop or point:n:raise, found {text!r}",
                f"unset {VARIABLE}, or use one of these points: {', '.join(POINTS)}",
            )
        self.left = int(number)

    def __call__(self, point: str) -> None:
        """Count the point, and act on the n-th time."""
        if point != self.point:
            return
        self.left -= 1
        if self.left:
            return
        if self.action == "raise":
            raise RuntimeError(f"{VARIABLE}: failed at {point}")
        os.kill(os.getpid(), signal.SIGKILL if self.action == "kill" else signal.SIGSTOP)


_armed: Callable[[str], None] | None = None


def arm(fault: Callable[[str], None] | None) -> None:
    """Call `fault` with the name of every point that this process reaches; None: stop calling."""
    global _armed
    _armed = fault


def failpoint(point: str) -> None:
    """Report that the process has reached this point."""
    if _armed is not None:
        _armed(point)


if _asked := os.environ.get(VARIABLE):
    arm(Fault(_asked))
