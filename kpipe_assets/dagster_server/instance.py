"""The Dagster instance of a home: its folder, its settings, and the environment of its processes."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from kpipe.errors import KpipeError
from resources.environ import snapshot
from resources.home import Home

__all__ = ["environment", "is_unedited", "make_storage", "open_instance", "prepare"]

if TYPE_CHECKING:
    import dagster as dg

_FILE = "dagster.yaml"
_LOCK = "opening.lock"
_OPENING = threading.Lock()
# Last line of a file that kpipe wrote. If the hash matches the lines above, the file is unedited.
_MARK = re.compile(r"# written by kpipe, unedited: ([0-9a-f]{64})\n\Z")


def environment(home: Home, environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment of Dagster's processes, with this home. DAGSTER_HOME is kept if the user has set it."""
    values = snapshot() if environ is None else dict(environ)
    values["KPIPE_HOME"] = str(home.path)
    values["DAGSTER_HOME"] = str(Path(values.get("DAGSTER_HOME") or home.dagster).expanduser().absolute())
    # A user's folder `resources` or `dagster` must not be imported instead of the package (Python 3.11+).
    values["PYTHONSAFEPATH"] = "1"
    values["PYTHONUNBUFFERED"] = "1"
    # Events that Dagster passes to its storage at once (storage.py); each uses some 5 kB of memory.
    values.setdefault("DAGSTER_EVENT_BATCH_SIZE", "1000")
    values.setdefault("PYTHONWARNINGS", "ignore")  # Dagster warns "is currently in beta" at every load
    return values


def prepare(home: Home, environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Create the folder, write missing or outdated settings, and return the environment.

    An edited file and the user's own DAGSTER_HOME are not changed.

    Raises:
        KpipeError: the folder is not writable, or DAGSTER_HOME does not exist.
    """
    home.make()
    values = environment(home, environ)
    folder = Path(values["DAGSTER_HOME"])
    if folder != home.dagster:
        if not folder.is_dir():
            raise KpipeError(f"DAGSTER_HOME: expected an existing folder, found {folder}", "unset it, or create the folder")
        return values
    folder.mkdir(mode=0o700, exist_ok=True)
    file = folder / _FILE
    wanted = _sealed(files("kpipe_assets").joinpath(_FILE).read_text(encoding="utf-8"))
    if not file.exists() or (_is_ours(text := file.read_text(encoding="utf-8")) and text != wanted):
        fresh = file.with_suffix(f".{uuid.uuid4().hex}")  # other threads and processes may prepare the home, too
        fresh.write_text(wanted, encoding="utf-8")
        fresh.replace(file)
    return values


def make_storage(environ: Mapping[str, str]) -> None:
    """Create Dagster's databases before its processes start.

    Web server, daemon and code server each create missing databases. If they do so at the same time, the version table has
    two rows, and none of them can read it (measured with SQLite: "more than one head present").

    Args:
        environ: the result of `prepare`.
    """
    with open_instance(environ["DAGSTER_HOME"]):
        pass


def open_instance(folder: str | Path) -> dg.DagsterInstance:
    """Open the Dagster instance in a folder as a context manager. Its settings may refer to DAGSTER_HOME.

    One thread and, in kpipe's own folder, one process at a time: the first one creates the databases (see `make_storage`).
    """
    import dagster as dg

    with _OPENING, _locked(Path(folder)):
        before = os.environ.get("DAGSTER_HOME")
        os.environ["DAGSTER_HOME"] = str(folder)
        try:
            return dg.DagsterInstance.from_config(str(folder))
        finally:
            if before is None:
                del os.environ["DAGSTER_HOME"]
            else:
                os.environ["DAGSTER_HOME"] = before


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lock a folder of kpipe's own against other processes."""
    if not is_unedited(folder):
        yield
        return
    with (folder / _LOCK).open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def is_unedited(folder: Path) -> bool:
    """Return whether kpipe, this version or an older one, wrote the settings and they are unedited."""
    try:
        return _is_ours((folder / _FILE).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return False


def _sealed(text: str) -> str:
    return f"{text}# written by kpipe, unedited: {hashlib.sha256(text.encode()).hexdigest()}\n"


def _is_ours(text: str) -> bool:
    return bool(_MARK.search(text)) and text == _sealed(_MARK.sub("", text))
