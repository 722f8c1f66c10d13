"""The command line as a person uses it, on a home of its own."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import psutil
import pytest

from kpipe_assets.cli import main
from tests.patience import looks


@dataclass(frozen=True)
class Done:
    """What a command left behind."""

    returncode: int
    stdout: str
    stderr: str

    def held_to(self, status: int | None) -> Done:
        """Itself, if the exit status is that one."""
        assert status is None or self.returncode == status, f"exit {self.returncode}\n{self.stdout}\n{self.stderr}"
        return self


@dataclass
class Kpipe:
    """The command line on one home.

    Attributes:
        home: KPIPE_HOME.
        brokers: `host:port` of the tests' Kafka.
        begun: processes that `start` has started.
    """

    home: Path
    brokers: str
    begun: list[subprocess.Popen[str]] = field(default_factory=list, repr=False, compare=False)

    def environment(self, **more: str) -> dict[str, str]:
        """Of a child process: this home, nothing of the person's own."""
        keep = {name: os.environ[name] for name in ("PATH", "HOME", "JAVA_HOME", "LANG", "TMPDIR") if name in os.environ}
        return {**keep, "KPIPE_HOME": str(self.home), **more}

    def start(self, *arguments: str, **more: str) -> subprocess.Popen[str]:
        """Begin a command in a session of its own."""
        process = subprocess.Popen(
            [sys.executable, "-m", "kpipe_assets.cli", *arguments],
            env=self.environment(**more),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.begun.append(process)
        return process

    def outside(self, *arguments: str, status: int | None = 0, **more: str) -> Done:
        """Run a command to its end in a process of its own, with its own Spark, and hold it to an exit status."""
        process = self.start(*arguments, **more)
        out, err = process.communicate(timeout=600)
        return Done(process.returncode, out, err).held_to(status)

    def __call__(self, *arguments: str, status: int | None = 0, **more: str) -> Done:
        """The same in this process: the session's Spark is used again, which saves seconds each time."""
        out, err = io.StringIO(), io.StringIO()
        code: int | str | None = 0
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
            for name, value in {"KPIPE_HOME": str(self.home), **more}.items():
                patch.setenv(name, value)
            try:
                main(list(arguments))
            except SystemExit as end:
                code = end.code
        return Done(int(code or 0), out.getvalue(), err.getvalue()).held_to(status)

    def json(self, *arguments: str, status: int | None = 0, **more: str) -> list[dict[str, Any]]:
        """The JSON lines that a command prints."""
        return [json.loads(line) for line in self(*arguments, "--json", status=status, **more).stdout.splitlines()]

    def define(self, name: str, topic: str, **fields: Any) -> str:
        """Write NAME.yaml into a table of the same name; JSON is YAML."""
        folder = self.home / "pipelines"
        folder.mkdir(parents=True, exist_ok=True)
        source = {"brokers": self.brokers, "topic": topic, **fields.pop("source", {})}
        attributes = {"name": name, "source": source, "into": {"table": name}, **fields}
        (folder / f"{name}.yaml").write_text(json.dumps({"type": "kpipe_assets.KafkaPipeline", "attributes": attributes}))
        return name

    def sql(self, query: str) -> list[tuple[Any, ...]]:
        """Ask the default database, as any client would."""
        with duckdb.connect(str(self.home / "data" / "kpipe.duckdb"), read_only=True) as connection:
            return connection.execute(query).fetchall()

    def kill(self) -> None:
        """Kill every process that belongs to this home, but this one. None of those begun here outlives a test that failed."""
        for process in psutil.process_iter(["environ"]):
            if process.pid != os.getpid() and str(self.home) in str(process.info["environ"]):
                with suppress(psutil.NoSuchProcess):  # it ended, perhaps with one that was killed before
                    process.kill()
        for begun in self.begun:
            begun.kill()
            begun.wait()
            for stream in (begun.stdout, begun.stderr):
                if stream is not None:
                    stream.close()
        self.begun.clear()

    def processes(self) -> list[str]:
        """Command lines of processes that belong to this home."""
        found = []
        for process in psutil.process_iter(["cmdline", "environ"]):
            words = " ".join(process.info["cmdline"] or ())
            if process.pid != os.getpid() and (str(self.home) in words or str(self.home) in str(process.info["environ"])):
                found.append(words)
        return found

    def left_behind(self, seconds: float = 300) -> list[str]:
        """Such processes that do not end by themselves: the JVM ends a moment after the run that started it."""
        left: list[str] = []
        for _ in looks(seconds, 0.1):
            if not (left := self.processes()):
                break
        return left


def contents(folder: Path) -> Iterator[tuple[Path, bytes]]:
    """All files below a folder, as far as they stay there: programs at work there remove theirs when they like."""
    for parent, _, names in os.walk(folder):
        for name in names:
            path = Path(parent, name)
            with suppress(FileNotFoundError):
                if path.is_file():
                    yield path, path.read_bytes()
