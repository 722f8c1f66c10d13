"""Check the layout of ARCHITECTURE.md: which packages import which, and what every module has."""

from __future__ import annotations

import ast
import importlib
import os
import subprocess
import sys
from collections.abc import Iterator, Set
from functools import cache
from pathlib import Path

import pytest

from tests.cases import each_case

ROOT = Path(__file__).parent.parent
#: From the ground up: each imports only what stands to its left.
LAYERS = ("kpipe", "transforms", "resources", "kpipe_assets")
#: What the pure core never imports: every effect is injected.
NOT_IN_CORE = {"dagster", "dagster_pyspark", "pyspark", "confluent_kafka", "duckdb", "pyarrow", "click", "rich", "psutil"}
LONGEST = 350


def files() -> Iterator[Path]:
    for layer in LAYERS:
        yield from sorted((ROOT / layer).rglob("*.py"))


def is_program(path: Path) -> bool:
    """Small examples for users: programs, not modules."""
    return "programs" in path.relative_to(ROOT).parts


MODULES = [path for path in files() if not is_program(path)]


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def import_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), named(path))


@cache
def imported(path: Path, typing_too: bool = True) -> frozenset[str]:
    """Full names of all modules that a file imports, wherever in it; relative ones resolved.

    `from a import b` gives `a` and `a.b`: b may be a module.
    """
    package = import_name(path).split(".") if path.name == "__init__.py" else import_name(path).split(".")[:-1]
    found: set[str] = set()
    skipped: set[ast.AST] = set()
    for node in ast.walk(tree(path)):
        if not typing_too and isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            skipped.update(inner for child in node.body for inner in ast.walk(child))
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            found.add(base)
            found.update(f"{base}.{alias.name}" for alias in node.names)
    return frozenset(found)


def tops(names: Set[str]) -> set[str]:
    return {name.split(".")[0] for name in names}


def in_worker(path: Path) -> bool:
    """Whether Spark's workers import it: transforms, and the parts of resources that run inside a task."""
    parts = path.relative_to(ROOT).parts
    if parts[0] in ("kpipe", "transforms"):
        return True
    inside = parts[0] == "resources" and len(parts) > 1
    return inside and parts[1] in ("decode", "duckdb_engine", "kafka", "spark")


@each_case("path", list(files()), ids=named)
def test_imports_point_down(path: Path) -> None:
    layer = LAYERS.index(path.relative_to(ROOT).parts[0])
    above = tops(imported(path)) & set(LAYERS[layer + 1 :])
    assert not above, f"{named(path)} imports {', '.join(sorted(above))}, which stands above it"
    assert "tests" not in tops(imported(path))


def package_of(module: str, packages: set[str]) -> str:
    """The package of a module; a module that lies beside packages stands for itself."""
    package = module if module in packages else module.rpartition(".")[0]
    return module if any(other.startswith(f"{package}.") for other in packages) else package


def modules_imported(path: Path, modules: dict[str, Path]) -> set[str]:
    """The product's modules that a file imports, wherever in it."""
    # `from a import b` names `a` as well: where b is a module, a itself is not what is imported.
    found = imported(path) & modules.keys()
    packages = {name for name in found if modules[name].name == "__init__.py"}
    return set(found - {base for base in packages if any(other.startswith(f"{base}.") for other in found)})


def assert_no_cycle(edges: dict[str, set[str]]) -> None:
    done: set[str] = set()

    def follow(name: str, way: tuple[str, ...]) -> None:
        assert name not in way, "a cycle: " + " imports ".join([*way[way.index(name) :], name])
        if name not in done:
            for other in sorted(edges.get(name, ())):
                follow(other, (*way, name))
            done.add(name)

    for name in sorted(edges):
        follow(name, ())


def test_no_package_imports_one_that_imports_it() -> None:
    modules = {import_name(path): path for path in MODULES}
    packages = {import_name(path) for path in MODULES if path.name == "__init__.py"}
    edges: dict[str, set[str]] = {}
    for name, path in modules.items():
        if name in LAYERS:
            continue  # lazy re-exports
        own = package_of(name, packages)
        edges.setdefault(own, set()).update({package_of(other, packages) for other in modules_imported(path, modules)} - {own})
    assert_no_cycle(edges)


def test_no_module_imports_one_that_imports_it() -> None:
    """Imports inside of functions included."""
    modules = {import_name(path): path for path in MODULES}
    assert_no_cycle({name: modules_imported(path, modules) - {name} for name, path in modules.items()})


@each_case("path", [path for path in MODULES if path.parts[len(ROOT.parts)] == "kpipe"], ids=named)
def test_the_core_imports_no_engine(path: Path) -> None:
    assert not tops(imported(path)) & NOT_IN_CORE


@each_case("path", [path for path in MODULES if in_worker(path)], ids=named)
def test_what_sparks_workers_import_never_imports_dagster(path: Path) -> None:
    assert not {name for name in tops(imported(path, typing_too=False)) if name.startswith("dagster")}


@each_case("path", MODULES, ids=named)
def test_every_module_says_what_it_is_for(path: Path) -> None:
    assert (ast.get_docstring(tree(path)) or "").strip(), f"{named(path)} has no docstring"


@each_case("path", MODULES, ids=named)
def test_no_module_is_longer_than_one_reads_at_once(path: Path) -> None:
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= LONGEST, f"{named(path)} has {lines} lines, {LONGEST} at most: a file that needs a table of contents is two"


@each_case("path", MODULES, ids=named)
def test_names_that_a_module_exports_exist(path: Path) -> None:
    body = tree(path).body
    exported: list[str] = []
    for node in body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets):
            exported = ast.literal_eval(node.value)
    known = {alias.asname or alias.name.split(".")[0] for node in body if isinstance(node, ast.Import | ast.ImportFrom)
             for alias in node.names}  # fmt: skip
    for node in ast.walk(ast.Module(body, [])):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            known.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            known.add(node.id)
    lazy = "__getattr__" in known
    assert lazy or set(exported) <= known, f"{named(path)}: __all__ names {sorted(set(exported) - known)}"
    assert len(set(exported)) == len(exported)


def loaded_by(module: str) -> set[str]:
    """Top-level packages in memory after a fresh interpreter imported that module."""
    code = f"import {module}, sys; sys.stdout.write(' '.join(sorted({{name.split('.')[0] for name in sys.modules}})))"
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


CORE = [import_name(path) for path in MODULES if path.is_relative_to(ROOT / "kpipe")]


def test_importing_the_whole_core_loads_no_engine() -> None:
    assert not loaded_by(", ".join(CORE)) & NOT_IN_CORE


@pytest.mark.heavy
def test_importing_what_a_worker_needs_loads_no_dagster() -> None:
    """All of them in one interpreter: what none loads, each does not."""
    names = sorted(import_name(path) for path in MODULES if in_worker(path) and "resources" in path.parts)
    assert not {top for top in loaded_by(", ".join(names)) if top.startswith("dagster")}


def test_importing_kpipe_assets_does_not_load_dagster() -> None:
    assert not {top for top in loaded_by("kpipe_assets") if top.startswith("dagster")}


_LOOK = """
import sys, types, dagster, dagster_webserver.cli, dagster._daemon.controller, dagster._cli, dagster._grpc.server, uvicorn
import alembic.script, dagster._core.execution.compute_logs, dagster._core.storage.sqlite_storage, multiprocessing.spawn

WATCHED = ("dagster", "dagster_webserver", "alembic", "sqlalchemy", "uvicorn", "starlette", "multiprocessing")

def look():
    found = {}
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] in WATCHED:
            for key, value in list(vars(module).items()):
                found[name, key] = value
                if isinstance(value, type) and value.__module__ == name:
                    found.update({(name, key, inner): it for inner, it in vars(value).items()})
    return found

def theirs(value):  # not one that Dagster has made lazily
    return isinstance(value, (types.ModuleType, int, str)) or (getattr(value, "__module__", "") or "").split(".")[0] in WATCHED

before = look()
import kpipe_assets.definitions
from kpipe_assets.dagster_server import code_server, daemon, storage, webserver
after = look()
changed = {key for key in before if key in after and after[key] is not before[key] and not key[-1].startswith("__")}
ours = [key for key in changed if theirs(before[key]) and not theirs(after[key]) or isinstance(before[key], int)]
print(*map(".".join, ours), end="")
"""


@pytest.mark.heavy
def test_importing_kpipe_changes_nothing_in_dagster() -> None:
    """A Dagster that loads kpipe's definitions beside others stays as it was: kpipe's storage and processes are its own."""
    done = subprocess.run([sys.executable, "-c", _LOOK], cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_every_module_of_the_core_can_be_imported_by_its_path() -> None:
    for name in CORE:
        module = importlib.import_module(name)
        for exported in getattr(module, "__all__", ()):
            assert hasattr(module, exported), f"{name}.{exported}"
