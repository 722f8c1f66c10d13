"""Dagster's own folder of a home: its settings, and what its processes find in their environment."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from kpipe.errors import KpipeError
from resources.home import Home

__all__ = ["environment", "is_unedited", "make_storage", "open_instance", "prepare"]

if TYPE_CHECKING:
    import dagster as dg

_FILE = "dagster.yaml"
# The last line of a file that we wrote: as long as it fits what stands above it, nobody has edited the file.
_MARK = re.compile(r"# written by kpipe, unedited: ([0-9a-f]{64})\n\Z")


def environment(home: Home, environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of Dagster's processes: this home, wherever they are started.

    DAGSTER_HOME stays what the user has set it to.
    """
    values = dict(os.environ if environ is None else environ)
    values["KPIPE_HOME"] = str(home.path)
    values["DAGSTER_HOME"] = str(Path(values.get("DAGSTER_HOME") or home.dagster).expanduser().absolute())
    # A folder of the user's that is called `resources` or `dagster` must not be imported in place of ours (Python 3.11+).
    values["PYTHONSAFEPATH"] = "1"
    values["PYTHONUNBUFFERED"] = "1"
    # How many events Dagster hands to its storage at once (storage.py); each takes some 5 kB of memory meanwhile.
    values.setdefault("DAGSTER_EVENT_BATCH_SIZE", "1000")
    values.setdefault("PYTHONWARNINGS", "ignore")  # Dagster's "is currently in beta", at every load
    return values


def prepare(home: Home, environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Make the folder, write the settings where they are missing or an older version's, and give the environment.

    A file that somebody has edited, and a DAGSTER_HOME of the user's own, stay as they are.

    Raises:
        KpipeError: the folder cannot be written, or DAGSTER_HOME does not exist.
    """
    home.make()
    values = environment(home, environ)
    folder = Path(values["DAGSTER_HOME"])
    if folder != home.dagster:
        if not folder.is_dir():
            raise KpipeError(f"DAGSTER_HOME is {folder}, which is no folder", "unset DAGSTER_HOME, or make the folder")
        return values
    folder.mkdir(mode=0o700, exist_ok=True)
    file = folder / _FILE
    wanted = _sealed(files("kpipe_assets").joinpath(_FILE).read_text(encoding="utf-8"))
    if not file.exists() or (_is_ours(text := file.read_text(encoding="utf-8")) and text != wanted):
        fresh = file.with_suffix(".new")
        fresh.write_text(wanted, encoding="utf-8")
        fresh.replace(file)
    return values


def make_storage(environ: Mapping[str, str]) -> None:
    """Make Dagster's databases, once, before its processes start.

    Web server, daemon and code server each make them when they are missing. Three at once leave a version table with two
    rows, which none of them can read any more (seen with SQLite: "more than one head present").

    Args:
        environ: as `prepare` gave it.
    """
    with open_instance(environ["DAGSTER_HOME"]):
        pass


def open_instance(folder: str | Path) -> dg.DagsterInstance:
    """Open Dagster's instance in a folder, as a context. Its settings may name the folder as DAGSTER_HOME."""
    import dagster as dg

    before = os.environ.get("DAGSTER_HOME")
    os.environ["DAGSTER_HOME"] = str(folder)
    try:
        return dg.DagsterInstance.from_config(str(folder))
    finally:
        if before is None:
            del os.environ["DAGSTER_HOME"]
        else:
            os.environ["DAGSTER_HOME"] = before


def is_unedited(folder: Path) -> bool:
    """Whether the settings in Dagster's folder are those that kpipe has written, this version's or an older one's."""
    try:
        return _is_ours((folder / _FILE).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return False


def _sealed(text: str) -> str:
    return f"{text}# written by kpipe, unedited: {hashlib.sha256(text.encode()).hexdigest()}\n"


def _is_ours(text: str) -> bool:
    return bool(_MARK.search(text)) and text == _sealed(_MARK.sub("", text))
