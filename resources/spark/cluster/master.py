"""Which Spark: what its master's address says of where tasks run, and what kpipe cannot use."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping

from kpipe.errors import InvalidPipeline, NotAvailable

__all__ = ["check", "chosen", "driver_address", "is_local"]

_LOCAL = re.compile(r"local(\[(\*|[1-9]\d*)(,\s*\d+)?\])?")
_STANDALONE = re.compile(r"spark://[^\s/:,]+:\d+(,[^\s/:,]+:\d+)*")
_KUBERNETES = re.compile(r"k8s://\S+")
_NO_RDD = (
    "Spark Connect (and serverless Spark, which is reached by it) runs no RDDs, which kpipe's tasks are",
    "set KPIPE_SPARK_MASTER to local[*], spark://HOST:PORT, yarn or k8s://https://HOST:PORT",
)


def chosen(master: str | None = None, environ: Mapping[str, str] | None = None) -> str:
    """The master that is asked for: the given one, else KPIPE_SPARK_MASTER, else `local[*]`."""
    values = os.environ if environ is None else environ
    return master or values.get("KPIPE_SPARK_MASTER") or "local[*]"


def is_local(master: str) -> bool:
    """Whether tasks run on this machine, in one JVM with the driver."""
    return _LOCAL.fullmatch(master) is not None


def check(master: str | None = None, environ: Mapping[str, str] | None = None) -> str:
    """The master, if kpipe can run on it. Asks nobody: what can be said before a JVM is started.

    Raises:
        NotAvailable: it cannot run what kpipe runs, with the reason.
        InvalidPipeline: it is no master that Spark knows, or lacks what Spark needs to find it.
    """
    values = os.environ if environ is None else environ
    url = chosen(master, values)
    where = "KPIPE_SPARK_MASTER" if master is None else "the Spark resource's master"
    if url.startswith("sc://"):
        raise NotAvailable(f"{where} is {url.partition(';')[0]}: {_NO_RDD[0]}", _NO_RDD[1])  # behind the ; there may be a token
    for name in ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED"):
        if values.get(name) and values[name] not in ("0", "false"):
            raise NotAvailable(f"{name} is set: {_NO_RDD[0]}", f"unset {name}")
    if url == "yarn":
        if not (values.get("HADOOP_CONF_DIR") or values.get("YARN_CONF_DIR")):
            raise InvalidPipeline(
                f"{where} is yarn, and neither HADOOP_CONF_DIR nor YARN_CONF_DIR says where that is", "export one"
            )
    elif not (is_local(url) or _STANDALONE.fullmatch(url) or _KUBERNETES.fullmatch(url)):
        raise InvalidPipeline(
            f"{where} is {url!r}, which is no master of Spark's", "local[*], spark://HOST:PORT, yarn or k8s://https://HOST:PORT"
        )
    return url


def driver_address(master: str, environ: Mapping[str, str] | None = None) -> str | None:
    """This machine's address as a standalone master's machine reaches it, by the route there; None: Spark finds its own.

    SPARK_LOCAL_IP, Spark's own variable, goes before. Nothing is sent.
    """
    values = os.environ if environ is None else environ
    if is_local(master):
        return "127.0.0.1"
    if values.get("SPARK_LOCAL_IP") or not _STANDALONE.fullmatch(master):
        return values.get("SPARK_LOCAL_IP")
    host, _, port = master.removeprefix("spark://").partition(",")[0].rpartition(":")
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as route:
            route.connect((host, int(port)))
            return str(route.getsockname()[0])
    except OSError:  # Spark will say what is wrong with it
        return None
