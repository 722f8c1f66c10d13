"""KPIPE_HOME: the one folder that holds everything kpipe writes. Removing it removes every trace."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from kpipe.definition.pipeline import Pipeline
from kpipe.definition.target import NAME
from kpipe.definition.yaml_codec import from_yaml, line_of, to_yaml
from kpipe.errors import InvalidPipeline, KpipeError
from kpipe.ingest.loop import Seen
from resources.permissions import Trust, check, close

__all__ = ["Home"]

_MOST_NAMES = 10  # that a message lists
_PARTS = ("pipelines", "data", "staging", "state", "logs", "programs", "broker", "environment", "dagster", "spark", "sql_history")
_READ = ("pipelines", "state", "data", "environment", "dagster")  # files in them are trusted when they are read


@dataclass(frozen=True)
class Home:
    """The folder and what lies in it (design.md 4.1).

    Attributes:
        path: the folder, absolute.
    """

    path: Path

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> Home:
        """The folder that KPIPE_HOME names, else `.kpipe/` under the current one."""
        values = os.environ if environ is None else environ
        return cls.at(values.get("KPIPE_HOME") or ".kpipe")

    @classmethod
    def at(cls, path: str | Path) -> Home:
        """The home in that folder."""
        return cls(Path(path).expanduser().absolute())

    @property
    def pipelines(self) -> Path:
        """Definitions, NAME.yaml."""
        return self.path / "pipelines"

    @property
    def data(self) -> Path:
        """The default destination."""
        return self.path / "data"

    @property
    def staging(self) -> Path:
        """Finished files that no table refers to yet."""
        return self.path / "staging"

    @property
    def stage(self) -> str:
        """Where Spark's tasks leave them: KPIPE_STAGING, a folder that every worker sees or `s3://bucket/key`; else the above.

        Raises:
            InvalidPipeline: it is neither.
        """
        given = os.environ.get("KPIPE_STAGING", "").rstrip("/")
        if given and not (Path(given).is_absolute() or re.fullmatch(r"s3://[a-z0-9][a-z0-9.-]+(/[A-Za-z0-9_.=-]+)*", given)):
            raise InvalidPipeline(f"KPIPE_STAGING is {given!r}", "name a folder by its absolute path, or s3://bucket/key")
        return given or str(self.staging)

    @property
    def roots(self) -> tuple[str, ...]:
        """All places that staged files may lie in."""
        return tuple(dict.fromkeys((str(self.staging), self.stage)))

    @property
    def state(self) -> Path:
        """What this home has seen committed, by pipeline."""
        return self.path / "state"

    @property
    def broker(self) -> Path:
        """The local Kafka."""
        return self.path / "broker"

    @property
    def dagster(self) -> Path:
        """DAGSTER_HOME, where that is not set."""
        return self.path / "dagster"

    @property
    def logs(self) -> Path:
        """Logs of Spark."""
        return self.path / "logs"

    def check(self) -> Home:
        """Refuse a home that other users may write to (resources/permissions.py).

        Raises:
            KpipeError: names the path, its owner, its mode and the command that fixes it.
        """
        self._check(*(entry for name in _READ for entry in self._entries(name)))
        return self

    def _check(self, *files: Path) -> None:
        check(self.path, (*(self.path / name for name in _PARTS), *files), Trust.from_env(), self.pipelines)

    def _entries(self, name: str) -> Iterable[Path]:
        """What a part of the home holds."""
        folder = self.path / name
        try:
            return list(folder.iterdir())
        except OSError:  # missing, or no folder: whoever needs it finds out
            return ()

    def make(self) -> Home:
        """The folder with its parts, made when missing, for its owner only. An older one that others may read is closed.

        Raises:
            KpipeError: it cannot be written, or other users may write to it.
        """
        self.check()
        try:
            for folder in (self.path, self.pipelines, self.data, self.staging, self.state, self.logs):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._close()
            with tempfile.TemporaryFile(dir=self.path):
                pass
        except OSError as error:
            raise KpipeError(
                f"cannot write to {self.path}: {error.strerror}", "set KPIPE_HOME to a folder that you may write to"
            ) from error
        return self

    def _close(self) -> None:
        trust = Trust.from_env()
        # A folder that holds other things, such as a project's, is closed by its owner only.
        own = {*_PARTS, ".DS_Store", "lost+found"}
        if all(entry.name in own for entry in self.path.iterdir()):
            close(self.path, trust)
        for name in _PARTS:
            close(self.path / name, trust)

    @contextmanager
    def placing(self, pipeline: Pipeline) -> Iterator[None]:
        """Name file and line in errors that are about a field of a definition of this home, in place of the pipeline's name."""
        try:
            yield
        except KpipeError as error:
            file = self.pipelines / f"{pipeline.name}.yaml"
            with suppress(OSError, ValueError, InvalidPipeline):  # what cannot be read, or is another definition by now
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
        """The definition of that name.

        Raises:
            InvalidPipeline: there is none, it cannot be read, or it is wrong; with file, line and field.
            KpipeError: other users may write to the home.
        """
        file = self.pipelines / f"{name}.yaml"
        if not NAME.fullmatch(name) and name in self.names():
            raise InvalidPipeline(
                f"{file}: {name!r} is no name of a pipeline",
                "name it as a letter or _, then letters, digits, _; 63 at most",
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
        """That there is no such pipeline: which there are, and what to do."""
        names = self.names()
        rest = f" and {len(names) - _MOST_NAMES:,} more" if len(names) > _MOST_NAMES else ""
        known = (", ".join(names[:_MOST_NAMES]) + rest) or "none yet"
        near = get_close_matches(name.lower(), [item.lower() for item in names], n=1, cutoff=0.6)
        hint = next((f"did you mean {item}?" for item in names if near and item.lower() == near[0]), "")
        shown = name if NAME.fullmatch(name) else "NAME"
        return InvalidPipeline(
            f"no pipeline {name!r} in {self.pipelines} (there are: {known})",
            hint or f"make it: CREATE PIPELINE {shown} AS LOAD DATA ... in kpipe sql, or write {self.pipelines}/{shown}.yaml",
        ).about("pipeline", word=name)

    def save(self, pipeline: Pipeline) -> Path:
        """Write the definition, replacing one of the same name in one step."""
        file = self.make().pipelines / f"{pipeline.name}.yaml"
        _replace(file, to_yaml(pipeline))
        return file

    def remove(self, name: str) -> None:
        """Forget the definition, and how its last run ended. What was seen committed is kept: the ledger is kept, too."""
        for file in (self.pipelines / f"{name}.yaml", self.state / f"{name}.ended.json"):
            file.unlink(missing_ok=True)

    def seen(self, name: str) -> Seen:
        """What this home has seen committed by that pipeline; saves itself.

        Raises:
            KpipeError: the file is damaged, or other users may write to the home.
        """
        file = self.state / f"{name}.json"
        self._check(file)

        def save(seen: Seen) -> None:
            _replace(file, json.dumps({"uid": seen.uid, "seq": seen.seq}))

        if not file.exists():
            return Seen(save=save)
        try:
            known = json.loads(file.read_text())
            return Seen(str(known["uid"]), int(known["seq"]), save)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise KpipeError(
                f"{file} is damaged: {error}", f"remove it if the destination of {name} is known to be right"
            ) from error

    def note(self, name: str, state: str, error: str = "") -> None:
        """Remember how the pipeline's last run ended, for people: a destination keeps it only from its first commit on."""
        _replace(self.state / f"{name}.ended.json", json.dumps({"state": state, "error": error}))

    def noted(self, name: str) -> dict[str, str]:
        """What `note` remembered: `state` and `error`; empty when there is nothing, or nothing that can be read."""
        try:
            known = json.loads((self.state / f"{name}.ended.json").read_text())
            return {"state": str(known["state"]), "error": str(known["error"])}
        except (OSError, ValueError, KeyError, TypeError):
            return {}

    def found(self, name: str) -> tuple[str, ...]:
        """Topics that the pipeline's pattern was seen to find, in order; what Dagster's definitions are made of, and no more."""
        try:
            return tuple((self.state / f"{name}.topics").read_text(encoding="utf-8").split())
        except (OSError, UnicodeDecodeError):
            return ()

    def find(self, name: str, topics: Iterable[str]) -> None:
        """Remember them beside those that were seen before; one that is gone stays."""
        known = self.found(name)
        names = tuple(sorted({*known, *topics}))
        if names != known:
            _replace(self.state / f"{name}.topics", "".join(f"{topic}\n" for topic in names))


def _replace(file: Path, text: str) -> None:
    """Write the file whole, or leave it as it was.

    Raises:
        KpipeError: the disk is full, or refuses.
    """
    temporary: str | None = None
    try:
        handle, temporary = tempfile.mkstemp(dir=file.parent, prefix=".new-")
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            out.write(text)
            out.flush()
            os.fsync(out.fileno())
        Path(temporary).replace(file)
    except OSError as error:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
        raise KpipeError(
            f"cannot write {file}: {error.strerror or error}", "free space or set KPIPE_HOME to a larger disk, then run it again"
        ) from error
