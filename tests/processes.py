"""What a test asks about processes that may end at any moment."""

from __future__ import annotations

import gc
import multiprocessing
from collections.abc import Callable
from multiprocessing.process import BaseProcess

import psutil


def is_running(pid: int) -> bool:
    """Whether the process exists and is no zombie; between two questions to psutil it could end."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def forked(target: Callable[[], object]) -> BaseProcess:
    """Start a fork of this process.

    It leaves the garbage of earlier tests alone, which may belong to threads of native libraries that a fork does not have. That
    includes what libraries do in each fork before `target` begins, as OpenTelemetry does.
    """

    def inside() -> None:
        gc.freeze()
        gc.enable()
        target()

    process = multiprocessing.get_context("fork").Process(target=inside)
    gc.disable()
    try:
        process.start()
    finally:
        gc.enable()
    return process
