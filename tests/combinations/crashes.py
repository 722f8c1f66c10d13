"""Kills, failures and delays at the points of kpipe/failpoints.py, in this process."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["FAULT", "Fault", "Killed"]

FAULT = "KPIPE_FAULT"


class Killed(BaseException):
    """The process has ended here."""


class Fault:
    """Kills, fails or dawdles at a point; a killed process reaches no further point, however it unwinds.

    Args:
        text: `kill:POINT:N`, `raise:POINT:N` or `outlive:POINT:N`.
        outlive: lets the transaction that is open end by itself.
    """

    def __init__(self, text: str, outlive: Callable[[], None] = lambda: None) -> None:
        self._outlive = outlive
        self._action, self._point, left = text.split(":")
        self._left, self.reached = int(left), False

    @property
    def outlives(self) -> bool:
        """Whether it only takes long."""
        return self._action == "outlive"

    def __call__(self, point: str) -> None:
        if self.reached and self._action == "kill":
            raise Killed
        if point == self._point and not self.reached:
            self._left -= 1
            if self._left == 0:
                self.reached = True
                if self._action == "kill":
                    raise Killed
                if self.outlives:
                    self._outlive()
                    return
                raise RuntimeError(f"{FAULT}: failed at {point}")
