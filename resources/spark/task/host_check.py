"""Check on another machine that a task sees the staging folder of the driver, and name its host."""

from __future__ import annotations

import socket
from pathlib import Path

from kpipe.errors import StagingFailed
from resources.object_store.uri import is_remote
from resources.spark.task.task_spec import JobSpec

__all__ = ["NOT_SHARED", "arrived", "here"]

NOT_SHARED = "set KPIPE_STAGING to a folder that this machine and all workers share, or to an object store"


def here() -> str:
    """Return this host as `name/address`, in Spark's format; the name alone if it has no address."""
    name = socket.gethostname()
    try:
        return f"{name}/{socket.gethostbyname(name)}"
    except OSError:
        return name


def arrived(job: JobSpec) -> None:
    """Check in a task, before it reads anything, that it has access to the driver's staging location.

    The folder that the driver created for the batch must exist: if a task created one, its files would be on the worker's
    own disk, where the driver cannot read them.

    Raises:
        StagingFailed: the folder does not exist.
    """
    if is_remote(job.staging):
        from resources.object_store.clients import use

        use(job.store)
    elif not Path(job.staging, job.batch).is_dir():
        raise StagingFailed(f"the staging folder {job.staging} is not shared with the driver", NOT_SHARED)
