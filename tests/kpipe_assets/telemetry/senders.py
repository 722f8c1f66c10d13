"""Senders of a process that starts again."""

from __future__ import annotations

from contextlib import suppress
from queue import Empty

from kpipe_assets.telemetry import sender as senders
from kpipe_assets.telemetry.sender import Sender


def discard(sender: Sender) -> None:
    """Drop what waits, wait for what is being delivered, and leave the sender out of `finish_all`.

    Otherwise each later command in this process waits `FINISH_S` for deliveries that never end, and what fails is reported
    in another test. A receiver that hangs must have been stopped.
    """
    with suppress(Empty):
        while True:
            sender._waiting.get_nowait()
            sender._waiting.task_done()
    with sender._waiting.all_tasks_done:
        sender._waiting.all_tasks_done.wait_for(lambda: not sender._waiting.unfinished_tasks, 300)
    with suppress(ValueError):  # its thread has not started
        senders._started.remove(sender)
