"""What Kubernetes says of Spark's executors, where there are none: asked through Spark's own client, with its rights."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["RIGHTS", "gave_up", "pending", "refusal", "refused"]

RIGHTS = "see docs/guide/kubernetes/kpipe.yaml for the Role that the service account of kpipe's pod needs"
_MOST = 200_000  # bytes of the log, from its end
_GAVE_UP = re.compile(r"ExecutorPods\w+: (Max number of executor failures .*)")
# Answers that come again: the request is wrong, or not allowed. An API server that is away or busy gives others.
_REFUSAL = re.compile(
    r"KubernetesClientException: .*?Message: (.+?)\. Received status: Status\(apiVersion=v1, code=4(?:00|01|03|04|22)\b"
)
# Reasons of a waiting container that do not go away by themselves (kubelet's, pkg/kubelet/images and kuberuntime).
_BROKEN = frozenset({
    "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull",
    "CreateContainerConfigError", "CreateContainerError", "RunContainerError", "CrashLoopBackOff",
})  # fmt: skip


def refused(context: SparkContext, log: Path | None, since: int) -> tuple[str, str] | None:
    """What the cluster will not do, and what to do about it; None where there is nothing, or no Kubernetes.

    Args:
        context: of the application.
        log: what Spark's JVM writes.
        since: bytes of it that are of earlier times.
    """
    client = _client(context)
    if client is None:
        return None
    for pod in _pods(context, client):
        for status in pod.getStatus().getContainerStatuses():
            waiting = status.getState().getWaiting()
            if waiting is not None and waiting.getReason() in _BROKEN:
                name, image = pod.getMetadata().getName(), status.getImage()
                what = f"pod {name} cannot start image {image}: {waiting.getReason()}: {waiting.getMessage() or ''}".rstrip(": ")
                return what, "name an image that the cluster's nodes can get: spark.kubernetes.container.image"
    said = refusal(log, since)
    return (said, RIGHTS) if said else None


def gave_up(context: SparkContext, log: Path | None) -> tuple[str, str] | None:
    """Why Spark has ended itself, as it does when too many executors could not be made or have failed; None if it has not."""
    match = _GAVE_UP.search(_read(log)) if _is_kubernetes(context) else None
    if match is None:
        return None
    said = refusal(log)
    return (said, RIGHTS) if said else (match[1], "see the logs of executors' pods, and logs/spark.log in KPIPE_HOME")


def pending(context: SparkContext) -> str:
    """What the pods that are there wait for; empty where there are none, or no Kubernetes."""
    client = _client(context)
    for pod in _pods(context, client) if client is not None else ():
        for condition in pod.getStatus().getConditions():
            if condition.getStatus() != "True" and condition.getMessage():
                return f"pod {pod.getMetadata().getName()}: {condition.getReason()}: {condition.getMessage()}"
    return ""


def _client(context: SparkContext) -> Any | None:
    return context._jsc.sc().schedulerBackend().kubernetesClient() if _is_kubernetes(context) else None


def _is_kubernetes(context: SparkContext) -> bool:
    return str(context.master).startswith("k8s://")


def _pods(context: SparkContext, client: Any) -> list[Any]:
    namespace = context._conf.get("spark.kubernetes.namespace", "default")
    found = client.pods().inNamespace(namespace).withLabel("spark-app-selector", str(context.applicationId)).list()
    return list(found.getItems())


def refusal(log: Path | None, since: int = 0) -> str:
    """The last refusal that Spark has logged behind so many bytes, in the API server's words; empty where there is none."""
    matches = _REFUSAL.findall(_read(log, since))
    return str(matches[-1]).strip() if matches else ""


def _read(log: Path | None, since: int = 0) -> str:
    if log is None or not log.exists():
        return ""
    with log.open("rb") as file:
        file.seek(max(since, log.stat().st_size - _MOST))
        return file.read().decode(errors="replace")
