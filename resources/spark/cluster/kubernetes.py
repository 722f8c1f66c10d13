"""Find out from Kubernetes why Spark has no executors, through Spark's own client and its permissions."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["RIGHTS", "gave_up", "pending", "refusal", "refused"]

RIGHTS = "see deploy/kubernetes/kpipe.yaml for the Role that the service account of kpipe's pod needs"
_MOST = 200_000  # bytes read from the end of the log
_GAVE_UP = re.compile(r"ExecutorPods\w+: (Max number of executor failures .*)")
# Permanent rejections: the request is invalid or not allowed. An API server that is down or busy sends other status codes.
_REFUSAL = re.compile(
    r"KubernetesClientException: .*?Message: (.+?)\. Received status: Status\(apiVersion=v1, code=4(?:00|01|03|04|22)\b"
)
# Reasons of a waiting container that need an operator (kubelet's, pkg/kubelet/images and kuberuntime).
_BROKEN = frozenset({
    "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull",
    "CreateContainerConfigError", "CreateContainerError", "RunContainerError", "CrashLoopBackOff",
})  # fmt: skip


def refused(context: SparkContext, log: Path | None, since: int) -> tuple[str, str] | None:
    """Return the cluster's reason for not starting an executor, with a hint; None without a reason or without Kubernetes.

    Args:
        context: of the application.
        log: the log of Spark's JVM.
        since: offset in the log, in bytes, at which this wait began.
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
                return what, "name an image that the cluster's nodes can pull: spark.kubernetes.container.image"
    rejection = refusal(log, since)
    return (rejection, RIGHTS) if rejection else None


def gave_up(context: SparkContext, log: Path | None) -> tuple[str, str] | None:
    """Return why Spark ended the application after too many executors failed, with a hint; None if it did not."""
    match = _GAVE_UP.search(_read(log)) if _is_kubernetes(context) else None
    if match is None:
        return None
    rejection = refusal(log)
    return (rejection, RIGHTS) if rejection else (match[1], "see the logs of executors' pods, and logs/spark.log in KPIPE_HOME")


def pending(context: SparkContext) -> str:
    """Return the condition for which an executor's pod is waiting; empty if no pod waits, or without Kubernetes."""
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
    pods = client.pods().inNamespace(namespace).withLabel("spark-app-selector", str(context.applicationId)).list()
    return list(pods.getItems())


def refusal(log: Path | None, since: int = 0) -> str:
    """Return the API server's last rejection that Spark logged after this offset; empty if it logged none."""
    matches = _REFUSAL.findall(_read(log, since))
    return str(matches[-1]).strip() if matches else ""


def _read(log: Path | None, since: int = 0) -> str:
    if log is None or not log.exists():
        return ""
    with log.open("rb") as file:
        file.seek(max(since, log.stat().st_size - _MOST))
        return file.read().decode(errors="replace")
