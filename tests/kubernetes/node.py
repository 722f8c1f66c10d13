"""In the place of scheduler and kubelet, for tests: runs the pods of a namespace as processes on this machine.

Real is the API server that it talks to, and the image: each container has the image's file system with a layer of its own
over it, its user, its processes and its volumes (namespaces). A stand-in is all the rest. Every pod is bound to one node; there
are no limits of memory or processors, no probes, no images from registries; pods have addresses of the loopback device instead
of a network; names of services are in `/etc/hosts` instead of DNS; a claim for a volume is a folder. Capabilities and seccomp
profiles are not applied.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from tests.kubernetes.api import Api, ApiError, Object
from tests.kubernetes.control import Control

INSIDE = Path(__file__).with_name("container.py")
_LOOK_S = 0.2
NODE = "stand-in"


@dataclass(frozen=True)
class Image:
    """What an image's name stands for.

    Attributes:
        root: its file system.
        config: as the image has it: Entrypoint, Cmd, Env, User, WorkingDir.
    """

    root: Path
    config: dict[str, Any]


@dataclass
class Running:
    """A container that was begun."""

    process: subprocess.Popen[bytes]
    address: str
    folder: Path
    killed: float | None = None
    said: bool = False

    def signal(self, number: int) -> None:
        """To its first process; `unshare`, which waits for it, ends with it."""
        with suppress(psutil.NoSuchProcess):
            for first in psutil.Process(self.process.pid).children():
                first.send_signal(number)


@dataclass
class Node:
    """Runs what is in one namespace.

    Attributes:
        control: the API server.
        namespace: whose pods.
        folder: for volumes, layers and logs.
        images: by name; others cannot be had (ErrImagePull).
        claims: folders of persistent volumes, by the claim's name.
        full: why executors find no place; empty when they do.
    """

    control: Control
    namespace: str
    folder: Path
    images: dict[str, Image]
    claims: dict[str, Path] = field(default_factory=dict)
    running: dict[str, Running] = field(default_factory=dict)
    seen: list[Object] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    full: str = ""
    _count: int = 10
    _end: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._work, name=f"node of {self.namespace}")

    @property
    def api(self) -> Api:
        """As an administrator, which a kubelet is not."""
        return self.control.admin

    def start(self) -> None:
        """From now on pods are run."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._thread.start()

    def stop(self) -> None:
        """End all of them at once."""
        self._end.set()
        self._thread.join(30)
        for one in self.running.values():
            one.process.kill()  # --kill-child: with all processes of its pid namespace
            one.process.wait()

    def end(self, pod: str, number: int) -> None:
        """That signal to a pod's first process; from there it is nobody's wish."""
        newest = max(self.folder.glob(f"{pod}-*"), key=lambda folder: folder.stat().st_mtime)
        (one,) = (one for one in self.running.values() if one.folder == newest)
        one.signal(number)

    def log(self, pod: str) -> str:
        """What its container wrote."""
        return "\n".join(file.read_text(errors="replace") for file in sorted(self.folder.glob(f"{pod}-*/log")))

    def _work(self) -> None:
        while not self._end.wait(_LOOK_S):
            try:
                for pod in self.api.list("pods", self.namespace):
                    self._look(pod)
            except (ApiError, OSError) as error:  # a pod that has gone since; anything else comes again
                if not (isinstance(error, ApiError) and error.status in (404, 409)):
                    self.problems.append(repr(error))
            except Exception as error:
                self.problems.append(repr(error))
                raise

    def _look(self, pod: Object) -> None:
        key, name = pod["metadata"]["uid"], pod["metadata"]["name"]
        one = self.running.get(key)
        if one is None:
            if "deletionTimestamp" in pod["metadata"]:
                self.api.delete("pods", self.namespace, name, 0)
            elif pod["status"].get("phase") == "Pending":
                self._begin(pod)
            return
        status = one.process.poll()
        if status is None and "deletionTimestamp" in pod["metadata"]:
            if one.killed is None:
                one.killed = time.monotonic() + pod["metadata"].get("deletionGracePeriodSeconds", 30)
                one.signal(signal.SIGTERM)
            elif time.monotonic() > one.killed:
                one.process.kill()
        elif status is not None:
            if "deletionTimestamp" in pod["metadata"]:
                self.api.delete("pods", self.namespace, name, 0)
            elif not one.said:
                # A kubelet would begin the container anew where that is asked for; here what it ended with is kept.
                phase = "Running" if pod["spec"]["restartPolicy"] == "Always" else "Failed" if status else "Succeeded"
                self._say(pod, phase, one.address, {"terminated": {"exitCode": status % 256}})
                one.said = True

    def _begin(self, pod: Object) -> None:
        name = pod["metadata"]["name"]
        (container,) = pod["spec"]["containers"]
        if self.full and pod["metadata"]["labels"].get("spark-role") == "executor":
            condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": self.full}
            self._patch(name, {"conditions": [condition]})
            return
        if not pod["spec"].get("nodeName"):
            binding = {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"name": name},
                "target": {"kind": "Node", "name": NODE},
            }
            self.api.ask("POST", f"api/v1/namespaces/{self.namespace}/pods/{name}/binding", binding)
            self.seen.append(pod)
        image = self.images.get(container["image"])
        if image is None:
            reason = {"reason": "ErrImagePull", "message": f"{container['image']}: not found"}
            self._say(pod, "Pending", "", {"waiting": reason})
            return
        self._count += 1
        address, folder = f"{self.control.network}.{self._count}", self.folder / f"{name}-{self._count}"
        folder.mkdir()
        spec = self._spec(pod, container, image, address, folder)
        (folder / "spec.json").write_text(json.dumps(spec), encoding="utf-8")
        words = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--uts", "--ipc", sys.executable, str(INSIDE)]
        with (folder / "log").open("ab") as log:
            process = subprocess.Popen([*words, str(folder / "spec.json")], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.running[pod["metadata"]["uid"]] = Running(process, address, folder)
        self._say(pod, "Running", address, {"running": {}})

    def _say(self, pod: Object, phase: str, address: str, state: Object) -> None:
        ready = "True" if "running" in state else "False"
        (container,) = pod["spec"]["containers"]
        status = {
            "phase": phase,
            "conditions": [{"type": kind, "status": ready} for kind in ("Ready", "ContainersReady", "PodScheduled")],
            "containerStatuses": [{
                "name": container["name"], "image": container["image"], "imageID": "", "restartCount": 0,
                "ready": ready == "True", "state": state,
            }],
            **({"podIP": address, "podIPs": [{"ip": address}], "hostIP": f"{self.control.network}.2"} if address else {}),
        }  # fmt: skip
        self._patch(pod["metadata"]["name"], status)

    def _patch(self, pod: str, status: Object) -> None:
        path = f"api/v1/namespaces/{self.namespace}/pods/{pod}/status"
        self.api.ask("PATCH", path, {"status": status}, "application/strategic-merge-patch+json")

    # -- what a container is made of ------------------------------------------------------------------------------------

    def _spec(self, pod: Object, container: Object, image: Image, address: str, folder: Path) -> Object:
        layers = [image.root, *(folder / name for name in ("upper", "work", "root"))]
        for layer in layers[1:]:
            layer.mkdir(mode=0o755)
        own = {"metadata.name": pod["metadata"]["name"], "metadata.namespace": self.namespace, "status.podIP": address}
        user, group = int(image.config["User"].partition(":")[0]), pod["spec"].get("securityContext", {}).get("fsGroup", 0)
        assert user, "an image whose user is root"
        volumes = {volume["name"]: volume for volume in pod["spec"].get("volumes", ())}
        mounts = [(str(self._hosts(folder, pod, address)), "/etc/hosts")]
        for mount in container.get("volumeMounts", ()):
            place = self._volume(volumes[mount["name"]], pod, folder / "volumes" / mount["name"], group, own)
            mounts.append((str(place / mount["subPath"] if "subPath" in mount else place), mount["mountPath"]))
        host = self.control.address
        environment = dict(word.partition("=")[::2] for word in image.config.get("Env", ()))
        environment |= {"HOME": "/home/kpipe", "KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": "443"}
        for source in container.get("envFrom", ()):
            environment |= self._data("secrets", source["secretRef"]["name"])
        for one in container.get("env", ()):
            if "valueFrom" in one:
                environment[one["name"]] = own[one["valueFrom"]["fieldRef"]["fieldPath"]]
            else:
                environment[one["name"]] = one.get("value", "")
        entry = container.get("command") or image.config["Entrypoint"]
        return {
            "layers": [str(layer) for layer in layers],
            "mounts": sorted(mounts, key=lambda pair: pair[1]),
            "words": [*entry, *(container.get("args") or ([] if "command" in container else image.config["Cmd"]))],
            "environment": environment, "user": user, "folder": image.config["WorkingDir"],
            "name": pod["spec"].get("hostname") or pod["metadata"]["name"],
        }  # fmt: skip

    def _hosts(self, folder: Path, pod: Object, address: str) -> Path:
        """The names that cluster DNS would answer: the API server's, the pod's own, and those of headless services' pods."""
        lines = ["127.0.0.1 localhost", f"{self.control.address} kubernetes.default.svc", f"{address} {pod['metadata']['name']}"]
        for service in self.api.list("services", self.namespace):
            chosen = {name: str(value) for name, value in service["spec"].get("selector", {}).items()}
            for other in self.api.list("pods", self.namespace, **chosen):
                known = self.running.get(other["metadata"]["uid"])
                at = address if other["metadata"]["uid"] == pod["metadata"]["uid"] else known.address if known else ""
                if at and other["spec"].get("subdomain") == service["metadata"]["name"]:
                    lines.append(f"{at} {other['spec']['hostname']}.{service['metadata']['name']}.{self.namespace}.svc")
        (folder / "hosts").write_text("\n".join(lines) + "\n", encoding="utf-8")
        return folder / "hosts"

    def _volume(self, volume: Object, pod: Object, folder: Path, group: int, own: dict[str, str]) -> Path:
        if "persistentVolumeClaim" in volume:
            folder = self.claims[volume["persistentVolumeClaim"]["claimName"]]
        folder.mkdir(parents=True, exist_ok=True)
        if "configMap" in volume:
            _files(folder, self._data("configmaps", volume["configMap"]["name"]), volume["configMap"].get("items"))
        for source in volume.get("projected", {}).get("sources", ()):
            if "serviceAccountToken" in source:
                _files(folder, {source["serviceAccountToken"]["path"]: self._token(pod)}, None)
            elif "configMap" in source:
                _files(folder, self._data("configmaps", source["configMap"]["name"]), source["configMap"].get("items"))
            elif "downwardAPI" in source:
                items = source["downwardAPI"]["items"]
                _files(folder, {item["path"]: own[item["fieldRef"]["fieldPath"]] for item in items}, None)
        os.chown(folder, 0, group)  # what a kubelet makes of fsGroup
        folder.chmod(0o2775)
        return folder

    def _token(self, pod: Object) -> str:
        return self.control.token(self.namespace, pod["spec"]["serviceAccountName"])

    def _data(self, what: str, name: str) -> dict[str, str]:
        found = self.api.ask("GET", f"api/v1/namespaces/{self.namespace}/{what}/{name}").get("data", {})
        return {key: base64.b64decode(text).decode() if what == "secrets" else text for key, text in found.items()}

    def clear(self) -> None:
        """Remove what containers wrote beside their volumes."""
        shutil.rmtree(self.folder, ignore_errors=True)


def _files(folder: Path, data: dict[str, str], items: list[dict[str, str]] | None) -> None:
    for name, text in data.items() if items is None else [(item["path"], data[item["key"]]) for item in items]:
        (folder / name).write_text(text, encoding="utf-8")
