"""Folder of one `kpipe chaos`, KPIPE_HOME/chaos/NAME-SEED-ID, and the list of what was created, so that it can be removed.

- manifest.json: the copies; written before each is created
- definition.yaml: the definition that was copied; credentials are references
- home/: home of the copies, with definitions, staged files, default database and state
- work/: hashes of rows, copies of lookups
- runs/: output of each run
- audits/: reports of `kpipe audit`
- report.json: the result
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from kpipe.definition.pipeline import Pipeline
from kpipe.definition.secret_values import problem
from kpipe.definition.yaml_codec import from_yaml, to_yaml
from kpipe.errors import KpipeError
from kpipe_assets.chaos.definition import PREFIX
from kpipe_assets.chaos.places import Place, place_of
from kpipe_assets.chaos.processes import kill_all, runs_of
from kpipe_assets.chaos.staging import remove_staging
from kpipe_assets.runs.run_locks import is_locked
from resources.home import Home
from resources.secret_references import credential

__all__ = ["Manifest", "Workspace", "externalized", "unfinished"]

_VARIABLE = "KPIPE_CHAOS_"


@dataclass
class Manifest:
    """Names of everything that one `kpipe chaos` has created.

    Attributes:
        pipeline: name of the pipeline that is copied.
        id: part of every name that is created.
        seed: of the faults.
        copies: state of each copy by name: `creating`, `created` or `dropped`.
        staging: location of staged files outside of the folder; empty: there is none.
        kept: whether the copies are kept on purpose.
        cleaned: whether everything but the report was removed.
    """

    pipeline: str
    id: str
    seed: int
    copies: dict[str, str] = field(default_factory=dict)
    staging: str = ""
    kept: bool = False
    cleaned: bool = False


class Workspace:
    """One folder, and its manifest.

    Args:
        path: the folder.
        manifest: its content.
        pipeline: the definition to copy.
    """

    def __init__(self, path: Path, manifest: Manifest, pipeline: Pipeline) -> None:
        self.path, self.manifest, self.pipeline = path, manifest, pipeline
        self.home = Home.at(path / "home")
        self.runs, self.work = path / "runs", path / "work"

    @classmethod
    def planned(cls, home: Home, pipeline: Pipeline, seed: int) -> Workspace:
        """Return a new one. Nothing is created yet."""
        manifest = Manifest(pipeline.name, secrets.token_hex(4), seed)
        return cls(home.chaos / f"{pipeline.name}-{seed}-{manifest.id}", manifest, pipeline)

    def make(self) -> Workspace:
        """Create the folder.

        Raises:
            KpipeError: it cannot be written.
        """
        try:
            self.path.parent.mkdir(mode=0o700, exist_ok=True)
            for folder in (self.path, self.home.path, self.runs, self.work):
                folder.mkdir(mode=0o700)
            _write(self.path / "definition.yaml", to_yaml(externalized(self.pipeline)[0]))
        except OSError as error:
            raise KpipeError(f"cannot write to {self.path}: {error.strerror}", "free space, or grant access") from error
        self.save()
        return self

    @classmethod
    def open(cls, home: Home, path: Path) -> Workspace:
        """Open an existing folder. Literal credentials are those of the pipeline's current definition.

        Raises:
            KpipeError: a file is damaged, or a credential is missing.
        """
        try:
            manifest = Manifest(**json.loads((path / "manifest.json").read_text()))
            saved = from_yaml((path / "definition.yaml").read_text(), str(path / "definition.yaml"))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise KpipeError(f"{path}: damaged: {error}", "remove its copies by hand, then the folder") from error
        return cls(path, manifest, _restored(saved, home))

    @property
    def copy_prefix(self) -> str:
        """Beginning of the names of all copies."""
        return f"{PREFIX}{self.manifest.id}"

    def save(self) -> None:
        """Write the manifest durably.

        Raises:
            KpipeError: it cannot be written.
        """
        try:
            _write(self.path / "manifest.json", json.dumps(asdict(self.manifest), indent=1))
        except OSError as error:
            raise KpipeError(f"cannot write to {self.path}: {error.strerror}", "free space, then: kpipe chaos --clean") from error

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the folder while inside.

        Raises:
            KpipeError: another process uses it.
        """
        with (self.path / "lock").open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise KpipeError(f"{self.path}: kpipe chaos is running", "stop it first: Ctrl-C") from None
            yield

    def is_running(self) -> bool:
        """Return whether a process uses the folder."""
        return is_locked(self.path / "lock")

    def place(self, name: str) -> Place:
        """Return the place of a copy."""
        return place_of(self.pipeline, name, self.home)

    def create_copy(self, name: str) -> Place:
        """Create the place of a copy; note it first.

        Raises:
            KpipeError: it exists, or cannot be created.
        """
        place = self.place(name)
        self.manifest.copies[name] = "creating"
        self.save()
        place.create()
        self.manifest.copies[name] = "created"
        self.save()
        return place

    def drop_copy(self, name: str) -> None:
        """Remove a copy's place, with its tables and its ledger.

        Raises:
            KpipeError: it cannot be removed.
        """
        if self.manifest.copies.get(name, "dropped") != "dropped":
            self.place(name).drop()
            self.manifest.copies[name] = "dropped"
            self.save()

    def remove(self) -> None:
        """Remove the folder, before anything else was created."""
        shutil.rmtree(self.path, ignore_errors=True)

    def clean(self) -> list[str]:
        """End processes, and remove all copies and the copies' home; return what was removed. Safe to repeat.

        Raises:
            KpipeError: something cannot be removed; all else was.
        """
        kill_all(runs_of(self.copy_prefix))
        removed, failed = [], None
        for name, state in list(self.manifest.copies.items()):
            try:
                where = self.place(name).describe()
                self.drop_copy(name)
                if state != "dropped":
                    removed.append(where)
            except KpipeError as error:
                failed = failed or error
        if self.manifest.staging:
            remove_staging(self.manifest.staging)
        if failed is None:
            for folder in (self.home.path, self.work):
                shutil.rmtree(folder, ignore_errors=True)
            self.manifest.cleaned = not (self.home.path.exists() or self.work.exists())
        self.save()
        if failed is not None:
            raise failed
        return [*removed, str(self.home.path)]


def unfinished(home: Home, pipeline: str) -> list[Path]:
    """Return the folders of a pipeline whose copies were not removed, oldest first; also those that are in use or kept."""
    found = []
    for path in home.chaos.glob("*/manifest.json"):
        with suppress(OSError, ValueError, TypeError, KeyError):
            fields = json.loads(path.read_text())
            if fields["pipeline"] == pipeline and not fields["cleaned"]:
                found.append((path.stat().st_mtime, path.parent))
    return [path for _, path in sorted(found)]


def externalized(pipeline: Pipeline) -> tuple[Pipeline, dict[str, str]]:
    """Return the definition with references in place of literal credentials, and the values by the variables' names.

    Raises:
        InvalidPipeline, CredentialUnavailable: a credential with a literal part cannot be read.
    """
    variables: dict[str, str] = {}

    def changed(given: Mapping[str, str], *where: str) -> dict[str, str]:
        found = {}
        for key, text in given.items():
            path = (*where, "credentials", key)
            if problem(path, text) is not None:
                name = _VARIABLE + re.sub(r"[^A-Za-z0-9]", "_", "_".join(path)).upper()
                variables[name] = credential(f"{'.'.join(path[:-1])}: {key}", text)
                text = f"{{{{ env('{name}') }}}}"
            found[key] = text
        return found

    source = pipeline.source.model_copy(update={"credentials": changed(pipeline.source.credentials, "source")})
    into = pipeline.into.model_copy(update={"credentials": changed(pipeline.into.credentials, "into")})
    lookups = {
        name: lookup.model_copy(update={"credentials": changed(lookup.credentials, "lookups", name)})
        for name, lookup in pipeline.lookups.items()
    }
    return pipeline.model_copy(update={"source": source, "into": into, "lookups": lookups}), variables


def _restored(saved: Pipeline, home: Home) -> Pipeline:
    """Replace references to externalized credentials of `into` by the literals of the pipeline's current definition."""
    if not any(_VARIABLE in text for text in saved.into.credentials.values()):
        return saved
    current = home.pipeline(saved.name).into.credentials
    given = {key: current.get(key, text) if _VARIABLE in text else text for key, text in saved.into.credentials.items()}
    return saved.model_copy(update={"into": saved.into.model_copy(update={"credentials": given})})


def _write(file: Path, text: str) -> None:
    fresh = file.with_name(f".{file.name}.new")
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
    fresh.replace(file)
