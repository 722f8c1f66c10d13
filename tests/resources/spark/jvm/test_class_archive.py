"""The archive that Spark's JVM starts from: for which Java and jars, from whom, and what starts without one."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkConf
from pyspark.errors import PySparkException

from resources import native
from resources.java import JavaHome
from resources.spark.jvm import class_archive_lookup, class_archive_maker
from resources.spark.jvm.class_archive import (
    CLASSES,
    COMMAND,
    MAIN,
    SWITCH,
    ClassArchive,
    applies,
    archive_key,
    find_archive,
    in_home,
    installed,
)
from resources.spark.jvm.jvm_launch import _direct, options, started_clean
from tests.cases import each_case

STORED = ["java", "-cp", "conf:jars/*", "-Xmx1g", "--add-opens=java.base/java.lang=ALL-UNNAMED", MAIN, "pyspark-shell"]
INSTALLED = installed()
LOCAL = {"spark.master": "local[*]", "spark.driver.memory": "1g"}


@pytest.fixture
def java_home(tmp_path: Path) -> Path:
    folder = tmp_path / "java"
    (folder / "lib" / "server").mkdir(parents=True)
    (folder / "release").write_text('JAVA_VERSION="17"')
    (folder / "lib" / "server" / "libjvm.so").write_text("machine code")
    return folder


@pytest.fixture
def spark_home(tmp_path: Path) -> Path:
    jars = tmp_path / "spark" / "jars"
    jars.mkdir(parents=True)
    for name in ("core.jar", "launcher.jar"):
        (jars / name).write_text(name)
    return jars.parent


@pytest.fixture(autouse=True)
def environment_without_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "prefix"))


def put(root: Path, name: str) -> Path:
    folder = root / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, mode=0o700)
    (folder / CLASSES).write_text("classes")
    (folder / COMMAND).write_text(json.dumps(STORED))
    return folder


def test_a_name_for_each_java_and_each_set_of_jars(java_home: Path, spark_home: Path) -> None:
    names = [archive_key(java_home, spark_home)]
    assert archive_key(java_home, spark_home) == names[0]
    (spark_home / "jars" / "core.jar").write_text("another size")
    names.append(archive_key(java_home, spark_home))
    os.utime(spark_home / "jars" / "launcher.jar", (1, 1))
    names.append(archive_key(java_home, spark_home))
    (spark_home / "jars" / "added.jar").touch()
    names.append(archive_key(java_home, spark_home))
    (java_home / "release").write_text('JAVA_VERSION="17.0.1"')
    names.append(archive_key(java_home, spark_home))
    assert len(set(names)) == 5


def test_the_environments_archive_comes_before_the_homes(tmp_path: Path, java_home: Path, spark_home: Path) -> None:
    home, name = tmp_path / "home", archive_key(java_home, spark_home)
    assert find_archive(home, java_home, spark_home) is None
    own = put(in_home(home), name)
    assert find_archive(home, java_home, spark_home) == ClassArchive(own)
    shared = put(installed(), name)
    assert find_archive(home, java_home, spark_home) == ClassArchive(shared)
    (shared / COMMAND).unlink()
    assert find_archive(home, java_home, spark_home) == ClassArchive(own), "one that is not complete"
    (spark_home / "jars" / "core.jar").write_text("an update")
    assert find_archive(home, java_home, spark_home) is None


@each_case("name", ["", CLASSES, COMMAND])
def test_one_that_others_may_write_to_is_not_used(tmp_path: Path, java_home: Path, spark_home: Path, name: str) -> None:
    folder = put(in_home(tmp_path / "home"), archive_key(java_home, spark_home))
    assert find_archive(tmp_path / "home", java_home, spark_home)
    (folder / name).chmod((folder / name).stat().st_mode | stat.S_IWOTH)
    assert find_archive(tmp_path / "home", java_home, spark_home) is None


@each_case("name", ["", CLASSES, COMMAND])
def test_one_of_another_user_is_not_used(tmp_path: Path, java_home: Path, spark_home: Path, name: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    folder = put(in_home(tmp_path / "home"), archive_key(java_home, spark_home))
    os.chown(folder / name, 54321, 54321)
    assert find_archive(tmp_path / "home", java_home, spark_home) is None


@each_case(
    ("config", "environ"),
    [
        ({"spark.master": "spark://host:7077"}, {}),
        ({**LOCAL, "spark.driver.extraClassPath": "/opt/jars/*"}, {}),
        ({**LOCAL, "spark.driver.extraLibraryPath": "/opt/lib"}, {}),
        ({**LOCAL, "spark.submit.deployMode": "client"}, {}),
        ({**LOCAL, "spark.driver.extraJavaOptions": "-Xmx2g"}, {}),
        *[(LOCAL, {name: "x"}) for name in ("SPARK_CONF_DIR", "SPARK_SUBMIT_OPTS", "SPARK_DIST_CLASSPATH", "HADOOP_CONF_DIR")],
        *[(LOCAL, {name: "x"}) for name in ("YARN_CONF_DIR", "PYSPARK_SUBMIT_ARGS", "SPARK_DRIVER_MEMORY", "SPARK_TESTING")],
        (LOCAL, {SWITCH: "0"}),
    ],
)
def test_what_users_set_for_spark_submit_reaches_it(spark_home: Path, config: dict[str, str], environ: dict[str, str]) -> None:
    assert not applies(config, environ, spark_home)


def test_a_configuration_folder_of_spark_is_read_by_its_scripts(spark_home: Path) -> None:
    assert applies(LOCAL, {"PATH": "/bin", "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_HOME": str(spark_home)}, spark_home)
    (spark_home / "conf").mkdir()
    assert not applies(LOCAL, {}, spark_home)


def test_the_command_is_what_sparks_launcher_builds(tmp_path: Path, java: JavaHome) -> None:
    """Of this Java and this Spark, for the settings of a run."""
    spark = class_archive_lookup.spark_home()
    arguments = [
        *("--conf", "spark.master=local[*]", "--conf", "spark.driver.memory=3g"),
        *("--conf", "spark.driver.defaultJavaOptions=" + options(Path('/a "b'))),
        *("--conf", "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -Dof.the.user=1", "pyspark-shell"),
    ]
    expected = class_archive_maker.launcher_command(spark, arguments)
    archive = ClassArchive(tmp_path)
    (tmp_path / COMMAND).write_text(json.dumps(class_archive_maker.launcher_command(spark)))
    command, _ = _direct([str(spark / "bin" / "spark-submit"), *arguments], {"JAVA_HOME": str(java.path)}, archive)
    assert [word for word in command if word not in archive.options] == _in_order_of_conf(expected, command)
    assert set(archive.options) < set(command)


def _in_order_of_conf(expected: list[str], command: list[str]) -> list[str]:
    """Put the launcher's --conf pairs into the order of spark-submit's arguments: it sorts them otherwise."""
    at = expected.index(MAIN) + 1
    assert sorted(expected[at:]) == sorted(command[command.index(MAIN) + 1 :])
    return [*expected[:at], *command[command.index(MAIN) + 1 :]]


def test_its_process_gets_no_credentials_and_its_own_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script, answer = tmp_path / "python", tmp_path / "answer"
    script.write_text(f'#!/bin/sh\n{{ env; echo "arguments $*"; }} > {answer}\n')
    script.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(script))
    monkeypatch.setenv("KAFKA_PASSWORD", "the-secret")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "the-secret")
    process = class_archive_lookup._spawn(tmp_path / "cache")
    assert process is not None and process.wait(300) == 0
    said = answer.read_text()
    assert "the-secret" not in said
    assert f"arguments -m resources.spark.jvm.class_archive_maker {tmp_path / 'cache'}" in said
    assert f"PATH={os.environ['PATH']}" in said


def test_a_failure_is_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, java: JavaHome) -> None:
    monkeypatch.setattr(class_archive_maker, "_dump", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        class_archive_maker.make(tmp_path / "cache")
    left = sorted(file.name for file in (tmp_path / "cache").iterdir())
    assert [name.rpartition(".")[2] for name in left] == ["lock", "failed"]
    assert class_archive_maker.make(tmp_path / "cache") is None


CODE = """
import os, sys
from pathlib import Path
from resources.spark.jvm import class_archive_lookup, session
sys.prefix = sys.argv[1]
class_archive_lookup._spawn = lambda folder: print("makes one in", folder)
context = session.start(Path(sys.argv[2]), "local[1]")
java = context._jvm.java
maps = str(list(java.nio.file.Files.readAllLines(java.io.File("/proc/self/maps").toPath())))
given = list(java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments())
print("mapped", "spark.jsa" in maps, "agent", "_kpipe" in maps, "secret", "the-secret" in str(java.lang.System.getenv()))
print("closed", "-XX:+DisableAttachMechanism" in given, "sum", context.parallelize([1, 2], 1).sum())
"""


@pytest.fixture(scope="module", params=["installed", pytest.param("new", marks=pytest.mark.chaos)])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, java: JavaHome) -> Path:
    """A prefix with a real archive: a copy of the one that `make install` has made, which takes 11 s of CPU, or a new one."""
    prefix = tmp_path_factory.mktemp("made")
    folder = prefix / "share" / "kpipe" / "class_archives"
    environ = {"PATH": os.environ["PATH"], "HOME": str(prefix), "JAVA_HOME": str(java.path)}
    command = [sys.executable, "-m", "resources.spark.jvm.class_archive_maker", str(folder)]
    ours = INSTALLED / archive_key(java.path, class_archive_lookup.spark_home())
    if request.param == "installed" and ours.is_dir():
        shutil.copytree(ours, folder / ours.name)
    numbers = []
    for _ in range(2):  # the second time, there is one
        done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=600, check=False)
        assert (done.returncode, done.stderr) == (0, "")  # `make install` shows it
        (archive,) = [item for item in folder.iterdir() if item.is_dir()]
        numbers.append((archive / CLASSES).stat().st_ino)
    assert numbers[0] == numbers[1]
    return prefix


def started(prefix: Path, home: Path, java: JavaHome, **environ: str) -> tuple[str, str]:
    known = {"PATH": os.environ["PATH"], "HOME": str(home), "JAVA_HOME": str(java.path), "KAFKA_PASSWORD": "the-secret"}
    done = subprocess.run(
        [sys.executable, "-c", CODE, str(prefix), str(home)],
        env={**known, **environ}, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    agent = native.agent() is not None
    return done.stdout.replace(f"agent {agent}", "agent ok"), done.stderr


@pytest.mark.spark
def test_spark_starts_from_it_with_kpipes_agent_and_without_credentials(made: Path, tmp_path: Path, java: JavaHome) -> None:
    said, _ = started(made, tmp_path / "home", java)
    assert said.split("\n")[:2] == ["mapped True agent ok secret False", "closed True sum 3"]


@pytest.mark.parametrize("ends", ["kill -KILL $$", "exit 143", "exit 1", "kill -SEGV $$"])
def test_one_is_deleted_only_where_java_was_not_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: str) -> None:
    """Else a JVM that the kernel or an operator ends in its first second takes the archive of all homes with it."""
    context = import_module("pyspark.core.context")
    folder, starts = put(tmp_path / "archives", "one"), tmp_path / "starts"
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho >> {starts}\n{ends}\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(java.parent.parent))
    killed, plain = ends in ("kill -KILL $$", "exit 143"), context.launch_gateway

    def launch(conf: Any, popen_kwargs: Any) -> Any:
        """Without the archive it starts."""
        return "started" if starts.exists() else plain(conf, popen_kwargs)

    monkeypatch.setattr(context, "launch_gateway", launch)
    with started_clean(subprocess.DEVNULL, ClassArchive(folder)), suppress(PySparkException):
        assert context.launch_gateway(SparkConf(loadDefaults=False)) == "started"
        assert not killed
    assert folder.exists() == killed


@pytest.mark.spark
def test_spark_starts_without_one_and_has_it_made(tmp_path: Path, java: JavaHome) -> None:
    said, _ = started(tmp_path / "empty", tmp_path / "home", java)
    first, *_, last = said.strip().split("\n")
    assert first == "mapped False agent ok secret False"
    assert last == f"makes one in {in_home(tmp_path / 'home')}"


@pytest.mark.spark
def test_a_damaged_one_does_not_keep_spark_from_starting(made: Path, tmp_path: Path, java: JavaHome) -> None:
    root = made / "share" / "kpipe" / "class_archives"
    (archive,) = [item for item in root.iterdir() if item.is_dir()]
    classes = archive / CLASSES
    with classes.open("r+b") as file:  # inside of the mapped classes: only the checksums notice
        for at in range(1_000_000, classes.stat().st_size, 1_000_000):
            file.seek(at)
            file.write(b"\xff" * 4096)
    said, _ = started(made, tmp_path / "home", java)
    assert "closed True sum 3" in said
