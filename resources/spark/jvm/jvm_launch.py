"""Environment and options of Spark's JVM: no credentials in variables, no memory that a program can read.

Python workers inherit the environment. They receive credentials inside of tasks.
"""

from __future__ import annotations

import re
import shlex
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from itertools import chain, pairwise
from pathlib import Path
from subprocess import Popen
from typing import Any, cast

from resources import native
from resources.secret_references import passes
from resources.spark.jvm.class_archive import ClassArchive

__all__ = ["DENY_ATTACH", "environment", "options", "started_clean"]

# Variables that Java, Spark, Hadoop, Kubernetes' client, Python and the loader read. Images with jemalloc set LD_PRELOAD;
# images without a passwd entry use nss_wrapper. Of AWS's variables, only those without credentials.
_NAMES = re.compile(
    r"""
    PATH|HOME|USER|LOGNAME|SHELL|PWD|HOSTNAME|TZ|TMPDIR|LANG|LANGUAGE|LC_\w+|TERM|XDG_\w+
    |LD_LIBRARY_PATH|LD_PRELOAD|DYLD_\w+|GLIBC_TUNABLES|NSS_WRAPPER_\w+|MALLOC_\w+|OMP_\w+|OPENBLAS_\w+|ARROW_\w+
    |(https?|no|all|ftp)_proxy|SSL_CERT_(FILE|DIR)|REQUESTS_CA_BUNDLE|OPENSSL_CONF|KRB5\w+
    |JAVA_\w+|JDK_\w+|JRE_\w+|_JAVA_OPTIONS|CLASSPATH
    |_?SPARK_\w+|_?PYSPARK_\w+|HADOOP_\w+|YARN_\w+|HDFS_\w+|MAPRED_\w+|KUBERNETES_\w+|KUBECONFIG
    |PYTHON\w+|VIRTUAL_ENV|COVERAGE_\w+
    |AWS_(REGION|DEFAULT_REGION|PROFILE|CONFIG_FILE|SHARED_CREDENTIALS_FILE|CA_BUNDLE|ENDPOINT_URL(_S3)?)
    |AWS_(ROLE_ARN|ROLE_SESSION_NAME|WEB_IDENTITY_TOKEN_FILE|STS_REGIONAL_ENDPOINTS|EC2_METADATA_\w+)
    |KPIPE_(HOME|FAULT|NATIVE|JAVA_HOME|STAGING|SPARK_MASTER|SPARK_PYTHON)
    """,
    re.VERBOSE | re.IGNORECASE,
)


# Names that match a prefix above but contain credentials, except the secrets by which Spark's processes authenticate.
_CREDENTIAL = re.compile(r"\w*(PASSWORD|PASSWD|SECRET|TOKEN|ACCESS_KEY|PRIVATE_KEY|CREDENTIALS?)", re.IGNORECASE)
_OWN = re.compile(r"_?(PY)?SPARK_(AUTH|GATEWAY|ENV_AUTH)_SECRET|PYTHON_WORKER_FACTORY_SECRET")
_HARMLESS = ("NSS_WRAPPER_PASSWD",)


def environment(values: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that Spark's processes need."""
    return {
        name: value
        for name, value in values.items()
        if passes(name)  # to commands, which workers run, too
        or (_NAMES.fullmatch(name) and (name in _HARMLESS or _OWN.fullmatch(name) or not _CREDENTIAL.fullmatch(name)))
    }


# HotSpot dumps its heap for any process of the same user that attaches to it (jcmd, jmap). It also writes counters and its
# command line to a file that these processes can read.
DENY_ATTACH = "-XX:+DisableAttachMechanism -XX:-UsePerfData"


# Ctrl-C must not end the JVM before this process. PySpark would ignore the signal in Python after a fork, which is a copy of a
# process with threads of DuckDB and librdkafka: the copy crashed (SIGSEGV) while other pipelines of a service were at work.
_IGNORING_SIGINT = ("/bin/sh", "-c", "trap '' INT; exec \"$@\"", "sh")


# Exit statuses of a process that a signal has ended, and of HotSpot, which handles three of them (128 and the signal's number).
_ENDING = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
_KILLED = {-signal.SIGKILL, *(-number for number in _ENDING), *(128 + number for number in _ENDING)}


@contextmanager
def started_clean(output: int, archive: ClassArchive | None = None) -> Iterator[None]:
    """Start JVMs inside this block with `environment` only, and with their output redirected.

    HotSpot answers SIGQUIT, which any process of the same user may send, with a list of its threads on stdout.

    Args:
        output: file descriptor of a log for stdout and stderr.
        archive: to start from. If the JVM does not start, it is started again without, and the archive is deleted, unless a
            signal has ended the JVM: other processes use the archive.
    """
    java_gateway: Any = import_module("pyspark.java_gateway")
    context: Any = import_module("pyspark.core.context")
    start, launch = java_gateway.Popen, context.launch_gateway
    process: Popen[bytes] | None = None

    def popen(command: list[str], *, env: Mapping[str, str], **more: Any) -> Popen[bytes]:
        nonlocal process
        clean = environment(env)
        if archive is not None:
            command, clean = _direct(command, clean, archive)
        more.pop("preexec_fn", None)
        process = started = start([*_IGNORING_SIGINT, *command], env=clean, **{"stdout": output, "stderr": output, **more})
        return cast("Popen[bytes]", started)

    def launch_gateway(conf: Any = None, popen_kwargs: Any = None) -> Any:
        nonlocal archive
        try:
            return launch(conf, popen_kwargs)
        except Exception:
            if process is not None and process.stdin is not None:
                process.stdin.close()
            if archive is None or (process is not None and process.poll() in _KILLED):
                raise
            unusable, archive = archive, None
            gateway = launch(conf, popen_kwargs)
            unusable.discard()
            return gateway

    java_gateway.Popen, context.launch_gateway = popen, launch_gateway
    try:
        yield
    finally:
        java_gateway.Popen, context.launch_gateway = start, launch


def _direct(command: Sequence[str], environ: Mapping[str, str], archive: ClassArchive) -> tuple[list[str], dict[str, str]]:
    """Return the command and variables that spark-submit would start Java with. Its scripts and launcher take 0.5 s of CPU."""
    settings = dict(pair.split("=", 1) for flag, pair in pairwise(command) if flag == "--conf")
    options = [shlex.split(settings.get(f"spark.driver.{name}JavaOptions", "")) for name in ("default", "extra")]
    java, memory = Path(environ["JAVA_HOME"]) / "bin" / "java", settings.get("spark.driver.memory", "1g")
    # As bin/spark-submit and bin/load-spark-env.sh export them.
    exported = {"SPARK_HOME": str(Path(command[0]).parent.parent), "SPARK_ENV_LOADED": "1", "PYTHONHASHSEED": "0"}
    return archive.command(java, memory, [*chain(*options)], command[1:]), {**environ, **exported}


def options(temporary: Path) -> str:
    """Return options of the driver's JVM that prevent other processes of its user from reading it.

    They are `DENY_ATTACH` and, where the compiled part was built, an agent that denies tracing.

    Args:
        temporary: folder for the JVM's temporary files, which remain if it is killed.
    """
    agent = native.agent()
    chosen = [f"-Djava.io.tmpdir={temporary}", *([f"-agentpath:{agent}"] if agent is not None else [])]
    return " ".join([DENY_ATTACH, *(_quoted(option) for option in chosen)])


def _quoted(option: str) -> str:
    """Quote an option as both Spark's launcher and `shlex` read it."""
    return '"' + option.replace("\\", "\\\\").replace('"', '\\"') + '"'
