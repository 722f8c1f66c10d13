"""Senders of a process that starts again."""

from __future__ import annotations

from contextlib import suppress
from queue import Empty

from kpipe_assets.telemetry import sender as senders
from kpipe_assets.telemetry.sender import Sender


def discard(sender: Sender) -> None:
    """Drop what waits, and leave the sender out of `finish_all`.

    Otherwise each later command in this process waits `FINISH_S` for deliveries that never end.
    """
    with suppress(Empty):
        while True:
            sender._waiting.get_nowait()
            sender._waiting.task_done()
    with suppress(ValueError):  # its thread has not started
        senders._started.remove(sender)
