"""What deploy/kubernetes holds, on a real API server: the manifest, its account, executors that come and go, and what is
said when none can come. What runs the pods is a stand-in (node.py).
"""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Callable

import pytest

from tests.kubernetes.control import Control
from tests.kubernetes.node import Image
from tests.kubernetes.site import DRIVER, IMAGE, NAMESPACE, PASSWORD, Site, wait

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow, pytest.mark.chaos]


def test_rows_are_exact_and_executors_come_and_go(site: Callable[..., Site], control: Control) -> None:
    """From no executor at all, with the account's rights, in the image; a batch finds as many executors as it has ranges."""
    one = site()
    one.spark["spark.dynamicAllocation.executorIdleTimeout"] = "5s"
    one.write(rounds=3)
    one.hold()
    one.start("--follow")
    told = one.at_work()
    assert len({begun.host for begun in told}) == 3, told
    pods = one.pods()
    assert PASSWORD not in json.dumps(pods), "executors were given what is the driver's"
    assert all(pod["metadata"]["ownerReferences"][0]["name"] == DRIVER for pod in pods)
    one.release()
    one.exact()
    wait(lambda: not one.pods(), "idle executors gone", 60, one.said)
    one.write()
    one.exact()
    assert "Traceback" not in one.said()
    assert PASSWORD not in one.said()


def test_the_role_is_what_spark_asks_for(site: Callable[..., Site], control: Control) -> None:
    """By the API server's audit of a run from its beginning to its end: nothing was refused, and nothing left behind."""
    one = site()
    behind = control.audit.stat().st_size
    one.write()
    one.start()
    assert one.ended() == 0, one.said()
    one.exact()
    wait(lambda: not one.pods(), "the run took its executors with it", 30, one.said)
    logs = "".join(file.read_text(errors="replace") for file in one.node.folder.glob("*-exec-*/log"))
    reached = set(re.findall(r"created connection to \S*/([\d.]+):", logs))
    assert reached, "executors reach the driver"
    assert {address.rpartition(".")[0] for address in reached} == {control.network}, reached
    with control.audit.open(encoding="utf-8") as file:
        file.seek(behind)
        asked = [json.loads(line) for line in file]
    asked = [entry for entry in asked if entry["user"]["username"] == f"system:serviceaccount:{NAMESPACE}:kpipe"]
    assert [entry for entry in asked if entry["responseStatus"]["code"] == 403] == []
    assert control.admin.list("configmaps", NAMESPACE, **{"spark-role": "executor"}) == []
    used = {(entry["objectRef"]["resource"], entry["verb"]) for entry in asked}
    (role,) = (thing for thing in one.things() if thing["kind"] == "Role")
    given = {(resource, verb) for rule in role["rules"] for resource in rule["resources"] for verb in rule["verbs"]}
    assert used <= given and given - used <= {("pods", "delete")}  # of one executor, when it is idle for long


def test_pods_that_are_taken_in_mid_batch(site: Callable[..., Site], control: Control) -> None:
    """An executor's, as by `kubectl delete pod`; another's, killed; then the driver's: its set makes it anew, and the garbage
    collector takes its executors. Rows are exact each time.
    """
    one = site(batch={"interval_ms": 300, "max_retries": 8})
    one.write()
    one.hold(attempt=0)
    one.start("--follow")
    told = one.at_work()
    first, second = (next(begun.host for begun in told if begun.partition == number) for number in (0, 1))
    control.admin.delete("pods", NAMESPACE, first)
    one.node.end(second, signal.SIGKILL)
    one.at_work(5)
    one.release()
    one.exact()
    (shared,) = {pod["metadata"]["ownerReferences"][0]["uid"] for pod in one.pods()}

    one.hold()
    (one.shared / "told").unlink()
    one.write()
    one.at_work(1)
    control.admin.delete("pods", NAMESPACE, DRIVER, 0)
    one.node.end(DRIVER, signal.SIGKILL)

    def orphans() -> list[str]:
        pods = one.pods()
        return [pod["metadata"]["name"] for pod in pods if pod["metadata"]["ownerReferences"][0]["uid"] == shared]

    wait(lambda: not orphans(), "the garbage collector", 90, one.said)
    one.release()
    one.exact()


@pytest.mark.parametrize(("verb", "says"), [("create", "cannot create resource"), ("get", "cannot get resource")])
def test_an_account_that_may_not(verb: str, says: str, site: Callable[..., Site]) -> None:
    """Said with the account and the right that it lacks, instead of waiting for ever."""
    one = site()
    one.rights.remove(verb)
    one.write()
    one.start()
    assert one.ended(within=180) == 1
    said = one.node.log(DRIVER)
    assert "system:serviceaccount:kpipe:kpipe" in said and says in said and "Traceback" not in said, said
    if verb == "create":
        assert "Spark gets no executor" in said
    assert "-> see deploy/kubernetes/kpipe.yaml for the Role" in said


def test_an_image_that_cannot_be_had(site: Callable[..., Site]) -> None:
    one = site()
    one.spark["spark.kubernetes.container.image"] = "registry.example.com/nobody:1"
    one.write()
    began = time.monotonic()
    one.start()
    assert one.ended(within=180) == 1
    assert time.monotonic() - began < 180
    said = one.node.log(DRIVER)
    assert "cannot start image registry.example.com/nobody:1: ErrImagePull" in said, said
    assert "-> name an image that the cluster's nodes can pull: spark.kubernetes.container.image" in said
    assert "Traceback" not in said


def test_an_image_that_runs_and_ends(site: Callable[..., Site]) -> None:
    """Spark itself gives up after some, by ending its JVM."""
    one = site()
    name = "registry.example.com/another:1"
    one.node.images[name] = Image(one.node.images[IMAGE].root, {**one.node.images[IMAGE].config, "Entrypoint": ["/bin/false"]})
    one.spark["spark.kubernetes.container.image"] = name
    one.write()
    one.start()
    assert one.ended(within=180) == 1
    said = one.node.log(DRIVER)
    assert "Spark gets no executor: Max number of executor failures" in said and "logs of executors' pods" in said, said
    assert "Traceback" not in said


def test_pods_that_no_node_takes(site: Callable[..., Site]) -> None:
    """As where a cluster is full: given up after the time that was set, with the scheduler's reason."""
    one = site()
    one.spark["spark.kpipe.executorTimeout"] = "20"
    one.node.full = "0/1 nodes are available: 1 Insufficient cpu."
    one.write()
    one.start()
    assert one.ended(within=180) == 1
    said = one.node.log(DRIVER)
    assert "Spark gets no executor" in said and "Insufficient cpu" in said and "spark.kpipe.executorTimeout" in said, said
