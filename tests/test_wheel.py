"""The wheel contains every file of the four packages. setuptools lists its files; nothing is built."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("kpipe", "transforms", "resources", "kpipe_assets")

# Without `include_package_data`, which would run egg_info and write into the repository.
_LIST = """
import json
from setuptools import Distribution

distribution = Distribution({"script_name": "setup.py"})  # need not exist
distribution.parse_config_files()
distribution.include_package_data = False
build = distribution.get_command_obj("build_py")
build.ensure_finalized()
files = [file for _, _, file in build.find_all_modules()]
files += [f"{folder}/{name}" for _, folder, _, names in build.data_files for name in names]
sources = [file for extension in distribution.ext_modules for file in (*extension.sources, *extension.depends)]
print(json.dumps([files, sources]))
"""


@pytest.fixture(scope="module")
def listed() -> tuple[set[str], set[str]]:
    """Return the files of the wheel and the sources of the compiled part."""
    done = subprocess.run([sys.executable, "-c", _LIST], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    files, sources = json.loads(done.stdout.splitlines()[-1])
    return {str(Path(file)) for file in files}, set(sources)


def present(*suffixes: str) -> set[str]:
    """Return the files of the four packages with these suffixes; with none, every file that is not compiled or a document."""
    files = (path for package in PACKAGES for path in (ROOT / package).rglob("*") if path.is_file())
    return {
        str(path.relative_to(ROOT))
        for path in files
        if "__pycache__" not in path.parts
        and (path.suffix in suffixes if suffixes else path.suffix not in {".md", ".so", ".pyd", ".dylib"})
    }


def test_every_module_is_in_the_wheel(listed: tuple[set[str], set[str]]) -> None:
    modules = present(".py")
    assert {f"{package}/__init__.py" for package in PACKAGES} <= modules
    assert modules - listed[0] == set()


def test_every_other_file_is_in_the_wheel(listed: tuple[set[str], set[str]]) -> None:
    assert present() - listed[0] == set()


@pytest.mark.parametrize("package", PACKAGES)
def test_types_of_every_package_are_in_the_wheel(listed: tuple[set[str], set[str]], package: str) -> None:
    assert f"{package}/py.typed" in listed[0]


def test_every_native_source_is_compiled(listed: tuple[set[str], set[str]]) -> None:
    native = {path for path in present(".c", ".h") if path.startswith("resources/native/")}
    assert native == listed[1]


def test_no_test_is_in_the_wheel(listed: tuple[set[str], set[str]]) -> None:
    assert {Path(file).parts[0] for file in listed[0]} == set(PACKAGES)
