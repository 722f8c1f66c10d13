"""KPIPE_HOME: the folder of all files that kpipe writes. Removing it removes every trace of kpipe."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from kpipe.definition.pipeline import Pipeline
from kpipe.definition.secret_values import shown
from kpipe.definition.target import NAME
from kpipe.definition.yaml_codec import from_yaml, line_of, to_yaml
from kpipe.errors import InvalidPipeline, KpipeError
from kpipe.ledger import format_version
from kpipe.run_events import Seen
from resources.durable_files import make_folder, replace_text, sync
from resources.object_store.uri import FORMS, expected_form, is_remote
from resources.permissions import Trust, check, close

__all__ = ["STEPS", "Home"]

_MOST_NAMES = 10  # names listed in a message
_PARTS = (
    "pipelines", "data", "staging", "state", "logs", "programs", "broker", "environment", "dagster", "spark", "cache",
    "sql_history", "audits", "chaos",
)  # fmt: skip
_READ = ("pipelines", "state", "data", "environment", "dagster")  # folders whose files kpipe trusts

#: By the format that each upgrades from. The number is written last, so a step must be repeatable.
STEPS: dict[int, Callable[[Path], None]] = {0: format_version.unchanged, 1: format_version.unchanged}


@dataclass(frozen=True)
class Home:
    """The folder and its parts (design.md 4.1).

    Attributes:
        path: the folder, absolute.
    """

    path: Path

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> Home:
        """Return the home in the folder that KPIPE_HOME names, else in `.kpipe/` of the current folder."""
        values = os.environ if environ is None else environ
        return cls.at(values.get("KPIPE_HOME") or ".kpipe")

    @classmethod
    def at(cls, path: str | Path) -> Home:
        """Return the home in a folder."""
        return cls(Path(path).expanduser().absolute())

    @property
    def pipelines(self) -> Path:
        """Definitions, one NAME.yaml each."""
        return self.path / "pipelines"

    @property
    def data(self) -> Path:
        """The default destination."""
        return self.path / "data"

    @property
    def cache(self) -> Path:
        """Files that may be removed at any time."""
        return self.path / "cache"

    @property
    def staging(self) -> Path:
        """Staged files, which no table references yet."""
        return self.path / "staging"

    @property
    def stage(self) -> str:
        """Location of staged files: KPIPE_STAGING, a folder shared with every worker or an object store; else `staging`.

        Raises:
            InvalidPipeline: KPIPE_STAGING is neither.
        """
        location = os.environ.get("KPIPE_STAGING", "").rstrip("/")
        if location and not (Path(location).is_absolute() or (is_remote(location) and expected_form(location) is None)):
            found = shown(("into", "database"), location)
            raise InvalidPipeline(f"KPIPE_STAGING is {found!r}", f"name a folder by its absolute path, or {FORMS}")
        return location or str(self.staging)

    @property
    def roots(self) -> tuple[str, ...]:
        """All locations that may contain staged files."""
        return tuple(dict.fromkeys((str(self.staging), self.stage)))

    @property
    def state(self) -> Path:
        """Last seen position of each pipeline's ledger."""
        return self.path / "state"

    @property
    def broker(self) -> Path:
        """The local Kafka."""
        return self.path / "broker"

    @property
    def dagster(self) -> Path:
        """DAGSTER_HOME by default."""
        return self.path / "dagster"

    @property
    def logs(self) -> Path:
        """Logs of Spark."""
        return self.path / "logs"

    @property
    def chaos(self) -> Path:
        """Copies and reports of `kpipe chaos`."""
        return self.path / "chaos"

    def check(self) -> Home:
        """Reject a home that other users may write to (resources/permissions.py).

        Raises:
            KpipeError: the message contains the path, its owner, its mode and the command that fixes it.
            FormatTooNew: a newer kpipe wrote it.
        """
        self._check(*(entry for name in _READ for entry in self._entries(name)))
        return self

    def _check(self, *files: Path) -> None:
        check(self.path, (*(self.path / name for name in _PARTS), *files), Trust.from_env(), self.pipelines)
        format_version.check(self._format(), f"home {self.path}")

    def _format(self) -> int:
        """Return the format that the home records."""
        file = self.state / "format_version"
        try:
            return int(file.read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            return format_version.UNVERSIONED
        except (OSError, ValueError) as error:
            raise KpipeError(f"{file} is damaged: {error}", "restore it: it contains the number of the home's format") from error

    def _upgrade(self) -> None:
        found = self._format()
        if found < format_version.FORMAT_VERSION:
            for step in format_version.pending(found, STEPS):
                step(self.path)
            replace_text(self.state / "format_version", f"{format_version.FORMAT_VERSION}\n")

    def _entries(self, name: str) -> Iterable[Path]:
        """List the files of one of the home's folders."""
        folder = self.path / name
        try:
            return list(folder.iterdir())
        except OSError:  # missing or not a folder: reported when it is opened
            return ()

    def make(self) -> Home:
        """Create the folder and its parts where missing, for its owner only; restrict an older folder.

        Raises:
            KpipeError: it cannot be written, or other users may write to it.
        """
        self.check()
        try:
            for folder in (self.path, self.pipelines, self.data, self.staging, self.state, self.logs):
                make_folder(folder, 0o700)
            self._close()
            with tempfile.TemporaryFile(dir=self.path):
                pass
            self._upgrade()
        except OSError as error:
            raise KpipeError(
                f"cannot write to {self.path}: {error.strerror}", "set KPIPE_HOME to a folder that you may write to"
            ) from error
        return self

    def _close(self) -> None:
        trust = Trust.from_env()
        # A folder with other files, such as a project's, is closed only by its owner.
        own = {*_PARTS, ".DS_Store", "lost+found"}
        if all(entry.name in own for entry in self.path.iterdir()):
            close(self.path, trust)
        for name in _PARTS:
            close(self.path / name, trust)

    @contextmanager
    def placing(self, pipeline: Pipeline) -> Iterator[None]:
        """Replace the pipeline's name by file and line in errors about a field of a definition in this home."""
        try:
            yield
        except KpipeError as error:
            file = self.pipelines / f"{pipeline.name}.yaml"
            with suppress(OSError, ValueError, InvalidPipeline):  # unreadable, or changed since
                text = file.read_text(encoding="utf-8")
                if error.field and from_yaml(text, str(file)).to_dict() == pipeline.to_dict():
                    what = error.what.removeprefix(f"pipeline {pipeline.name}: ")
                    error.what = f"{file}:{line_of(text, error.field)}: {what}"
            raise

    def names(self) -> tuple[str, ...]:
        """Names of the pipelines that are defined here, sorted.

        Raises:
            KpipeError: other users may write to the home.
        """
        self._check(*self._entries("pipelines"))
        return tuple(sorted(file.stem for file in self.pipelines.glob("*.yaml")))

    def pipeline(self, name: str) -> Pipeline:
        """Read the definition of a pipeline.

        Raises:
            InvalidPipeline: it is missing, unreadable or invalid; the message contains file, line and field.
            KpipeError: other users may write to the home.
        """
        file = self.pipelines / f"{name}.yaml"
        if not NAME.fullmatch(name) and name in self.names():
            raise InvalidPipeline(
                f"{file}: invalid pipeline name {name!r}",
                "rename it: expected a letter or _, then letters, digits, _; 63 at most",
            )
        if not NAME.fullmatch(name) or not file.is_file():
            raise self._unknown(name)
        self._check(file)
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidPipeline(f"{file}: cannot be read: {error}") from error
        pipeline = from_yaml(text, str(file))
        if pipeline.name != name:
            raise InvalidPipeline(
                f"{file}: name is {pipeline.name!r}", f"call the file {pipeline.name}.yaml, or the pipeline {name}"
            )
        return pipeline

    def _unknown(self, name: str) -> InvalidPipeline:
        """Return the error for a pipeline that does not exist, with the names of those that do."""
        names = self.names()
        rest = f" and {len(names) - _MOST_NAMES:,} more" if len(names) > _MOST_NAMES else ""
        existing = (", ".join(names[:_MOST_NAMES]) + rest) or "none yet"
        near = get_close_matches(name.lower(), [item.lower() for item in names], n=1, cutoff=0.6)
        hint = next((f"did you mean {item}?" for item in names if near and item.lower() == near[0]), "")
        shown = name if NAME.fullmatch(name) else "NAME"
        return InvalidPipeline(
            f"no pipeline {name!r} in {self.pipelines} (there are: {existing})",
            hint or f"create it: CREATE PIPELINE {shown} AS LOAD DATA ... in kpipe sql, or write {self.pipelines}/{shown}.yaml",
        ).about("pipeline", word=name)

    def document(self, name: str) -> str:
        """Return the document of a pipeline's definition, with its templates; empty: it is missing or cannot be read."""
        file = self.pipelines / f"{name}.yaml"
        return file.read_text(encoding="utf-8", errors="replace") if os.access(file, os.R_OK) else ""

    def save(self, pipeline: Pipeline, former: str | None = None) -> Path:
        """Write the definition atomically and durably, replacing one of the same name.

        Args:
            pipeline: the definition.
            former: the document that it was made from, whose templates unchanged fields keep; None: that of the same name.
        """
        file = self.make().pipelines / f"{pipeline.name}.yaml"
        replace_text(file, to_yaml(pipeline, self.document(pipeline.name) if former is None else former))
        sync(file.parent)
        return file

    def remove(self, name: str) -> None:
        """Delete the definition, its last run's result and what a client of REST has set.

        The seen ledger position is kept, as the ledger is.
        """
        (self.pipelines / f"{name}.yaml").unlink(missing_ok=True)
        for part in ("ended", "connector", "dead_letter_topic", "exchanged", "unloaded"):
            (self.state / f"{name}.{part}.json").unlink(missing_ok=True)

    def seen(self, name: str) -> Seen:
        """Return the pipeline's last seen ledger position; the object saves its changes.

        Raises:
            KpipeError: the file is damaged, or other users may write to the home.
        """
        file = self.state / f"{name}.json"
        self._check(file)

        def save(seen: Seen) -> None:
            replace_text(file, json.dumps({"uid": seen.uid, "seq": seen.seq}))

        def forget() -> None:
            self.keep(name, "replaced", None)

        if not file.exists():
            return Seen(save=save, forget=forget)
        try:
            fields = json.loads(file.read_text())
            # A run that began before the exchange of a rebuilt table may have written after it.
            new = self.kept(name, "replaced") or {}
            found = new if new.get("old") == fields["uid"] else fields
            return Seen(str(found["uid"]), int(found["seq"]), save, forget)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise KpipeError(f"{file} is damaged: {error}", f"remove it if the destination of {name} is correct") from error

    def has_run(self, name: str) -> bool:
        """Return whether a run of this home has seen a ledger of the pipeline."""
        return (self.state / f"{name}.json").exists()

    def note(self, name: str, state: str, error: str = "") -> None:
        """Record how the pipeline's last run ended, for display: a destination stores it only after its first commit."""
        self.keep(name, "ended", {"state": state, "error": error})

    def noted(self, name: str) -> dict[str, str]:
        """Return `state` and `error` that `note` recorded; empty if nothing was recorded or it cannot be read."""
        try:
            fields = json.loads((self.state / f"{name}.ended.json").read_text())
            return {"state": str(fields["state"]), "error": str(fields["error"])}
        except (OSError, ValueError, KeyError, TypeError):
            return {}

    def keep(self, name: str, part: str, fields: Mapping[str, Any] | None) -> None:
        """Store fields about a pipeline under the name of a part; None: delete them."""
        file = self.state / f"{name}.{part}.json"
        replace_text(file, json.dumps(fields)) if fields is not None else file.unlink(missing_ok=True)

    def kept(self, name: str, part: str) -> dict[str, Any] | None:
        """Return the fields that `keep` stored; None: there are none.

        Raises:
            OSError, ValueError: they cannot be read.
        """
        file = self.state / f"{name}.{part}.json"
        return dict(json.loads(file.read_text(encoding="utf-8"))) if file.exists() else None

    def found(self, name: str) -> tuple[str, ...]:
        """Return topics that the pipeline's pattern has matched, in order; used only to build Dagster's definitions."""
        try:
            return tuple((self.state / f"{name}.topics").read_text(encoding="utf-8").split())
        except (OSError, UnicodeDecodeError):
            return ()

    def find(self, name: str, topics: Iterable[str]) -> None:
        """Add topics to those that the pattern has matched; deleted topics stay in the list."""
        earlier = self.found(name)
        names = tuple(sorted({*earlier, *topics}))
        if names != earlier:
            replace_text(self.state / f"{name}.topics", "".join(f"{topic}\n" for topic in names))
