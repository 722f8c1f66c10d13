"""Crash-points: named places on the whole way of a batch, where a test kills, stops or fails the process that comes by.

`KPIPE_FAULT=point:n:action` is read once, when this module is imported. When the process reaches the point for the n-th
time, it is killed (`kill`, SIGKILL), stopped (`stop`, SIGSTOP, until SIGCONT) or failed (`raise`, an error that nothing
expects, as a defect would). Spark's workers inherit the variable and count for themselves; programs never see it.
Without the variable a point costs some 30 ns, and none stands in a loop over records.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

from kpipe.errors import InvalidPipeline

__all__ = ["AUDITED", "POINTS", "VARIABLE", "Fault", "arm", "reach"]

VARIABLE = "KPIPE_FAULT"

#: In the order of the way. What is true at each is in docs/reliability.md.
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
    "mirror.before",
    "gc.scan",
    "gc.unlink",
)
#: Between `commit.before` and `commit.after`, only where a batch is audited before it is published (`into.audit`).
AUDITED = ("commit.branch", "commit.audit")


class Fault:
    """What `KPIPE_FAULT` asks for; called with the name of each point that is reached.

    Args:
        text: `point:n:action`, n from 1.

    Raises:
        InvalidPipeline: no such point or action. A point that is misspelt would never be reached, and a test of it pass.
    """

    def __init__(self, text: str) -> None:
        self.point, _, rest = text.partition(":")
        number, _, self.action = rest.partition(":")
        if (
            self.point not in (*POINTS, *AUDITED)
            or not number.isdigit()
            or int(number) < 1
            or self.action not in ("kill", "stop", "raise")
        ):
            raise InvalidPipeline(
                f"{VARIABLE} is {text!r}", f"unset it, or write point:n:kill, :stop or :raise; points: {', '.join(POINTS)}"
            )
        self.left = int(number)

    def __call__(self, point: str) -> None:
        """Count, and act when it is time."""
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
    """Call this with the name of every point that this process reaches from now on; None: nothing more."""
    global _armed
    _armed = fault


def reach(point: str) -> None:
    """The process is at this point of the way."""
    if _armed is not None:
        _armed(point)


if _asked := os.environ.get(VARIABLE):
    arm(Fault(_asked))
