"""Every example: the commands of its README run as they are, against a real broker, and print what it says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from kpipe.errors import KpipeError
from resources.dev_broker.broker import LocalBroker
from tests.servers.postgres import PASSWORD, ROLE, PostgresServer

EXAMPLES = Path(__file__).parents[2] / "examples"
FOLDERS = sorted(path.parent.name for path in EXAMPLES.glob("*/README.md"))
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(folder: str, language: str) -> list[str]:
    text = (EXAMPLES / folder / "README.md").read_text(encoding="utf-8")
    return [body for found, body in _BLOCK.findall(text) if found == language]


def topics(folder: str) -> list[str]:
    return re.findall(r"produce\.py (\S+)", "".join(blocks(folder, "sh")))


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
@pytest.mark.usefixtures("free_topics")
def test_the_commands_of_the_readme_print_what_it_says(folder: str, copy: Path, variables: dict[str, str]) -> None:
    (commands,), (expected,) = blocks(folder, "sh"), blocks(folder, "text")
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands],
        cwd=copy / folder,
        env=variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for line in expected.splitlines():
        assert line in done.stdout, f"{line!r} is missing:\n{done.stdout}\n{done.stderr}"
