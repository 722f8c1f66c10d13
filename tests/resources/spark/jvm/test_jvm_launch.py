"""The environment that Spark's JVM and Python workers start with."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kpipe.definition.formats import Format
from resources import native
from resources.java import JavaHome
from resources.object_store.clients import forget, store, use
from resources.object_store.s3 import S3Store
from resources.spark.driver.remote_workers import stored
from resources.spark.jvm.jvm_launch import environment
from resources.spark.jvm.spark_settings import settings
from resources.spark.task.range_task import run
from resources.spark.task.task_spec import JobSpec
from tests.cases import each_case

SECRETS = [
    "KAFKA_PASSWORD",
    "KPIPE_PASSWORD",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "DATABASE_URL",
    "TOKEN",
    "PGPASSWORD",
]
NEEDED = ["PATH", "HOME", "JAVA_HOME", "KPIPE_JAVA_HOME", "SPARK_LOCAL_IP", "PYSPARK_PYTHON", "HADOOP_CONF_DIR", "https_proxy"]


@each_case("name", SECRETS)
def test_credentials_do_not_get_there(name: str) -> None:
    assert environment({name: "x", "PATH": "/bin"}) == {"PATH": "/bin"}


@each_case("name", [*NEEDED, "_PYSPARK_DRIVER_CONN_INFO_PATH", "AWS_REGION", "KRB5CCNAME", "LC_ALL", "KUBECONFIG"])
def test_what_java_spark_and_python_need_does(name: str) -> None:
    assert environment({name: "x"}) == {name: "x"}


def test_a_name_that_only_begins_like_one_that_is_needed() -> None:
    assert environment({"PATHS_SECRET": "x", "XPATH": "x", "HOME_TOKEN": "x", "KPIPE_HOME_PASSWORD": "x"}) == {}


ARRIVE = [
    "LD_PRELOAD",
    "LD_LIBRARY_PATH",
    "MALLOC_CONF",
    "MALLOC_ARENA_MAX",
    "GLIBC_TUNABLES",
    "NSS_WRAPPER_PASSWD",
    "NSS_WRAPPER_GROUP",
    "TZ",
    "LANG",
    "LC_ALL",
    "http_proxy",
    "NO_PROXY",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "OPENSSL_CONF",
    "JAVA_TOOL_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "HADOOP_CONF_DIR",
    "YARN_CONF_DIR",
    "SPARK_CONF_DIR",
    "SPARK_LOCAL_DIRS",
    "KRB5_CONFIG",
    "KRB5CCNAME",
    "KRB5_KTNAME",
    "XDG_RUNTIME_DIR",
    "AWS_ROLE_ARN",
    "AWS_ROLE_SESSION_NAME",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_EC2_METADATA_DISABLED",
    "AWS_STS_REGIONAL_ENDPOINTS",
]


@each_case("name", ARRIVE)
def test_what_users_set_for_a_jvm_arrives(name: str) -> None:
    assert environment({name: "x"}) == {name: "x"}


@each_case(
    "name", ["HADOOP_CREDSTORE_PASSWORD", "SPARK_DB_PASSWORD", "SPARK_API_TOKEN", "HADOOP_S3_ACCESS_KEY", "AWS_ACCESS_KEY_ID"]
)
def test_a_name_that_speaks_of_a_credential_does_not_whatever_it_begins_with(name: str) -> None:
    assert environment({name: "x"}) == {}


@each_case("name", ["PYSPARK_GATEWAY_SECRET", "_SPARK_AUTH_SECRET", "PYTHON_WORKER_FACTORY_SECRET"])
def test_sparks_own_secrets_reach_its_processes(name: str) -> None:
    assert environment({name: "x"}) == {name: "x"}


@pytest.mark.spark
def test_a_library_that_users_preload_is_in_the_jvm_and_its_workers_cannot_be_read(tmp_path: Path, java: JavaHome) -> None:
    """As jemalloc is in some images: it is preloaded beside kpipe's own agent, which denies tracing."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("a compiler and Linux are needed")
    source, library = tmp_path / "marker.c", tmp_path / "marker.so"
    source.write_text('#include <stdlib.h>\n__attribute__((constructor)) static void mark(void) { setenv("MARKED", "1", 1); }\n')
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    code = f"""
import os
from pathlib import Path
from resources.spark.jvm.session import start
context = start(Path({str(tmp_path / "home")!r}), "local[1]")
java = context._jvm.java
maps = str(list(java.nio.file.Files.readAllLines(java.io.File("/proc/self/maps").toPath())))
worker = context.parallelize([1], 1).map(lambda _: os.environ.get("LD_PRELOAD")).collect()
print(java.lang.System.getenv("LD_PRELOAD"), "marker.so" in maps, "_kpipe" in maps, worker)
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "JAVA_HOME": str(java.path), "LD_PRELOAD": str(library)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.stdout.strip().rpartition("\n")[2] == f"{library} True {native.agent() is not None} ['{library}']", done.stderr


@pytest.mark.spark
def test_options_of_the_user_leave_the_jvm_closed(tmp_path: Path, java: JavaHome) -> None:
    """As `spark_config` of the resource sets them: they take the place of kpipe's for speed, not of those that protect."""
    code = f"""
from pathlib import Path
from pyspark import SparkConf, SparkContext
from resources.spark.jvm.session import prepared
from resources.spark.jvm.spark_settings import settings
home = Path({str(tmp_path / "home")!r})
asked = {{**settings(home, "local[1]"), "spark.driver.extraJavaOptions": "-XX:+UseParallelGC -Dof.the.user=1"}}
with prepared(home, asked):
    context = SparkContext(conf=SparkConf().setAll(list(asked.items())))
given = context._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments()
print(*given)
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "JAVA_HOME": str(java.path)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    given = done.stdout.split()
    assert {"-XX:+DisableAttachMechanism", "-XX:-UsePerfData", "-XX:+UseParallelGC", "-Dof.the.user=1"} <= set(given), done.stderr
    assert any(option.startswith("-agentpath:") for option in given) == (native.agent() is not None)
    assert any(option.startswith(f"-Djava.io.tmpdir={tmp_path}/") for option in given), "no files outside of the home"


def test_executors_elsewhere_are_closed_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KPIPE_SPARK_PYTHON", sys.executable)
    asked = settings(tmp_path, "spark://master:7077")
    assert asked["spark.executor.defaultJavaOptions"] == "-XX:+DisableAttachMechanism -XX:-UsePerfData"
    assert "spark.executor.extraJavaOptions" not in asked, "the user's own"


@pytest.fixture
def fresh_store() -> Iterator[None]:
    use(None)
    forget()
    yield
    use(None)
    forget()


@pytest.mark.usefixtures("fresh_store")
def test_tasks_on_this_machine_get_the_stores_credentials_as_those_elsewhere_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their environment has none."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "the-key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "the-secret")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    job = stored(JobSpec("b", {}, "s3://bucket/staging", Format(), ()))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name)
    assert not job.remote and job.store is not None
    assert list(run(job, [])) == []
    given = store("s3://bucket/staging")
    assert isinstance(given, S3Store) and given.endpoint == "http://127.0.0.1:1"
    assert given.credentials() == {"access.key.id": "the-key", "secret.access.key": "the-secret"}
