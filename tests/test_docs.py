"""The documents stay true: links, commands, definitions, fields, formats and errors are compared with the code."""

from __future__ import annotations

import ast
import io
import json
import re
import shlex
import sys
from collections.abc import Iterator
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any, get_args

import click
import duckdb
import pytest
from pydantic import BaseModel
from rich.console import Console

from kpipe import errors
from kpipe.batch.batch import Batch, Commit, Committed, Counts
from kpipe.definition.pipeline import Pipeline
from kpipe.definition.yaml_codec import from_yaml
from kpipe.errors import KpipeError, NeedsOperator, NotAvailable
from kpipe.verification.verify import Audit
from kpipe_assets.cli import kpipe
from kpipe_assets.commands.demo import _next
from kpipe_assets.runs.foreground import Totals, batch_line
from kpipe_assets.validation import Needs, validate
from resources.destinations import open_destination
from resources.destinations.sql.ledger import duckdb_dialect
from resources.home import Home
from resources.kafka.client_config import client_config
from resources.kafka.topic_metadata import KafkaTopics
from tests.cases import each_case

ROOT = Path(__file__).parent.parent
TOP = ("README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
DOCUMENTS = [ROOT / name for name in TOP] + sorted((ROOT / "docs").rglob("*.md"))
SECTIONS = ("tutorial", "how-to", "reference", "explanation")
DESIGN = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
ARCHITECTURE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
FIELDS = (ROOT / "docs" / "reference" / "fields.md").read_text(encoding="utf-8")
TABLES = (ROOT / "docs" / "reference" / "tables.md").read_text(encoding="utf-8")
ERRORS_PAGE = (ROOT / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")
JSON_OUTPUT = (ROOT / "docs" / "reference" / "json-output.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = (ROOT / "docs" / "reference" / "commands.md").read_text(encoding="utf-8")
BAD_RECORDS = (ROOT / "docs" / "how-to" / "bad-records.md").read_text(encoding="utf-8")
FIRST_PIPELINE = (ROOT / "docs" / "tutorial" / "first-pipeline.md").read_text(encoding="utf-8")
DEMO = (ROOT / "docs" / "tutorial" / "demo.md").read_text(encoding="utf-8")

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
each_document = each_case("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))


def blocks(text: str, language: str) -> list[str]:
    return [body for found, body in _FENCE.findall(text) if found == language]


def prose(text: str) -> str:
    return _FENCE.sub("", text)


def spans(text: str) -> list[str]:
    """What stands in backticks, outside of blocks."""
    return re.findall(r"`([^`\n]+)`", prose(text))


def rows(text: str, heading: str) -> list[list[str]]:
    """Cells of the first table after that text."""
    lines = text[text.index(heading) + len(heading) :].splitlines()
    start = next(at for at, line in enumerate(lines) if line.startswith("|---"))
    table = []
    for line in lines[start + 1 :]:
        if not line.startswith("|"):
            break
        table.append([cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]])
    return table


def ticked(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


# -- links ------------------------------------------------------------------------------------------------------------


def anchors(path: Path) -> set[str]:
    """As GitHub makes them: lower case, without punctuation, spaces as hyphens."""
    headings = re.findall(r"^#+ (.+)$", prose(path.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@each_document
def test_relative_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(path.read_text(encoding="utf-8"))):
        if target.startswith(("https://", "http://")):
            continue
        name, _, anchor = target.partition("#")
        file = (path.parent / name).resolve() if name else path
        assert file.exists(), f"{target} does not exist"
        assert file.is_relative_to(ROOT), f"{target} leads out of the repository"
        assert not anchor or anchor in anchors(file), f"{target}: no such heading"


@each_document
def test_no_paths_of_somebodys_machine(path: Path) -> None:
    found = re.findall(r"(?<![\w.])/(?:work|root|home|tmp|Users)/\S*", path.read_text(encoding="utf-8"))
    assert not found


# -- architecture -----------------------------------------------------------------------------------------------------

PACKAGES = [ticked(row[0])[0] for row in rows(ARCHITECTURE, "## Packages")]
WALKTHROUGHS = ("## One batch", "## One CREATE PIPELINE")
NAMED_FUNCTIONS = [
    (ticked(row[1])[0], name) for heading in WALKTHROUGHS for row in rows(ARCHITECTURE, heading) for name in ticked(row[2])
] + [(module, name) for name, module in re.findall(r"`([\w.]+)` in `([\w/]+\.py)`", ARCHITECTURE)]


@cache
def defined(path: Path) -> frozenset[str]:
    """Functions, classes and variables at the top of a module, and methods as `Class.method`."""
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        found |= {target.id for target in targets if isinstance(target, ast.Name)}
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{inner.name}" for inner in node.body if isinstance(inner, ast.FunctionDef)}
    return frozenset(found)


@each_case(("module", "name"), NAMED_FUNCTIONS)
def test_functions_that_the_architecture_names_exist(module: str, name: str) -> None:
    assert (ROOT / module).is_file(), f"{module} does not exist"
    assert name in defined(ROOT / module), f"{module} defines no {name}"


def test_both_walkthroughs_name_functions() -> None:
    assert {"plan", "collect", "publish_in_run", "read_all", "Home.save"} <= {name for _, name in NAMED_FUNCTIONS}


def test_the_architecture_lists_every_package() -> None:
    layers = ("kpipe", "transforms", "resources", "kpipe_assets")
    inner = {f"{path.parent.relative_to(ROOT)}/" for layer in layers for path in (ROOT / layer).glob("*/__init__.py")}
    assert set(PACKAGES) == inner | {f"{layer}/" for layer in layers}
    assert len(set(PACKAGES)) == len(PACKAGES)


@each_case("package", [package for package in PACKAGES if package.count("/") > 1])
def test_packages_are_listed_in_import_order(package: str) -> None:
    below = [name.strip("/").replace("/", ".") for name in PACKAGES[PACKAGES.index(package) + 1 :]]
    text = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / package).rglob("*.py"))
    text = text.replace("from resources.duckdb_engine import json_members", "")  # the exception that the page names
    imported = set(re.findall(r"^\s*(?:from|import) ([\w.]+)", text, re.MULTILINE))
    wrong = {name for name in imported if any(name == other or name.startswith(f"{other}.") for other in below)}
    assert not wrong, f"{package} imports {', '.join(sorted(wrong))}, listed below it"


def test_the_architecture_is_short() -> None:
    lines = ARCHITECTURE.splitlines()
    assert len(lines) <= 150
    assert max(map(len, lines)) <= 100
    glossary = [row[0] for row in rows(ARCHITECTURE, "## Glossary")]
    assert len(glossary) <= 25
    assert glossary == sorted(set(glossary))


# -- decisions --------------------------------------------------------------------------------------------------------

ADRS = sorted((ROOT / "docs" / "adr").glob("[0-9]*.md"))
ADR_INDEX = (ROOT / "docs" / "adr" / "README.md").read_text(encoding="utf-8")
ADR_HEADINGS = ["Context", "Decision", "Consequences", "What would overturn it"]
_ADR = re.compile(r"# (\d{4}): \S.*\n\nStatus: (accepted|superseded by (\d{4}))\n\nDate: (\d{4}-\d\d-\d\d)\n\n## Context\n")


@each_case("path", ADRS, ids=lambda path: path.stem)
def test_an_adr_follows_the_template(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    found = _ADR.match(text)
    assert found, "expected `# NNNN: title`, `Status:`, `Date:`, `## Context`, with a blank line between them"
    assert found[1] == path.name[:4]
    assert found[3] is None or list(path.parent.glob(f"{found[3]}-*.md")), f"ADR {found[3]} does not exist"
    date.fromisoformat(found[4])
    sections = re.split(r"^## (.+)\n", prose(text), flags=re.MULTILINE)[1:]
    assert sections[::2] == ADR_HEADINGS
    assert all(body.strip() for body in sections[1::2]), "a section is empty"


def test_no_adr_number_is_missing_or_used_twice() -> None:
    numbers = [int(path.name[:4]) for path in ADRS]
    unassigned = {int(number) for number in re.findall(r"Number (\d{4}) was never assigned", ADR_INDEX)}
    assert sorted([*numbers, *unassigned]) == list(range(1, max(numbers) + 1))


def test_the_index_lists_every_adr() -> None:
    assert re.findall(r"^\| \[\d{4}\]\(([^)]+)\)", ADR_INDEX, re.MULTILINE) == [path.name for path in ADRS]


# -- commands ---------------------------------------------------------------------------------------------------------


def commands(text: str) -> Iterator[str]:
    """Command lines of `kpipe` in shell blocks and in backticks."""
    lines = [line for language in ("sh", "console", "text") for body in blocks(text, language) for line in body.splitlines()]
    for line in [*lines, *spans(text)]:
        found = re.match(r"\s*(?:\$ )?(?:\.venv/bin/)?kpipe (.+)", line)
        if found:
            yield found[1]


def problem(command: str) -> str:
    """What the click tree has against a command line; empty when it would be taken."""
    # Placeholders: [--follow] is an option that can be left out, 0,2-5 and NAME are values.
    words = shlex.split(command.replace("[", " ").replace("]", " "), comments=True)
    here: click.Command = kpipe
    for word in words:
        context = click.Context(here)
        options = {name: option for option in here.get_params(context) for name in (*option.opts, *option.secondary_opts)}
        if word.startswith("-"):
            if word not in options:
                return f"{here.name} has no option {word}"
        elif isinstance(here, click.Group):
            found = here.get_command(context, word)
            if found is None:
                return f"{here.name} has no subcommand {word}"
            here = found
    return ""


def test_a_command_that_does_not_exist_would_be_noticed() -> None:
    assert problem("run orders --follow") == problem("--debug broker start --port 9092") == ""
    assert "--folow" in problem("run orders --folow")
    assert "fly" in problem("fly orders")


@each_document
def test_commands_and_their_options_exist(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    wrong = {command: problem(command) for command in commands(text)}
    assert not {command: why for command, why in wrong.items() if why}


def test_the_guide_names_every_command() -> None:
    named = {command.split()[0] for command in commands(COMMANDS)}
    assert set(kpipe.list_commands(click.Context(kpipe))) <= named


def test_the_readme_links_every_page() -> None:
    linked = set(
        re.findall(r"\]\((docs/(?:tutorial|how-to|reference|explanation)/[^)#]+)", README[README.index("## Documentation") :])
    )
    sections = [ROOT / "docs" / name for name in ("tutorial", "how-to", "reference", "explanation")]
    assert linked == {str(path.relative_to(ROOT)) for section in sections for path in section.rglob("*.md")}


def test_the_readme_has_at_most_130_lines() -> None:
    assert len(README.splitlines()) <= 130


def test_the_output_of_the_demo_ends_with_the_commands_of_the_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = blocks(DEMO[DEMO.index("<!-- demo-output -->") : DEMO.index("<!-- /demo-output -->")], "text")[0]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "executable", str(tmp_path / ".venv" / "bin" / "python"))
    printed = io.StringIO()
    _next(Console(file=printed, width=140), Home(tmp_path / ".kpipe"))
    assert shown[shown.index("\nNext\n") :] == printed.getvalue()


@each_case("target", ["install", "demo", "test", "check", "lock", "clean"])
def test_targets_of_make_exist(target: str) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert re.search(rf"^{target}:", makefile, re.MULTILINE)


@each_document
def test_only_targets_of_make_that_exist_are_named(path: Path) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    text = path.read_text(encoding="utf-8")
    named = set(re.findall(r"`make ([a-z]+)`", text)) | set(re.findall(r"^\s*make ([a-z]+)", text, re.MULTILINE))
    assert {name for name in named if not re.search(rf"^{name}:", makefile, re.MULTILINE)} == set()


# -- definitions ------------------------------------------------------------------------------------------------------


def definitions() -> list[tuple[str, str]]:
    return [
        (str(path.relative_to(ROOT)), body)
        for path in DOCUMENTS
        for body in blocks(path.read_text(encoding="utf-8"), "yaml")
        if body.startswith("type:")
    ]


@each_case(("where", "body"), definitions(), ids=lambda value: value[:20])
def test_definitions_can_be_read_and_run(where: str, body: str, tmp_path: Path) -> None:
    environ = {"KAFKA_USER": "u", "KAFKA_PASSWORD": "p"}
    pipeline = from_yaml(body, where, environ)
    validate(pipeline, Home(tmp_path), Needs.FIELDS)
    client_config(pipeline.source, environ)


def test_there_are_definitions() -> None:
    assert len(definitions()) >= 4


def test_python_in_the_guide_compiles_and_uses_names_that_exist() -> None:
    import kpipe_assets

    examples = blocks(FIRST_PIPELINE, "python")
    assert examples
    for body in examples:
        compile(body, "first-pipeline.md", "exec")
        for names in re.findall(r"from kpipe_assets import (.+)", body):
            assert all(hasattr(kpipe_assets, name.strip()) for name in names.split(","))


# -- fields -----------------------------------------------------------------------------------------------------------


def fields(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every field by its path, with its default; `required` where there is none. Groups that are always there are left out."""
    for name, field in model.model_fields.items():
        path = prefix + (field.alias or name)
        default = "required" if field.is_required() else field.get_default(call_default_factory=True)
        # Fields of models have fields; start and end are one value that may be written as a model.
        kinds = () if path in ("source.start", "source.end") else (field.annotation, *get_args(field.annotation))
        group = next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)
        if path in ("key_format", "also"):  # described once, as format; as fields of the pipeline and of into
            group = None
        if group is None or default is None:
            yield path, default
        if group is not None:
            yield from fields(group, f"{path}.")


def described() -> dict[str, str]:
    """Default of every field that the page of fields lists, as the page spells it, by the field's path."""
    found = {}
    sections = re.split(r"^## (.+)$", FIELDS, flags=re.MULTILINE)[1:]
    for heading, body in zip(sections[::2], sections[1::2], strict=True):
        section = heading.strip("`")
        prefix = "" if section == "Pipeline" else f"{section.removesuffix('.NAME')}."
        for name, kind, default, _ in rows(body, "") if section != "also" else ():  # described once
            if kind not in ("a group", "map to a group") or default == "not set":
                found[prefix + ticked(name)[0]] = default
    return found


def test_every_field_is_described() -> None:
    known = dict(fields(Pipeline))
    assert {"source.brokers", "transform.mode", "schema", "into.table", "errors.max_dead_letters"} <= set(known)
    assert set(described()) == set(known)


@each_case(("path", "default"), list(fields(Pipeline)), ids=lambda value: str(value)[:40])
def test_defaults_are_those_of_the_model(path: str, default: Any) -> None:
    text = described()[path]
    plain: dict[str, Any] = {"required": "required", "not set": None, "": []}
    assert (plain[text] if text in plain else json.loads(ticked(text)[0])) == default


#: For each field that the table marks as (later): what is refused.
LATER: dict[str, list[dict[str, Any]]] = {
    "into.type": [{"into": {"table": "t", "type": "carrier_pigeon"}}],
}


def test_what_is_marked_as_later_is_what_is_refused() -> None:
    assert {ticked(row[0])[0] for row in rows(DESIGN, "<!-- later") if "**(later)**" in row[1]} == set(LATER)


@each_case("change", [change for changes in LATER.values() for change in changes], ids=str)
def test_what_comes_later_is_refused_by_name(change: dict[str, Any], tmp_path: Path) -> None:
    base = {"name": "p", "source": {"brokers": "b:9092", "topic": "a"}, "into": {"table": "t"}}
    pipeline = Pipeline.model_validate({**base, **change})
    with pytest.raises(NotAvailable):
        validate(pipeline, Home(tmp_path), Needs.FIELDS)
        KafkaTopics(pipeline.source)
        open_destination(pipeline, Home(tmp_path))


# -- formats ----------------------------------------------------------------------------------------------------------


def test_json_in_the_guide_has_the_keys_of_the_code() -> None:
    told = {tuple(json.loads(line)) for body in blocks(JSON_OUTPUT, "json") for line in body.splitlines()}
    commit = Commit("0" * 32, "p", ())
    assert tuple(batch_line(Committed(commit, 1, Batch("0" * 32, "p", ())))) in told
    assert tuple(Totals().line("p")) in told
    assert tuple(Audit(0, Counts(), {}, []).to_dict()) in told
    assert ("running", "brokers", "kind", "version") in told


def test_tables_and_views_have_the_columns_that_are_told() -> None:
    sections = re.split(r"^## (.+)$", TABLES, flags=re.MULTILINE)[1:]
    told = {name: [ticked(row[0])[0] for row in rows(body, "")] for name, body in zip(sections[::2], sections[1::2], strict=True)}
    connection = duckdb.connect(":memory:")
    try:
        duckdb_dialect.create(connection)
        names = [name for (name,) in connection.execute("SELECT table_name FROM information_schema.tables").fetchall()]
        found = {name: [row[0] for row in connection.execute(f'DESCRIBE "{name}"').fetchall()] for name in names}
    finally:
        connection.close()
    assert told == found


# -- errors, names, modules ---------------------------------------------------------------------------------------------


def leaves(base: type[KpipeError]) -> set[str]:
    return {name for name in errors.__all__ if isinstance(kind := getattr(errors, name), type) and issubclass(kind, base)
            and not kind.__subclasses__()}  # fmt: skip


ERRORS = rows(ERRORS_PAGE, "# Errors")


@each_case("row", ERRORS, ids=lambda row: row[0])
def test_errors_are_told_as_they_are(row: list[str]) -> None:
    kind = getattr(errors, ticked(row[0])[0])
    assert row[1] == str(kind.exit_status)
    assert row[2] == ("yes" if kind.retriable else "no")


def test_every_named_error_is_in_the_guide() -> None:
    told = {ticked(row[0])[0] for row in ERRORS}
    assert leaves(KpipeError) <= told


def test_the_guide_has_every_error_that_needs_an_operator() -> None:
    told = {ticked(row[0])[0] for row in rows(BAD_RECORDS, "## Errors that need an operator")}
    assert told == leaves(NeedsOperator)


@cache
def sources() -> str:
    layers = ("kpipe", "transforms", "resources", "kpipe_assets", "tests")
    own = Path(__file__)
    files = (path for layer in layers for path in (ROOT / layer).rglob("*.py") if path != own)
    return "\n".join(path.read_text(encoding="utf-8") for path in files)


@cache
def words() -> frozenset[str]:
    return frozenset(re.findall(r"\b[A-Z]\w+\b", sources()))


@each_document
def test_names_in_the_spelling_of_classes_are_in_the_code(path: Path) -> None:
    named = {word for span in spans(path.read_text(encoding="utf-8")) for word in re.findall(r"\b[A-Z][a-z]+[A-Z]\w+\b", span)}
    assert named <= words()


FOLDERS = ("kpipe", "kpipe_assets", "resources", "transforms", "tests", "bench", "docs")
PAGES = sorted({*ROOT.glob("*.md"), *(page for folder in FOLDERS for page in (ROOT / folder).rglob("*.md"))})
_FILE = re.compile(rf"(?<![\w./-])(?:{'|'.join(FOLDERS)})/[\w./-]*")
_DEFINED_IN = re.compile(r"`([A-Za-z_][\w.]*)` in `([\w/]+\.py)`")


@each_case("path", [page for page in PAGES if page.name != "CHANGELOG.md"], ids=lambda path: str(path.relative_to(ROOT)))
def test_files_that_are_named_exist(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    named = {name.rstrip("/.") for span in spans(text) for name in _FILE.findall(span)}
    missing = {name for name in named if "NAME" not in name and not (ROOT / name).exists()}
    # `kpipe/rows` is a key of Dagster's metadata if the code has it.
    code = sources() if any(name.startswith("kpipe/") for name in missing) else ""
    assert {name for name in missing if not re.search(rf'["/]{name.removeprefix("kpipe/")}"', code)} == set()
    for name, module in _DEFINED_IN.findall(text):
        assert name in defined(ROOT / module), f"{module} defines no {name}"


def test_pages_that_the_code_names_exist() -> None:
    """Hints of errors, comments and docstrings name pages by their path."""
    files = [
        path
        for folder in FOLDERS[:-1]
        for pattern in ("*.py", "*.c", "Containerfile", "*.yaml")
        for path in (ROOT / folder).rglob(pattern)
        if not any(part.startswith(".") for part in path.relative_to(ROOT).parts)  # peers of the benchmarks
    ]
    found = {(path, name) for path in files for name in re.findall(r"\bdocs/[\w/-]+\.md\b", path.read_text(encoding="utf-8"))}
    assert len(found) > 20
    assert [(str(path), name) for path, name in sorted(found) if not (ROOT / name).is_file() and "NAME" not in name] == []
