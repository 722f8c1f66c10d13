"""YARN, asked before Spark asks it: Hadoop's own client would try again for 15 minutes, and say so only in a log."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from kpipe.errors import KpipeError, NotAvailable

__all__ = ["answers", "refused"]

# A ResourceManager that refuses connections is asked five times in 15 s, which one that is started anew may need; one that is
# silent takes five times 5 s more. Names and defaults: Hadoop's yarn-default.xml and core-default.xml. Spark itself goes on with
# what the configuration says, so that an application lives through a longer absence.
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
    """Waits until the ResourceManager has answered one question; a JVM is started for it, in which the session goes on.

    Args:
        settings: Spark's, of the session that is to be started.

    Raises:
        NotAvailable: it does not answer within a minute, or does not let this user in.
    """
    from py4j.protocol import Py4JJavaError
    from pyspark import SparkConf, SparkContext

    asked = list(settings.items())
    SparkContext._ensure_initialized(conf=SparkConf().setAll(asked))
    java: Any = SparkContext._jvm
    spark = SparkConf().setAll(asked)
    given = java.org.apache.spark.deploy.SparkHadoopUtil.get().newConfiguration(spark._jconf)
    hadoop = java.org.apache.hadoop.yarn.conf.YarnConfiguration(given)
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
            f"does it run, and is it the one that {folder}/yarn-site.xml should name?",
        ) from error
    finally:
        with suppress(Py4JJavaError):
            client.stop()


def refused(error: BaseException) -> KpipeError | None:
    """What people read when YARN does not take the application; None if that is not what the error is about."""
    said = re.search(r"Failed to submit \S+ to YARN : (.+)", str(error))
    if said is None:
        return None
    queue = re.search(r"unknown queue: (\S+)", said[1])
    if queue:
        return NotAvailable(
            f"YARN has no queue {queue[1]}", f"set Spark's {_QUEUE} to one that it has (see docs/guide/cluster.md)"
        )
    return NotAvailable(f"YARN does not take the application: {said[1][:300]}", "ask who runs it; the same words are in its log")


def _address(hadoop: Any) -> str:
    """Where it is looked for; all of them where there are several."""
    name = "yarn.resourcemanager.address"
    ids = [str(one) for one in hadoop.getTrimmedStrings("yarn.resourcemanager.ha.rm-ids")]
    found = [hadoop.get(f"{name}.{one}") or f"{hadoop.get(f'yarn.resourcemanager.hostname.{one}')}:8032" for one in ids]
    return ", ".join(map(str, found)) or str(hadoop.get(name))


def _reason(error: Any) -> str:
    """The innermost exception's own words, in one line."""
    while error.getCause() is not None:
        error = error.getCause()
    first = str(error.getMessage() or error.toString()).partition("\n")[0]
    return first.partition("; For more details")[0][:300]
