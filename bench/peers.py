"""Install the peers once into a git-ignored folder: Spark 4.0.0, dlt, and jars from Maven Central.

4.0.0 is the newest Spark with both a published Kafka connector and Delta's jars.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from resources.dev_broker.kafka_jars import _context
from resources.java import find_java

__all__ = [
    "BENTO",
    "CONNECT",
    "DEBEZIUM",
    "DLT",
    "FLINK",
    "ICEBERG",
    "SPARK",
    "Peers",
    "Unavailable",
    "install",
    "install_bento",
    "install_flink",
    "install_jdbc",
]

FOLDER = Path(__file__).parent / ".peers"

SPARK, DELTA, CONNECT, ICEBERG, HADOOP = "4.0.0", "4.0.0", "4.1.1", "1.10.1", "3.4.2"
DLT = "1.31.0"
BENTO = "1.10.0"
FLINK, FLINK_PARTS, FLINK_KAFKA = "2.0.1", "2.0.0", "4.0.1-2.0"
DEBEZIUM, CONNECT_JDBC = "3.2.0.Final", "4.3.1"
_SETS: dict[str, tuple[str, ...]] = {
    "kafka": (f"org.apache.spark:spark-sql-kafka-0-10_2.13:{SPARK}",),
    "delta": (f"io.delta:delta-spark_2.13:{DELTA}",),
    "connect": (f"org.apache.kafka:connect-runtime:{CONNECT}", f"org.apache.kafka:connect-json:{CONNECT}"),
    "iceberg": (
        f"org.apache.iceberg:iceberg-kafka-connect:{ICEBERG}",
        f"org.apache.iceberg:iceberg-parquet:{ICEBERG}",
    ),
    # A newer Connect than Iceberg's: its converter takes the schema from the settings (KIP-1054).
    "connect-jdbc": (
        f"org.apache.kafka:connect-runtime:{CONNECT_JDBC}",
        f"org.apache.kafka:connect-json:{CONNECT_JDBC}",
        f"org.apache.kafka:connect-transforms:{CONNECT_JDBC}",
    ),
    "flink": (
        f"org.apache.flink:flink-sql-connector-kafka:{FLINK_KAFKA}",
        # What PyPI's package does not have.
        *(f"org.apache.flink:{name}:{FLINK_PARTS}" for name in ("flink-parquet", "flink-sql-gateway", "flink-sql-gateway-api")),
    ),
    "debezium-jdbc": (f"io.debezium:debezium-connector-jdbc:{DEBEZIUM}",),
    # Apart from Connect's: resolved together, the versions that log4j's POM manages would apply to Kafka's jars.
    "log": ("org.apache.logging.log4j:log4j-slf4j2-impl:2.24.3",),
    # What reads Iceberg's tables, and the catalogue that lies beside them:
    # tests/resources/destinations/lakehouse/test_readers.py.
    "spark-iceberg": (f"org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:{ICEBERG}",),
    "sqlite": ("org.xerial:sqlite-jdbc:3.50.3.0",),
    "hadoop": (f"org.apache.hadoop:hadoop-client-api:{HADOOP}", f"org.apache.hadoop:hadoop-client-runtime:{HADOOP}"),
}

_IN_FLINK = {
    *(f"flink-{name}" for name in ("clients", "annotations", "json", "core", "runtime", "streaming-java", "datastream", "cep")),
    *(f"flink-{name}" for name in ("core-api", "datastream-api", "rpc-core", "rpc-akka-loader", "queryable-state-client-java")),
    *(f"flink-{name}" for name in ("hadoop-fs", "connector-datagen", "file-sink-common", "metrics-core")),
    *(f"flink-table-{name}" for name in ("common", "runtime", "api-java", "api-java-bridge", "api-bridge-base")),
    *(f"flink-shaded-{name}" for name in ("asm-9", "jackson", "guava", "netty", "zookeeper-3")),
}
"""Its distribution has these in one jar."""

_OTHER_DRIVERS = {"mysql-connector-j", "mariadb-java-client", "mssql-jdbc", "ojdbc11"}
"""Debezium's sink depends on the drivers of all its databases; only PostgreSQL's is needed."""


class Unavailable(Exception):
    """A contender that cannot be installed here; the others are measured without it."""


@dataclass(frozen=True)
class Peers:
    """Where they are.

    Attributes:
        folder: that holds all of it.
    """

    folder: Path = FOLDER

    @property
    def python(self) -> Path:
        """Of the environment that holds Spark 4.0.0."""
        return self.folder / "spark" / "bin" / "python"

    @property
    def dlt(self) -> Path:
        """Of the environment that holds dlt."""
        return self.folder / "dlt" / "bin" / "python"

    @property
    def bento(self) -> Path:
        """The program of Bento."""
        return self.folder / "bento" / "bento"

    @property
    def flink(self) -> Path:
        """The folder of Flink's jars."""
        return self.folder / "flink"

    def jars(self, *names: str) -> list[Path]:
        """The jars of these sets, sorted within each."""
        return [jar for name in names for jar in sorted((self.folder / "jars" / name).glob("*.jar"))]

    def environment(self) -> dict[str, str]:
        """For a process of Spark's, on the Java that kpipe uses, too."""
        from bench.child import clean_environment

        return clean_environment(JAVA_HOME=str(find_java().path), PYSPARK_PYTHON=str(self.python))


def install(*names: str) -> Peers:
    """Install what is missing; nothing to do if it is there.

    Args:
        names: sets of jars; those of all contenders by default.
    """
    peers = Peers()
    peers.folder.mkdir(exist_ok=True)
    _environment(peers.python, f"spark-{SPARK}", f"pyspark=={SPARK}")
    _environment(peers.dlt, f"dlt-{DLT}", f"dlt[duckdb,parquet]=={DLT}", "confluent-kafka")
    in_spark = {_artifact(jar.stem) for jar in peers.folder.glob("spark/lib/python*/site-packages/pyspark/jars/*.jar")}
    for name in names or ("kafka", "delta", "connect", "iceberg", "hadoop", "log"):
        _fetch(name, peers.folder, in_spark if name in ("kafka", "delta", "spark-iceberg") else _OTHER_DRIVERS)
    return peers


def install_jdbc(peers: Peers) -> None:
    """Install Kafka Connect with Debezium's JDBC sink.

    Raises:
        Unavailable: a jar cannot be downloaded.
    """
    try:
        for name in ("connect-jdbc", "debezium-jdbc", "log"):
            _fetch(name, peers.folder, _OTHER_DRIVERS)
    except (RuntimeError, OSError) as error:
        raise Unavailable(f"Debezium's JDBC sink {DEBEZIUM} was not downloaded: {error}") from error


def install_flink(peers: Peers) -> None:
    """Install Flink with its SQL client, which PyPI has in a source package, and its connectors.

    Raises:
        Unavailable: a part cannot be downloaded.
    """
    try:
        _fetch("flink", peers.folder, _IN_FLINK)
        if not peers.flink.is_dir():
            with tempfile.TemporaryDirectory(dir=peers.folder) as scratch:
                package = f"apache-flink-libraries=={FLINK}"
                pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
                subprocess.run([*pip, "--no-build-isolation", "--dest", scratch, package], check=True, capture_output=True)
                (archive,) = Path(scratch).glob("*.tar.gz")
                shutil.unpack_archive(archive, scratch)
                jars = Path(scratch) / "jars"
                jars.mkdir()
                for jar in (*Path(scratch).glob("*/deps/lib/*.jar"), *Path(scratch).glob("*/deps/opt/*.jar")):
                    jar.rename(jars / jar.name)
                jars.rename(peers.flink)
    except (RuntimeError, OSError, subprocess.CalledProcessError) as error:
        raise Unavailable(f"Flink {FLINK} was not downloaded: {error}") from error


def install_bento(peers: Peers) -> None:
    """Build Bento with the components that are measured; needs Go. Takes minutes.

    Raises:
        Unavailable: there is no Go, or a module cannot be downloaded.
    """
    if peers.bento.exists():
        return
    folder = peers.bento.parent
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    shutil.copyfile(Path(__file__).parent / "contenders" / "bento" / "main.go", folder / "main.go")
    module = "github.com/warpstreamlabs/bento"
    for arguments in (
        ("mod", "init", "kpipe/bench/bento"),
        ("get", f"{module}@v{BENTO}"),
        ("mod", "tidy"),
        ("build", "-o", peers.bento.name, "."),
    ):
        try:
            subprocess.run(["go", *arguments], cwd=folder, check=True, capture_output=True, text=True)
        except OSError as error:
            raise Unavailable("Bento was not built: there is no Go") from error
        except subprocess.CalledProcessError as error:
            raise Unavailable(f"Bento {BENTO} was not built: {error.stderr[-300:]}") from error


def _environment(python: Path, name: str, *packages: str) -> None:
    done = python.parents[2] / f"{name}.done"
    if not done.exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(python.parents[1])], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages], check=True)
        done.touch()


def _fetch(name: str, folder: Path, left_out: set[str]) -> None:
    target = folder / "jars" / name
    if target.is_dir():
        return
    target.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        for group, artifact, version in _resolved(_SETS[name], folder / "repository"):
            if artifact not in left_out:
                context = _context(folder / "repository")
                jar = context.project(group, artifact).at_version(version).artifact().resolve()
                shutil.copyfile(jar, Path(scratch) / Path(jar).name)
        target.mkdir()
        for file in Path(scratch).iterdir():
            file.rename(target / file.name)


def _resolved(coordinates: Sequence[str], repository: Path) -> list[tuple[str, str, str]]:
    from jgo.parse import Coordinate

    context = _context(repository)
    wanted = [context.create_dependency(Coordinate(*text.split(":"), scope="compile")) for text in coordinates]
    direct, transitive = context.resolver.resolve(wanted)
    found = [dep.artifact for dep in (*direct, *transitive) if dep.scope in ("compile", "runtime")]
    return [(one.groupId, one.artifactId, one.version) for one in found if one.packaging in ("jar", "bundle")]


def _artifact(stem: str) -> str:
    """`kafka-clients` of `kafka-clients-3.9.0`: the version begins at the last hyphen before a digit."""
    words = stem.split("-")
    cut = next((at for at in range(1, len(words)) if words[at][:1].isdigit() and "." in words[at]), len(words))
    return "-".join(words[:cut])
