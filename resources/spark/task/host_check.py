"""Where a task runs, when that is another machine: its name, and whether it sees what driver and tasks must share."""

from __future__ import annotations

import socket
from pathlib import Path

from kpipe.errors import StagingFailed
from resources.object_store.uri import is_remote
from resources.spark.task.task_spec import Job

__all__ = ["NOT_SHARED", "arrived", "here"]

NOT_SHARED = "set KPIPE_STAGING to a folder that this machine and all workers see, or to s3://bucket/key"


def here() -> str:
    """This machine as `name/address`, as Spark writes it; the name alone where it has no address."""
    name = socket.gethostname()
    try:
        return f"{name}/{socket.gethostbyname(name)}"
    except OSError:
        return name


def arrived(job: Job) -> None:
    """In a task, before anything is read: staging is reached as the driver reaches it.

    A folder that the driver has made for the batch must be there: a task that made one of its own would leave its files where
    nobody looks for them.

    Raises:
        StagingFailed: it is not there.
    """
    if is_remote(job.staging):
        from resources.object_store.s3 import use

        use(job.store)
    elif not Path(job.staging, job.batch).is_dir():
        raise StagingFailed(f"the staging folder {job.staging} is not the one that the driver sees", NOT_SHARED)
