"""List the Parquet files of a folder as readers of such folders do, and name each of them to DuckDB exactly."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from kpipe.errors import DestinationError, InvalidPipeline

__all__ = ["FileState", "exact", "file_state", "parquet_files"]

FileState = tuple[str, int, int]

_SUFFIXES = (".parquet", ".parq", ".pq")
_MAGIC = b"PAR1"


def parquet_files(place: Path) -> Iterator[Path]:
    """Yield the files that readers of such a folder read, in links to folders as well; or the file itself.

    Names that begin with `_` or `.` are not data. A file with another suffix is data if it begins and ends as Parquet does:
    readers do not check the suffix.

    Raises:
        InvalidPipeline: the folder is a table of another format, which has more files than the current table.
        DestinationError: a folder cannot be listed, or is reached twice: its rows would be missing, or counted twice.
    """
    if not place.is_dir():
        if place.is_file():
            yield place
        return
    reached: set[tuple[int, int]] = set()
    for folder, names, files in os.walk(place, onerror=_unlisted, followlinks=True):
        here = Path(folder)
        _once(here, reached)
        if "_delta_log" in names:
            raise InvalidPipeline(f"{here}: a Delta table, with files of older versions", "use --type delta")
        if here.name == "metadata" and any(name.endswith(".metadata.json") for name in files):
            raise InvalidPipeline(f"{here.parent}: an Iceberg table, with files of older versions", "use --type iceberg")
        if "_spark_metadata" in names:
            yield from _spark_files(here / "_spark_metadata")
            names.clear()
            continue
        names[:] = sorted(name for name in names if not name.startswith(("_", ".")) or "=" in name)
        for name in sorted(files):
            if not name.startswith(("_", ".")) and (name.endswith(_SUFFIXES) or _is_parquet(here / name)):
                yield here / name


def _unlisted(error: OSError) -> None:
    raise DestinationError(f"{error.filename}: cannot be listed: {error.strerror}", "permit it, or audit a copy") from None


def _once(folder: Path, reached: set[tuple[int, int]]) -> None:
    """Record a folder; a link may lead to its own parent, without end."""
    found = folder.stat()
    if (found.st_dev, found.st_ino) in reached:
        raise DestinationError(f"{folder}: leads to a folder that was read before", "remove the link, or audit a copy")
    reached.add((found.st_dev, found.st_ino))


def _is_parquet(path: Path) -> bool:
    """Return whether a regular file begins and ends as a complete Parquet file does."""
    try:
        if not path.is_file() or path.stat().st_size < 2 * len(_MAGIC):
            return False
        with path.open("rb") as file:
            head = file.read(len(_MAGIC))
            file.seek(-len(_MAGIC), os.SEEK_END)
            return head == _MAGIC == file.read(len(_MAGIC))
    except OSError as error:
        raise DestinationError(f"{path}: cannot be read: {error.strerror}", "permit it, or audit a copy") from None


def _spark_files(log: Path) -> Iterator[Path]:
    """Yield the files that Structured Streaming's file sink has committed; its folder may contain others."""
    entries = {name: path for path in log.iterdir() if re.fullmatch(r"\d+(\.compact)?", name := path.name)}
    compacted = [int(name.partition(".")[0]) for name in entries if name.endswith(".compact")]
    first = max(compacted, default=-1)
    live: dict[str, None] = {}
    for name, path in sorted(entries.items(), key=lambda item: int(item[0].partition(".")[0])):
        number, compact = int(name.partition(".")[0]), name.endswith(".compact")
        if number < first or (number == first and not compact):
            continue
        for line in path.read_text(encoding="utf-8").splitlines()[1:]:
            try:
                entry = json.loads(line)
                file = log.parent / Path(unquote(urlsplit(str(entry["path"])).path)).relative_to(log.parent)
                added = entry.get("action", "add") == "add"
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                raise DestinationError(
                    f"{path}: not a list of files of this folder: {str(error)[:200]}", "audit the folder that the query wrote"
                ) from None
            if added:
                live[str(file)] = None
            else:
                live.pop(str(file), None)
    yield from map(Path, live)


def file_state(path: Path) -> FileState:
    """Return path, size and time of modification; -1 for a file that is missing."""
    try:
        found = path.stat()
    except OSError:
        return str(path), -1, -1
    return str(path), found.st_size, found.st_mtime_ns


def exact(path: str) -> str:
    """Return the pattern that matches this path and no other in DuckDB, which expands `*`, `?` and `[` in each name.

    Raises:
        InvalidPipeline: no pattern is known to match the path.
    """
    if not re.search(r"[*?\[]", path):
        return path
    if "\\" in path:
        raise InvalidPipeline(f"{path}: contains a backslash and a pattern", "rename it, or audit a copy")
    return re.sub(r"([*?\[])", r"[\1]", path)
