"""The outbox: a folder beside the ledger that stores a batch before its first request, until it is committed.

    PIPELINE/lock            locked while a process sends; a dead process's lock is free
    PIPELINE/pending/        commit.json, the staged files, and `receipts`: one line for each request with a final response
    PIPELINE/given-up-ID/    the same for a batch that an operator gave up; not read again

`pending` is the durable mark that requests may have been sent: it is fsynced before the first one. A process that finds it must
assume that the receiver has accepted any part of the batch.

The folder is created by renaming a finished one, and the rename fails if `pending` exists. So at most one batch is pending, even
without the lock. Receipts are not fsynced: after a lost receipt, the request is sent again with the same key.
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
from resources.destinations.webhook.commit_codec import block_bytes, fixed, from_text, to_text
from resources.destinations.webhook.ordered_rows import BLOCK_BYTES
from resources.durable_files import make_folder, sync

__all__ = ["Outbox", "Pinned", "Receipt", "Receipts"]

_NAP_S = 0.02


@dataclass(frozen=True)
class Receipt:
    """The final response to a request.

    Attributes:
        status: of HTTP; 0 where the request was rejected before sending.
        micros: time in microseconds since 1970.
        reason: why it was rejected; empty where it was accepted.
    """

    status: int
    micros: int
    reason: str = ""


class Receipts:
    """Receipts of a batch, by request key. Thread-safe."""

    def __init__(self, path: Path) -> None:
        self._path, self._lock = path, threading.Lock()
        self._known: dict[str, Receipt] = {}
        whole = path.read_bytes().split(b"\n")[:-1] if path.exists() else []  # without an incomplete last line
        for line in whole:
            with suppress(ValueError, LookupError):  # a damaged line: the request is sent again
                key, status, micros, reason = json.loads(line)
                self._known[key] = Receipt(status, micros, reason)
        self._torn = path.exists() and not path.read_bytes().endswith(b"\n")

    def __len__(self) -> int:
        return len(self._known)

    def get(self, key: str) -> Receipt | None:
        """Return the receipt of a request; None: it has none."""
        return self._known.get(key)

    def add(self, key: str, receipt: Receipt) -> None:
        """Record a receipt immediately."""
        line = json.dumps([key, receipt.status, receipt.micros, receipt.reason]).encode() + b"\n"
        with self._lock, self._path.open("ab", buffering=0) as file:
            file.write(b"\n" + line if self._torn else line)
            self._torn = False
            self._known[key] = receipt


@dataclass(frozen=True)
class Pinned:
    """A batch with the fields that its requests are built from.

    Attributes:
        commit: the batch.
        into: the definition's fields; for a pending batch, those that decide keys and bodies are the stored ones.
        found: true if the batch was in the outbox, so that the receiver may have accepted any part of it.
        block_bytes: limit of bytes in a block of rows; None: no limit. It decides which rows share a request.
    """

    commit: Commit
    into: Into
    found: bool = False
    block_bytes: int | None = BLOCK_BYTES


class Outbox:
    """The outbox folder of one pipeline.

    Args:
        folder: created when needed.
        pipeline: name of the pipeline, for messages.
    """

    def __init__(self, folder: Path, pipeline: str) -> None:
        self.folder, self._pipeline, self._pending = folder, pipeline, folder / "pending"

    @contextmanager
    def held(self, timeout_s: float) -> Iterator[None]:
        """Lock the outbox, so that one process sends. Best effort: correctness depends on keys and the ledger alone.

        Raises:
            DestinationBusy: another process has the lock.
        """
        make_folder(self.folder, 0o700)
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
                            "wait until it ends, or stop it: the next run continues its batch",
                        ) from None
                    time.sleep(_NAP_S)
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
            yield

    def pending(self, into: Into) -> Pinned | None:
        """Return the pending batch, with the paths of its stored files.

        Args:
            into: the fields of the definition.

        Raises:
            DestinationError: the stored batch cannot be read.
            FormatTooNew: a newer kpipe wrote it.
        """
        try:
            text = (self._pending / "commit.json").read_text(encoding="utf-8")
            commit = self._kept(from_text(text, str(self._pending)))
            pinned = Pinned(commit, fixed(into, text), found=True, block_bytes=block_bytes(text))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise DestinationError(
                f"pipeline {self._pipeline}: {self._pending} cannot be read: {error}",
                "restore it from a backup; without it, rows of this batch may be sent again with other keys",
            ) from error
        return pinned

    def pin(self, commit: Commit, into: Into) -> Commit:
        """Store a batch durably before its first request; return it with the paths of the stored files.

        Raises:
            DestinationBusy: another batch is pending.
            DestinationError: the files cannot be written.
        """
        new = self.folder / f".{uuid.uuid4().hex}"
        try:
            make_folder(new, 0o700)
            for file in (*commit.only.files, *commit.dead_letters):
                _same(Path(file.path), new / Path(file.path).name)
            with (new / "commit.json").open("w", encoding="utf-8") as text:
                text.write(to_text(commit, into, BLOCK_BYTES))
                text.flush()
                os.fsync(text.fileno())
            sync(new)
            try:
                new.rename(self._pending)
            except OSError:
                if not self._pending.exists():
                    raise
                raise DestinationBusy(
                    f"pipeline {self._pipeline}: another batch is being sent", "run it again: the pending batch is finished first"
                ) from None
            sync(self.folder)
        except OSError as error:
            raise DestinationError(
                f"pipeline {self._pipeline}: batch {commit.id} cannot be stored in {self.folder}: {error}",
                "free disk space; run it again",
            ) from error
        finally:
            shutil.rmtree(new, ignore_errors=True)
        return self._kept(commit)

    def receipts(self) -> Receipts:
        """Open the receipts of the pending batch."""
        return Receipts(self._pending / "receipts")

    def clear(self, batch: str) -> None:
        """Delete the batch: it is committed, or the receiver has accepted nothing of it."""
        self._moved(batch, f".{uuid.uuid4().hex}")
        for left in self.folder.glob(".*"):
            shutil.rmtree(left, ignore_errors=True)

    def give_up(self, batch: str) -> None:
        """Keep the batch's files and receipts for the operator, and allow the next batch."""
        self._moved(batch, f"given-up-{batch}")

    def _moved(self, batch: str, name: str) -> None:
        with suppress(FileNotFoundError):
            if json.loads((self._pending / "commit.json").read_text(encoding="utf-8"))["id"] == batch:
                self._pending.rename(self.folder / name)
                sync(self.folder)

    def _kept(self, commit: Commit) -> Commit:
        def moved(files: tuple[StagedFile, ...]) -> tuple[StagedFile, ...]:
            return tuple(replace(file, path=str(self._pending / Path(file.path).name)) for file in files)

        return replace(commit.writing(files=moved(commit.only.files)), dead_letters=moved(commit.dead_letters))


def _same(file: Path, to: Path) -> None:
    """Link or copy a finished file to another name; finished files never change, so a link is enough."""
    try:
        os.link(file, to)
    except OSError:  # another file system: no hard link
        shutil.copyfile(file, to)
        sync(to)
