"""A Kubernetes API server with its etcd on this machine: real ones, in a folder of their own, on an address of their own.

With it requests are authenticated, authorised (RBAC), admitted (service accounts, pod security) and validated as on any
cluster. What no process here does is said in node.py.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.kubernetes.api import Api, ApiError
from tests.kubernetes.built import program

_START_S = 120
_AUDIT = """apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules: [{level: Metadata}]
"""


@dataclass
class Control:
    """What runs.

    Attributes:
        folder: with its data and logs.
        network: first three numbers of its addresses, all on the loopback device.
        admin: may do everything.
    """

    folder: Path
    network: str = field(default_factory=lambda: f"127.{64 + secrets.randbelow(64)}.{secrets.randbelow(250) + 1}")
    admin: Api = field(init=False)
    _processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        # The port and the name of every cluster's server as its pods see it: manifests need no other.
        self.address = f"{self.network}.1"
        self.admin = Api(f"https://{self.address}:443", secrets.token_hex(16), self.folder / "ca.crt")

    @property
    def audit(self) -> Path:
        """Every request that was answered, a line of JSON each."""
        return self.folder / "audit.log"

    def start(self) -> None:
        """Begin, and wait until it is ready."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._certificates()
        (self.folder / "tokens.csv").write_text(f'{self.admin.token},admin,admin,"system:masters"\n', encoding="utf-8")
        (self.folder / "audit.yaml").write_text(_AUDIT, encoding="utf-8")
        client, peer = _free(), _free()
        at, with_ = f"http://127.0.0.1:{client}", f"http://127.0.0.1:{peer}"
        self._run(
            "etcd", f"--data-dir={self.folder / 'etcd'}", f"--listen-client-urls={at}", f"--advertise-client-urls={at}",
            f"--listen-peer-urls={with_}", f"--initial-advertise-peer-urls={with_}", f"--initial-cluster=default={with_}",
            "--unsafe-no-fsync",
        )  # fmt: skip
        self._run(
            "kube-apiserver", f"--etcd-servers={at}", f"--bind-address={self.address}", f"--advertise-address={self.network}.2",
            "--secure-port=443", f"--tls-cert-file={self.folder / 'server.crt'}", "--endpoint-reconciler-type=none",
            f"--tls-private-key-file={self.folder / 'server.key'}", f"--cert-dir={self.folder}",
            "--authorization-mode=RBAC",  f"--token-auth-file={self.folder / 'tokens.csv'}",
            f"--service-account-issuer=https://{self.address}", f"--service-account-key-file={self.folder / 'accounts.pub'}",
            f"--service-account-signing-key-file={self.folder / 'accounts.key'}", "--service-cluster-ip-range=10.96.0.0/16",
            f"--audit-policy-file={self.folder / 'audit.yaml'}", f"--audit-log-path={self.audit}",
        )  # fmt: skip
        self._ready()
        cluster = {"server": self.admin.url, "certificate-authority": str(self.admin.authority)}
        config = {
            "apiVersion": "v1", "kind": "Config", "current-context": "it",
            "clusters": [{"name": "it", "cluster": cluster}],
            "users": [{"name": "it", "user": {"token": self.admin.token}}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        }  # fmt: skip
        _private(self.folder / "config.json", json.dumps(config))
        self._run(
            "kube-controller-manager", f"--kubeconfig={self.folder / 'config.json'}", "--leader-elect=false", "--secure-port=0",
            f"--service-account-private-key-file={self.folder / 'accounts.key'}", f"--root-ca-file={self.folder / 'ca.crt'}",
            "--use-service-account-credentials=false",
            "--controllers=serviceaccount-controller,root-ca-certificate-publisher-controller,statefulset-controller,"
            "garbage-collector-controller,namespace-controller",
        )  # fmt: skip

    def _run(self, name: str, *words: str) -> None:
        path = program(name)
        assert path is not None, name
        with (self.folder / f"{name}.log").open("ab") as log:
            self._processes.append(subprocess.Popen([str(path), *words], stdin=subprocess.DEVNULL, stdout=log, stderr=log))

    def _ready(self) -> None:
        until, found = time.monotonic() + _START_S, "nothing"
        while time.monotonic() < until:
            for process in self._processes:
                assert process.poll() is None, f"{process.args}: {self.said()}"
            try:
                self.admin.ask("GET", "readyz")
                return
            except (ApiError, OSError) as error:
                found = str(error)
            time.sleep(0.3)
        raise AssertionError(f"no API server within {_START_S} s: {found}\n{self.said()}")

    def said(self) -> str:
        """The ends of the logs."""
        return "\n".join(f"{log.name}: {log.read_text(errors='replace')[-2000:]}" for log in sorted(self.folder.glob("*.log")))

    def token(self, namespace: str, account: str, seconds: int = 3600) -> str:
        """Of a service account, as pods get it."""
        asked = {"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "spec": {"expirationSeconds": seconds}}
        found = self.admin.ask("POST", f"api/v1/namespaces/{namespace}/serviceaccounts/{account}/token", asked)
        return str(found["status"]["token"])

    def stop(self) -> None:
        """End them, the last one first."""
        for process in reversed(self._processes):
            process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()
            process.wait()

    def _certificates(self) -> None:
        """Of an authority that signs one server, and the key that signs service accounts' tokens."""
        names = f"subjectAltName=IP:{self.address},DNS:kubernetes.default.svc,DNS:kubernetes.default,DNS:kubernetes"
        new = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
        self._openssl(*new, "-keyout", "ca.key", "-out", "ca.crt", "-subj", "/CN=tests-authority")
        signed = ["-CA", "ca.crt", "-CAkey", "ca.key", "-addext", names, "-addext", "basicConstraints=critical,CA:FALSE"]
        self._openssl(*new, "-keyout", "server.key", "-out", "server.crt", "-subj", "/CN=kube-apiserver", *signed)
        self._openssl("genrsa", "-out", "accounts.key", "2048")
        self._openssl("rsa", "-in", "accounts.key", "-pubout", "-out", "accounts.pub")

    def _openssl(self, *words: str) -> None:
        subprocess.run(["openssl", *words], cwd=self.folder, check=True, capture_output=True)


def _private(path: Path, text: str) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(text)


def _free() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
