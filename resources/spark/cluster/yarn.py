"""Check YARN before Spark connects: Hadoop's own client retries for 15 minutes and reports that only in a log."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from kpipe.errors import KpipeError, NotAvailable

__all__ = ["answers", "refused"]

# A ResourceManager that refuses connections is retried five times in 15 s, time enough for a restart; each retry takes 5 s
# more if it does not answer. Names and defaults: Hadoop's yarn-default.xml and core-default.xml. The session itself keeps the
# configured values, so that an application survives a longer outage.
_PATIENCE = {
    "yarn.resourcemanager.connect.max-wait.ms": "15000",
    "yarn.resourcemanager.connect.retry-interval.ms": "3000",
    "ipc.client.connect.max.retries": "0",
    "ipc.client.connect.max.retries.on.timeouts": "0",
    "ipc.client.connect.timeout": "5000",
    "ipc.client.rpc-timeout.ms": "15000",
}
_QUEUE = "spark.yarn.queue"


def answers(settings: Mapping[str, str]) -> None:
    """Wait until the ResourceManager has answered one request; starts the JVM in which the session will run.

    Args:
        settings: Spark's, of the session that is to be started.

    Raises:
        NotAvailable: it does not answer within a minute, or rejects this user.
    """
    from py4j.protocol import Py4JJavaError
    from pyspark import SparkConf, SparkContext

    items = list(settings.items())
    SparkContext._ensure_initialized(conf=SparkConf().setAll(items))
    java: Any = SparkContext._jvm
    spark = SparkConf().setAll(items)
    base = java.org.apache.spark.deploy.SparkHadoopUtil.get().newConfiguration(spark._jconf)
    hadoop = java.org.apache.hadoop.yarn.conf.YarnConfiguration(base)
    for name, value in _PATIENCE.items():
        hadoop.set(name, value)
    client = java.org.apache.hadoop.yarn.client.api.YarnClient.createYarnClient()
    try:
        client.init(hadoop)
        client.start()
        client.getYarnClusterMetrics()
    except Py4JJavaError as error:
        folder = os.environ.get("YARN_CONF_DIR") or os.environ.get("HADOOP_CONF_DIR")
        raise NotAvailable(
            f"YARN's ResourceManager at {_address(hadoop)} does not answer: {_reason(error.java_exception)}",
            f"start it, or correct its address in {folder}/yarn-site.xml",
        ) from error
    finally:
        with suppress(Py4JJavaError):
            client.stop()


def refused(error: BaseException) -> KpipeError | None:
    """Return the error to report if YARN rejected the application; None if the error has another cause."""
    rejection = re.search(r"Failed to submit \S+ to YARN : (.+)", str(error))
    if rejection is None:
        return None
    queue = re.search(r"unknown queue: (\S+)", rejection[1])
    if queue:
        return NotAvailable(
            f"YARN has no queue {queue[1]}", f"set Spark's {_QUEUE} to an existing queue (see docs/how-to/cluster.md)"
        )
    return NotAvailable(f"YARN rejects the application: {rejection[1][:300]}", "see the ResourceManager's log")


def _address(hadoop: Any) -> str:
    """Return the ResourceManager's address, or all addresses of a high-availability cluster."""
    name = "yarn.resourcemanager.address"
    ids = [str(id) for id in hadoop.getTrimmedStrings("yarn.resourcemanager.ha.rm-ids")]
    addresses = [hadoop.get(f"{name}.{id}") or f"{hadoop.get(f'yarn.resourcemanager.hostname.{id}')}:8032" for id in ids]
    return ", ".join(map(str, addresses)) or str(hadoop.get(name))


def _reason(error: Any) -> str:
    """Return the innermost exception's message, in one line."""
    while error.getCause() is not None:
        error = error.getCause()
    first = str(error.getMessage() or error.toString()).partition("\n")[0]
    return first.partition("; For more details")[0][:300]
