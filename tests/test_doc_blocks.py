"""Every command, definition, statement and program on a page is run or checked, or is an exception with a reason."""

from __future__ import annotations

import ast
import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from kpipe.definition.pipeline import Pipeline
from kpipe.definition.yaml_codec import from_yaml
from kpipe.sql.parser import read_all
from kpipe_assets.cli import kpipe

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
_FENCE = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_KPIPE = re.compile(r"^(?:[A-Z_]+=\S+ )*(?:\.venv/bin/)?kpipe(?: (.*))?$")

#: Pages whose statements are executed, in order, by the test of that name.
EXECUTED_SQL = {
    "docs/tutorial/sql.md": "tests/kpipe_assets/guides/test_sql_guide.py",
    "docs/tutorial/postgres-to-lake.md": "tests/kpipe_assets/guides/test_postgres_to_lake.py",
    "docs/reference/statements.md": "tests/kpipe_assets/guides/test_sql_guide.py",
    "docs/how-to/coming-from-singlestore.md": "tests/kpipe_assets/guides/test_migration_guides.py",
}

_CLUSTER = "needs a Kubernetes cluster; `make kubernetes-test` runs the manifest and the image"
_SETTINGS = "sets variables for Spark on other machines; `make cluster-test` runs with them"
_HOURS = "takes from minutes to hours; CI runs the target"
_CLONE = "needs the repository's address"
_SERVER = "needs a running server; test_ui.py in dagster_server, and the tests in tests/kpipe_assets/rest, send such requests"
#: Lines of shell that no test runs, by how they begin: why.
SHELL_EXCEPTIONS = {
    "git clone ": _CLONE,
    "git pull": _CLONE,
    "make demo": "installs, then runs `kpipe demo`, which tests/kpipe_assets/commands/test_demo.py runs",
    "make image": _CLUSTER,
    "make install": "each job of .github/workflows begins with it",
    "make test": _HOURS,
    "make test-fast": _HOURS,
    "make bench": _HOURS,
    "make chaos": _HOURS,
    "KPIPE_SEED=7 make chaos": _HOURS,
    ".venv/bin/python -m pytest tests/survival": "is a run of the tests themselves",
    ".venv/bin/python -c ": "needs the table that the command above it loads",
    ".venv/bin/python .kpipe/records.py ": "needs the demo's Kafka",
    "cat > .kpipe/records.py": "its program is compiled below",
    ".venv/bin/python .kpipe/orders.py": "needs the local Kafka",
    "cat > .kpipe/orders.py": "its program is compiled below",
    "export KPIPE_SPARK_MASTER=": _SETTINGS,
    "export KPIPE_STAGING=": _SETTINGS,
    "export HADOOP_CONF_DIR=": _SETTINGS,
    "export PYSPARK_SUBMIT_ARGS=": _SETTINGS,
    "export KPIPE_HOME=": "sets variables for `dagster dev`",
    "mkdir -p $DAGSTER_HOME": "prepares `dagster dev`",
    "DAGSTER_EVENT_BATCH_SIZE=1000 .venv/bin/dagster dev": "runs until stopped; test_run_workers.py starts it",
    "podman ": _CLUSTER,
    "kubectl ": _CLUSTER,
    "systemctl ": "needs systemd; deploy/kpipe.service is the unit",
    "pkill ": "would end other services of the machine; tests/kpipe_assets/service/test_serve.py sends the signal",
    "journalctl ": "needs systemd",
    "pip install ": "installs from a package index",
    "curl ": _SERVER,
    "(umask 077; openssl rand ": "writes a token; test_http_settings.py reads such files",
    "cp .kpipe/": "copies a file",
    "printf ": "tests below run the programs",
    "duckdb -readonly report.duckdb": "needs DuckDB's shell; test_audit.py runs the file with its package",
}
#: Fragments of YAML that are no fields of a pipeline, by how they begin: why.
YAML_EXCEPTIONS = {
    "load_from:": "a workspace of Dagster: another project's file",
    "concurrency:": "dagster.yaml of another project; tests/kpipe_assets/dagster_server/test_ui.py runs with kpipe's own",
    "storage:": "dagster.yaml of another project; tests/kpipe_assets/dagster_ui.py uses the same storage",
    "# defs/kafka/defs.yaml": "a component of another project; tests/kpipe_assets/test_component.py loads one",
}
#: Commands of kpipe whose options no single test gives together: why.
COMMAND_EXCEPTIONS = {
    "ui --allow-host kpipe.example.com --no-token": "needs a proxy; see tests/kpipe_assets/dagster_server/test_access.py",
}


@dataclass(frozen=True)
class Block:
    """A fenced block: its page, its language, its text without the indentation of a list."""

    page: str
    language: str
    body: str

    def __str__(self) -> str:
        """Name the block for a test's id."""
        return f"{self.page}:{self.body.splitlines()[0][:30] if self.body else ''}"


def blocks(*languages: str) -> list[Block]:
    found = []
    for path in PAGES:
        for indent, language, body in _FENCE.findall(path.read_text(encoding="utf-8")):
            text = re.sub(rf"^{indent}", "", body, flags=re.MULTILINE)
            if language in languages:
                found.append(Block(str(path.relative_to(ROOT)), language, text))
    return found


def shell_lines() -> Iterator[tuple[str, str]]:
    """Page and command of every line in a block of shell; a continued line and a here-document are one command."""
    for block in blocks("sh", "console", "bash", "shell"):
        text = re.sub(r"<<'(\w+)'\n.*?^\1$", "", block.body, flags=re.MULTILINE | re.DOTALL)
        text = re.sub(r'\\\n|(?<=\$\()\n|(?<=-d "\$\()\n', " ", text)
        for line in text.splitlines():
            if line.strip() and not line.startswith(("#", " ")):
                yield block.page, line.partition("   #")[0].strip()


def test_pages_use_known_languages() -> None:
    """A language that is not listed here would be run by no test."""
    checked = {"sh", "sql", "yaml", "python", "py"}
    shown = {"text", "json", "jsonl", "csv", "ebnf", "graphql", "toml", "markdown", ""}
    found = {language for path in PAGES for _, language, _ in _FENCE.findall(path.read_text(encoding="utf-8"))}
    assert found <= checked | shown


# -- shell --------------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def given_in_tests() -> list[frozenset[str]]:
    """Words of every call and list in the tests."""
    found: list[frozenset[str]] = []

    def words(node: ast.AST) -> set[str]:
        if isinstance(node, ast.Constant):
            return set(node.value.split()) if isinstance(node.value, str) else set()
        inner = set[str]().union(*map(words, ast.iter_child_nodes(node)))
        if isinstance(node, ast.Call | ast.List | ast.Tuple):
            # `kpipe.json("verify", "orders")` is the fixture that adds --json.
            json_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "json"
            found.append(frozenset(inner | {"--json"} if json_call else inner))
        return inner

    for path in (ROOT / "tests").rglob("*.py"):
        if path != Path(__file__):
            words(ast.parse(path.read_text(encoding="utf-8")))
    return found


def options(text: str) -> tuple[list[str], dict[str, str]]:
    """Subcommands and options of a command of kpipe, after click has parsed it.

    Raises:
        click.ClickException: click rejects it.
    """
    words = shlex.split(text, comments=True)
    here: click.Command = kpipe
    names: list[str] = []
    seen: dict[str, str] = {}
    while isinstance(here, click.Group):
        while words and words[0].startswith("-"):
            seen[words[0]] = words.pop(0)
        context = click.Context(here)
        inner = here.get_command(context, words[0]) if words else None
        if inner is None:
            raise click.UsageError(f"no such command: {text}")
        names.append(words.pop(0))
        here = inner
    known = {name: option for option in here.params if isinstance(option, click.Option) for name in option.opts}
    here.make_context(names[-1], list(words))
    for word in words:
        if word in known:
            seen[word] = known[word].opts[-1]
    return names, seen


@pytest.mark.parametrize(
    ("page", "text"),
    [(page, found[1] or "") for page, line in shell_lines() if (found := _KPIPE.match(line))],
    ids=lambda value: value[:60],
)
def test_a_command_is_taken_and_a_test_gives_its_options(page: str, text: str) -> None:
    names, seen = options(text)
    if text in COMMAND_EXCEPTIONS:
        return
    for option, spelling in seen.items():
        aliases = {option, spelling}
        assert any(names[-1] in words and aliases & words for words in given_in_tests()), f"no test runs {names} {option}"
    assert any(names[-1] in words for words in given_in_tests()), f"no test runs {names}"


@pytest.mark.parametrize(("page", "line"), [*shell_lines()], ids=lambda value: value[:60])
def test_a_line_of_shell_is_a_command_of_kpipe_or_an_exception(page: str, line: str) -> None:
    assert _KPIPE.match(line) or any(line.startswith(start) for start in SHELL_EXCEPTIONS), (
        f"{page}: no test runs `{line}`: run it, or name the reason in SHELL_EXCEPTIONS"
    )


def test_every_exception_is_on_a_page() -> None:
    lines = [line for _, line in shell_lines()]
    assert [start for start in SHELL_EXCEPTIONS if not any(line.startswith(start) for line in lines)] == []
    bodies = [block.body for block in blocks("yaml")]
    assert [start for start in YAML_EXCEPTIONS if not any(body.startswith(start) for body in bodies)] == []
    commands = {found[1] for line in lines if (found := _KPIPE.match(line))}
    assert COMMAND_EXCEPTIONS.keys() <= commands


@pytest.mark.parametrize("text", ["run orders --no-such-option", "fly orders", "run", "run orders --max-batches many"])
def test_a_command_that_click_rejects_is_noticed(text: str) -> None:
    with pytest.raises(click.ClickException):
        options(text)


# -- definitions --------------------------------------------------------------------------------------------------------

BASE: dict[str, Any] = {"name": "p", "source": {"brokers": "b:9092", "topic": "t"}, "into": {"table": "t"}}
PARTS = [block for block in blocks("yaml") if not any(block.body.startswith(start) for start in YAML_EXCEPTIONS)]


def joined(base: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """Replace or add the fields of a fragment, except that `into` keeps its table."""
    into = {**base["into"], **more.get("into", {})}
    return {**base, **more, "into": into}


@pytest.mark.parametrize("block", PARTS, ids=str)
def test_a_definition_or_a_part_of_one_is_valid(block: Block, monkeypatch: pytest.MonkeyPatch) -> None:
    environ = dict.fromkeys(re.findall(r"env\('(\w+)'", block.body), "x")
    found = yaml.safe_load(block.body)
    if "type" in found:
        assert from_yaml(block.body, block.page, environ).name
        return
    more = found.get("attributes", found)
    pipeline = Pipeline.model_validate(joined(BASE, more))
    for name, value in more.items():
        if name not in ("name", "source", "into"):
            assert pipeline.model_dump(by_alias=True)[name] or not value, f"{name} has no effect"


# -- statements ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("block", blocks("sql"), ids=str)
def test_a_statement_is_executed_or_parsed(block: Block) -> None:
    if block.page in EXECUTED_SQL:
        name = block.page.rpartition("/")[2]
        assert name in (ROOT / EXECUTED_SQL[block.page]).read_text(encoding="utf-8")
        return
    assert read_all(block.body)


# -- programs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("block", blocks("python", "py"), ids=str)
def test_python_compiles(block: Block) -> None:
    compile(block.body, block.page, "exec")


def test_python_in_here_documents_compiles() -> None:
    found = [
        body for block in blocks("sh") for _, body in re.findall(r"<<'(\w+)'\n(.*?)^\1$", block.body, re.MULTILINE | re.DOTALL)
    ]
    assert found
    for body in found:
        compile(body, "here-document", "exec")


def ran(program: list[str], text: str, folder: Path) -> list[Any]:
    done = subprocess.run(program, input=text, capture_output=True, text=True, check=True, cwd=folder, timeout=600)
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_the_program_of_the_tutorial_prints_what_the_page_shows(tmp_path: Path) -> None:
    page = [block for block in (*blocks("python"), *blocks("json"), *blocks("sh")) if block.page == "docs/tutorial/program.md"]
    program, shown, shell = (next(block.body for block in page if block.language == name) for name in ("python", "json", "sh"))
    file = tmp_path / "programs" / "cents.py"
    file.parent.mkdir()
    file.write_text(program)
    file.chmod(0o755)
    assert ran(["sh", "-c", shell], "", tmp_path) == [json.loads(shown)]


def test_the_command_that_tries_a_program_works() -> None:
    (line,) = [line for page, line in shell_lines() if page == "docs/how-to/transforms.md" and line.startswith("printf ")]
    assert ran(["sh", "-c", line], "", ROOT)[0]["id"] == 1
