"""Select Spark's master, and reject masters that kpipe cannot use."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping

from kpipe.errors import InvalidPipeline, NotAvailable
from resources.extras import require

__all__ = ["SWITCH", "check", "chosen", "driver_address", "is_local", "uses_service"]

SWITCH = "KPIPE_SPARK"
"""`service`: runs use the Spark of `kpipe serve`."""

_LOCAL = re.compile(r"local(\[(\*|[1-9]\d*)(,\s*\d+)?\])?")
_STANDALONE = re.compile(r"spark://[^\s/:,]+:\d+(,[^\s/:,]+:\d+)*")
_KUBERNETES = re.compile(r"k8s://\S+")
_NO_RDD = (
    "Spark Connect (also used by serverless Spark) does not support RDDs, on which kpipe's tasks run",
    "set KPIPE_SPARK_MASTER to local[*], spark://HOST:PORT, yarn or k8s://https://HOST:PORT",
)


def chosen(master: str | None = None, environ: Mapping[str, str] | None = None) -> str:
    """Return the master: the argument, else KPIPE_SPARK_MASTER, else `local[*]`."""
    values = os.environ if environ is None else environ
    return master or values.get("KPIPE_SPARK_MASTER") or "local[*]"


def uses_service(environ: Mapping[str, str] | None = None) -> bool:
    """Return whether runs use the Spark of `kpipe serve`, and start none.

    Raises:
        InvalidPipeline: the variable has another value.
    """
    value = (os.environ if environ is None else environ).get(SWITCH, "")
    if value not in ("", "service"):
        raise InvalidPipeline(f"{SWITCH}: expected service, found {value!r}", f"export {SWITCH}=service, or unset it")
    return bool(value)


def is_local(master: str) -> bool:
    """Return True if tasks run on this machine, in one JVM with the driver."""
    return _LOCAL.fullmatch(master) is not None


def check(master: str | None = None, environ: Mapping[str, str] | None = None) -> str:
    """Return the master if kpipe can run on it; checks what needs no JVM and no connection.

    Raises:
        NotAvailable: PySpark is not installed, or the master cannot run kpipe's tasks; the message contains the reason.
        InvalidPipeline: Spark does not support such a master, its configuration folder is not set, or KPIPE_SPARK is invalid.
    """
    values = os.environ if environ is None else environ
    require("spark", "a run")
    uses_service(values)
    url = chosen(master, values)
    where = "KPIPE_SPARK_MASTER" if master is None else "the Spark resource's master"
    if url.startswith("sc://"):
        raise NotAvailable(f"{where} is {url.partition(';')[0]}: {_NO_RDD[0]}", _NO_RDD[1])  # a token may follow the semicolon
    for name in ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED"):
        if values.get(name) and values[name] not in ("0", "false"):
            raise NotAvailable(f"{name} is set: {_NO_RDD[0]}", f"unset {name}")
    if url == "yarn":
        if not (values.get("HADOOP_CONF_DIR") or values.get("YARN_CONF_DIR")):
            raise InvalidPipeline(
                f"{where} is yarn: YARN's configuration is missing: expected its folder in HADOOP_CONF_DIR or YARN_CONF_DIR",
                "export YARN_CONF_DIR=...",
            )
    elif not (is_local(url) or _STANDALONE.fullmatch(url) or _KUBERNETES.fullmatch(url)):
        expected = "local[*], spark://HOST:PORT, yarn or k8s://https://HOST:PORT"
        raise InvalidPipeline(
            f"{where}: not a master of Spark: expected {expected}, found {url!r}",
            "export KPIPE_SPARK_MASTER=local[*]" if master is None else "set the resource's `master`",
        )
    return url


def driver_address(master: str, environ: Mapping[str, str] | None = None) -> str | None:
    """Return this machine's address on the route to a standalone master; None if Spark selects one itself.

    Spark's own variable SPARK_LOCAL_IP takes precedence. No packet is sent.
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
    except OSError:  # Spark will report the problem
        return None
