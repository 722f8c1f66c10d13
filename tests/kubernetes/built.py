"""What the tests run, built on this machine: Kubernetes' own programs with Go, and kpipe's image with Buildah.

Everything lies in .venv. The base of the image is Debian's own, as `debootstrap` makes it: no registry is asked for one.
"""

from __future__ import annotations

import json
import os
import shutil
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
CONTAINERFILE = ROOT / "deploy" / "Containerfile"
VERSION = "1.35.4"  # of Kubernetes, as in go/go.mod
PROGRAMS = {
    "etcd": "go.etcd.io/etcd/server/v3",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
}
_PLACE = ROOT / ".venv" / "share" / "kubernetes"
_BASE, _IMAGE = "localhost/kpipe-base", "localhost/kpipe"
# One that the image knows as well, and that is not in it: where certificates of this machine are seen while it is built.
_CERTIFICATES = "/etc/kpipe-build.crt"


def program(name: str) -> Path | None:
    """Where one of Kubernetes' is; None if it has not been built."""
    path = ROOT / ".venv" / "bin" / name
    return path if path.exists() else None


def build_programs() -> None:
    """With Go: some ten minutes on two cores the first time, and 2 GB of Go's caches.

    Raises:
        RuntimeError: there is no Go, or it cannot.
    """
    if shutil.which("go") is None:
        raise RuntimeError("there is no Go -> install Go 1.25 or newer")
    major, minor, _ = VERSION.split(".")
    named = {"gitVersion": f"v{VERSION}", "gitMajor": major, "gitMinor": minor}
    flags = " ".join(["-s", "-w", *(f"-X k8s.io/component-base/version.{name}={value}" for name, value in named.items())])
    for name, package in PROGRAMS.items():
        if program(name) is None:
            words = ["go", "build", "-C", str(Path(__file__).parent / "go"), "-p", "1", "-trimpath", "-ldflags", flags]
            environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false"}
            _run(["nice", *words, "-o", str(ROOT / ".venv" / "bin" / name), package], environment=environment)


def build_image() -> None:
    """With Buildah, as root: a few minutes the first time, a minute when the code has changed.

    Raises:
        RuntimeError: one of the tools is missing, or fails.
    """
    for tool in ("buildah", "debootstrap"):
        if shutil.which(tool) is None:
            raise RuntimeError(f"there is no {tool} -> as root on Debian: apt-get install buildah debootstrap")
    _PLACE.mkdir(parents=True, exist_ok=True)
    if not _buildah("images", "--quiet", "--noheading", "--filter", f"reference={_BASE}"):
        base = _PLACE / "base"
        shutil.rmtree(base, ignore_errors=True)
        _run(["debootstrap", "--variant=minbase", "--include=ca-certificates", "bookworm", str(base)])
        container = _buildah("from", "scratch")
        _buildah("add", "--quiet", container, str(base), "/")
        _buildah("commit", "--quiet", "--rm", container, _BASE)
        shutil.rmtree(base)
    settings, bundle = _PLACE / "pip.conf", ssl.get_default_verify_paths().cafile or "/etc/ssl/certs/ca-certificates.crt"
    settings.write_text(f"[global]\ncert = {_CERTIFICATES}\ntimeout = 180\n", encoding="utf-8")
    seen = [f"--volume={settings}:/etc/pip.conf:ro", f"--volume={bundle}:{_CERTIFICATES}:ro"]
    words = ["--isolation=chroot", "--layers", f"--build-arg=BASE={_BASE}", *seen, f"--file={CONTAINERFILE}", f"--tag={_IMAGE}"]
    _buildah("build", *words, str(ROOT))


def built() -> bool:
    """Whether there is an image."""
    return (_PLACE / "store").is_dir() and shutil.which("buildah") is not None and bool(_buildah("images", "--quiet", _IMAGE))


@contextmanager
def image() -> Iterator[tuple[Path, dict[str, Any]]]:
    """The image's file system, as long as this is open, and its config."""
    config = json.loads(_buildah("inspect", "--type=image", _IMAGE))["OCIv1"]["config"]
    container = _buildah("from", "--pull-never", _IMAGE)
    try:
        yield Path(_buildah("mount", container)), config
    finally:
        _buildah("rm", container)


def _buildah(*words: str) -> str:
    place = [f"--root={_PLACE / 'store'}", f"--runroot={_PLACE / 'run'}", "--storage-driver=overlay"]
    return _run(["buildah", *place, *words])


def _run(words: list[str], environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL, env=environment, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words[:4])} ...: {done.stderr.strip()[-2000:]}")
    return done.stdout.strip()


if __name__ == "__main__":
    for step in (build_programs, build_image):
        try:
            step()
        except RuntimeError as error:
            sys.stderr.write(f"WARNING: Spark on Kubernetes is not tested ({error})\n")
            sys.exit(0)
