"""The batch that is on its way: fixed in a folder beside the ledger before its first request, gone when it has landed.

    PIPELINE/lock            locked while a process sends; the lock of a dead process is free
    PIPELINE/pending/        commit.json, the staged files, and `receipts`, a line for each request with a final answer
    PIPELINE/given-up-ID/    the same of a batch that an operator gave up; nothing reads it

`pending` is the durable mark that requests may have left: it is fsynced before the first one. So a process that finds it must
assume that the receiver has taken any part of the batch.

The folder appears by one rename of a finished one, which fails where there is one: so there is never more than one batch on its
way, with or without the lock. A receipt that is lost (they are not synced) means that the request is sent again, with its key.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from kpipe.batch.batch import Commit, StagedFile
from kpipe.definition.pipeline import Into
from kpipe.errors import DestinationBusy, DestinationError
from resources.destinations.webhook.commit_codec import fixed, from_text, to_text

__all__ = ["Outbox", "Pinned", "Receipt", "Receipts"]

_NAP_S = 0.02


@dataclass(frozen=True)
class Receipt:
    """What a receiver has said of a request for good.

    Attributes:
        status: of HTTP; 0 where it was refused unsent.
        micros: when, in microseconds since 1970.
        reason: why it was refused; empty where it was taken.
    """

    status: int
    micros: int
    reason: str = ""


class Receipts:
    """Receipts of a batch, by the keys of requests; several threads may add."""

    def __init__(self, path: Path) -> None:
        self._path, self._lock = path, threading.Lock()
        self._known: dict[str, Receipt] = {}
        whole = path.read_bytes().split(b"\n")[:-1] if path.exists() else []  # what was cut off is no line
        for line in whole:
            with suppress(ValueError, LookupError):  # damaged: sent again
                key, status, micros, reason = json.loads(line)
                self._known[key] = Receipt(status, micros, reason)
        self._torn = path.exists() and not path.read_bytes().endswith(b"\n")

    def __len__(self) -> int:
        return len(self._known)

    def get(self, key: str) -> Receipt | None:
        """What is known of a request."""
        return self._known.get(key)

    def add(self, key: str, receipt: Receipt) -> None:
        """Note it, at once."""
        line = json.dumps([key, receipt.status, receipt.micros, receipt.reason]).encode() + b"\n"
        with self._lock, self._path.open("ab", buffering=0) as file:
            file.write(b"\n" + line if self._torn else line)
            self._torn = False
            self._known[key] = receipt


@dataclass(frozen=True)
class Pinned:
    """A batch as its requests are made from it.

    Attributes:
        commit: the batch.
        into: the definition's fields; of a batch that is on its way, those that decide keys and bodies are the stored ones.
        found: whether it was in the outbox, so that the receiver may have taken any part of it.
    """

    commit: Commit
    into: Into
    found: bool = False


class Outbox:
    """The folder of one pipeline.

    Args:
        folder: made when it is needed.
        pipeline: its name, for messages.
    """

    def __init__(self, folder: Path, pipeline: str) -> None:
        self.folder, self._pipeline, self._pending = folder, pipeline, folder / "pending"

    @contextmanager
    def held(self, timeout_s: float) -> Iterator[None]:
        """While inside, no other process sends. It only saves work: keys and the ledger are what is relied on.

        Raises:
            DestinationBusy: another one does.
        """
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        until = time.monotonic() + timeout_s
        with (self.folder / "lock").open("a+") as file:
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > until:
                        file.seek(0)
                        raise DestinationBusy(
                            f"pipeline {self._pipeline}: process {file.read().strip() or '?'} is sending a batch;"
                            f" waited {timeout_s:g} s",
                            "let it finish, or end it: the next run goes on where it stops",
                        ) from None
                    time.sleep(_NAP_S)
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
            yield

    def pending(self, into: Into) -> Pinned | None:
        """Return the batch that is on its way, with its files where they are kept.

        Args:
            into: the fields of the definition.

        Raises:
            DestinationError: it cannot be read.
        """
        try:
            text = (self._pending / "commit.json").read_text(encoding="utf-8")
            pinned = Pinned(self._kept(from_text(text)), fixed(into, text), found=True)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise DestinationError(
                f"pipeline {self._pipeline}: {self._pending} cannot be read: {error}",
                "restore it; without it, what was sent of this batch may be sent again with other keys",
            ) from error
        return pinned

    def pin(self, commit: Commit, into: Into) -> Commit:
        """Store a batch durably, before its first request; return it with its files where they are kept.

        Raises:
            DestinationBusy: another one is on its way.
            DestinationError: the disk refuses.
        """
        new = self.folder / f".{uuid.uuid4().hex}"
        try:
            new.mkdir(mode=0o700, parents=True)
            for file in (*commit.files, *commit.dead_letters):
                _same(Path(file.path), new / Path(file.path).name)
            with (new / "commit.json").open("w", encoding="utf-8") as text:
                text.write(to_text(commit, into))
                text.flush()
                os.fsync(text.fileno())
            _synced(new)
            try:
                new.rename(self._pending)
            except OSError:
                if not self._pending.exists():
                    raise
                raise DestinationBusy(
                    f"pipeline {self._pipeline}: another batch is being sent", "run it again: that one is finished first"
                ) from None
            for folder in (self.folder, self.folder.parent, self.folder.parent.parent):  # it may be the first batch ever
                _synced(folder)
        except OSError as error:
            raise DestinationError(
                f"pipeline {self._pipeline}: batch {commit.id} cannot be kept in {self.folder}: {error}",
                "free space; run it again",
            ) from error
        finally:
            shutil.rmtree(new, ignore_errors=True)
        return self._kept(commit)

    def receipts(self) -> Receipts:
        """Of the batch that is on its way."""
        return Receipts(self._pending / "receipts")

    def clear(self, batch: str) -> None:
        """Remove that batch: it has landed, or the receiver has taken nothing of it."""
        self._moved(batch, f".{uuid.uuid4().hex}")
        for left in self.folder.glob(".*"):
            shutil.rmtree(left, ignore_errors=True)

    def give_up(self, batch: str) -> None:
        """Keep the batch's files and receipts for the operator, and free the place of the next one."""
        self._moved(batch, f"given-up-{batch}")

    def _moved(self, batch: str, name: str) -> None:
        with suppress(FileNotFoundError):
            if json.loads((self._pending / "commit.json").read_text(encoding="utf-8"))["id"] == batch:
                self._pending.rename(self.folder / name)
                _synced(self.folder)

    def _kept(self, commit: Commit) -> Commit:
        def moved(files: tuple[StagedFile, ...]) -> tuple[StagedFile, ...]:
            return tuple(replace(file, path=str(self._pending / Path(file.path).name)) for file in files)

        return replace(commit, files=moved(commit.files), dead_letters=moved(commit.dead_letters))


def _same(file: Path, to: Path) -> None:
    """A finished file under another name; it is never changed, so it may be the same one."""
    try:
        os.link(file, to)
    except OSError:  # on another disk
        shutil.copyfile(file, to)
        _synced(to)


def _synced(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
