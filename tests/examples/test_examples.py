"""Every example: the commands of its README run as they are, against a real broker, and print what it says.

Where they run `kpipe`, a program of that name passes the command on to this process, which has imported it and has a Spark:
three or four processes for each example would do both again. Runs with a process of their own: test_run.py, tests/survival.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark import SparkContext

from kpipe.errors import KpipeError
from resources.dev_broker.broker import LocalBroker
from resources.java import JavaHome
from resources.spark.jvm.session import start
from tests.commandline import Kpipe
from tests.servers.postgres import PASSWORD, ROLE, PostgresServer

EXAMPLES = Path(__file__).parents[2] / "examples"
FOLDERS = sorted(path.parent.name for path in EXAMPLES.glob("*/README.md"))
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


# Passes its arguments, folder and environment on, and ends as the command has ended.
_PASSES_ON = """#!{python} -IS
import json, os, socket, sys
with socket.create_connection(("127.0.0.1", {port})) as line, line.makefile("rw") as both:
    both.write(json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]) + "\\n")
    both.flush()
    out, err, status = json.loads(both.readline())
sys.stdout.write(out)
sys.stderr.write(err)
sys.exit(status)
"""


def blocks(folder: str, language: str) -> list[str]:
    text = (EXAMPLES / folder / "README.md").read_text(encoding="utf-8")
    return [body for found, body in _BLOCK.findall(text) if found == language]


def topics(folder: str) -> list[str]:
    return re.findall(r"produce\.py (\S+)", "".join(blocks(folder, "sh")))


@pytest.fixture(scope="session")
def spark(java: JavaHome, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkContext]:
    """The session's Spark, which other tests of this process use, too."""
    context = start(tmp_path_factory.mktemp("spark"))
    yield context
    context.stop()


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of all examples, with a home of its own."""
    ignored = shutil.ignore_patterns("__pycache__", ".kpipe")
    return Path(shutil.copytree(EXAMPLES, tmp_path / "examples", ignore=ignored))


@pytest.fixture
def free_topics(request: pytest.FixtureRequest, kafka_broker: LocalBroker) -> Iterator[None]:
    """Delete the topics that an example creates."""
    yield
    for name in topics(request.node.callspec.params["folder"]):
        with suppress(KpipeError):
            kafka_broker.delete_topic(name)


@pytest.fixture
def variables(
    request: pytest.FixtureRequest, brokers: str, java: object, tmp_path: Path, folder: str
) -> Iterator[dict[str, str]]:
    """What the examples' README has set: a home, brokers, kpipe's commands on the PATH; a database where one is needed."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    keep = {name: os.environ[name] for name in ("HOME", "JAVA_HOME", "LANG", "TMPDIR") if name in os.environ}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    found = {**keep, "PATH": path, "KPIPE_HOME": str(home), "KAFKA_BROKERS": brokers}
    if "postgres" not in folder:
        yield found
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    server.sql("CREATE SCHEMA IF NOT EXISTS example AUTHORIZATION " + ROLE)
    address = f"postgresql://{ROLE}@127.0.0.1:{server.port}/postgres?options=-csearch_path%3Dexample"
    yield {**found, "DATABASE": address, "PGPASSWORD": PASSWORD}
    server.sql("DROP SCHEMA example CASCADE")


def test_the_index_lists_every_example() -> None:
    text = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"\]\(([\w-]+)/README\.md\)", text)
    assert listed
    assert sorted(listed) == FOLDERS


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_readme_is_short_and_ends_in_a_proof(folder: str) -> None:
    lines = (EXAMPLES / folder / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 100
    assert len(blocks(folder, "sh")) == 1 and len(blocks(folder, "text")) == 1
    assert topics(folder)


@pytest.mark.parametrize("path", sorted(EXAMPLES.rglob("*.md")), ids=lambda path: path.parent.name)
def test_links_lead_to_files(path: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)", path.read_text(encoding="utf-8"))
    assert targets
    assert [target for target in targets if not (path.parent / target).exists()] == []


@pytest.mark.spark
@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.usefixtures("free_topics", "spark")
def test_the_commands_of_the_readme_print_what_it_says(
    folder: str, copy: Path, variables: dict[str, str], tmp_path: Path
) -> None:
    (commands,), (expected,) = blocks(folder, "sh"), blocks(folder, "text")
    status, out, err = executed(commands, copy / folder, variables, tmp_path / "bin")
    assert status == 0, out + err
    for line in expected.splitlines():
        assert line in out, f"{line!r} is missing:\n{out}\n{err}"


def executed(commands: str, folder: Path, variables: dict[str, str], programs: Path) -> tuple[int, str, str]:
    """Run commands of a shell: exit status and output."""
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as thread:
        listener.settimeout(0.2)
        programs.mkdir()
        program = programs / "kpipe"
        program.write_text(_PASSES_ON.format(python=sys.executable, port=listener.getsockname()[1]))
        program.chmod(0o755)
        with subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", commands],
            cwd=folder,
            env={**variables, "PATH": f"{programs}:{variables['PATH']}"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as shell:
            ends = thread.submit(shell.communicate, timeout=600)
            try:
                while not ends.done():
                    with suppress(TimeoutError), listener.accept()[0] as line:
                        answer(line)
                return (shell.wait(), *ends.result())
            finally:
                shell.kill()


def answer(line: socket.socket) -> None:
    """Execute a command of kpipe in this process."""
    with line.makefile("rw") as both, pytest.MonkeyPatch.context() as patch:
        arguments, folder, environ = json.loads(both.readline())
        patch.chdir(folder)
        more = {name: value for name, value in environ.items() if name not in ("PATH", "PWD", "OLDPWD", "SHLVL", "_")}
        done = Kpipe(Path(environ["KPIPE_HOME"]), environ["KAFKA_BROKERS"])(*arguments, status=None, **more)
        both.write(json.dumps([done.stdout, done.stderr, done.returncode]) + "\n")
