"""Webhook destination: rows are POSTed, then the ledger records that they were accepted (docs/adr/0023-webhook.md).

No transaction spans both, so a batch is stored in a folder, the outbox, before its first request. A later run that finds the
batch finishes it: same requests, same keys. Delivery is exactly once if the receiver drops repeated keys; else at least once.
The receiver may have accepted any part of a stored batch. The batch leaves the outbox when it is committed, or when an operator
gives it up. The process that stored it also removes it if the receiver rejected every request.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kpipe.batch.batch import Batch, Commit, Committed
from kpipe.batch.dead_letter_page import LetterMark, StoredLetter
from kpipe.definition.pipeline import Into, Policy
from kpipe.errors import DeadLettersExceeded, DestinationError, KpipeError, LedgerMismatch
from kpipe.interfaces import Publication
from kpipe.ledger.ledger import Ledger
from kpipe.provenance.facts import Facts, Found
from kpipe.schema.columns import Columns
from kpipe.verification.verify import Entry, Recount
from resources.destinations.sql.ledger.history_tables import check_letters
from resources.destinations.staged_file_check import Proven, check_totals, verify
from resources.destinations.webhook.dispatcher import RECEIPTS, Delivery
from resources.destinations.webhook.ordered_rows import check
from resources.destinations.webhook.outbox import Outbox, Pinned
from resources.destinations.webhook.receipts import ReceiptsDestination
from resources.destinations.webhook.requests import Shaper
from resources.destinations.webhook.sender import Endpoint, Sender

__all__ = ["Rules", "WebhookDestination"]


@dataclass(frozen=True)
class Rules:
    """The policy for records that the receiver rejects.

    Attributes:
        refused: the policy.
        most: limit on the pipeline's dead letters; None: no limit.
    """

    refused: Policy = "fail"
    most: int | None = None


class WebhookDestination:
    """One pipeline's URL, and its ledger in a DuckDB file.

    Args:
        into: the fields of the definition.
        endpoint: URL and settings of requests.
        path: the ledger's file; the outbox is a folder beside it.
        pipeline: name of the pipeline.
        config_json: the pipeline's definition for display, without secrets.
        staging: folders of staged files.
        rules: the policy for rejected records.
        lock_timeout_s: longest wait for another process.
    """

    def __init__(
        self,
        into: Into,
        endpoint: Endpoint,
        path: Path,
        pipeline: str,
        config_json: Mapping[str, Any] | None = None,
        staging: Sequence[Path] = (),
        rules: Rules | None = None,
        lock_timeout_s: float = 30,
    ) -> None:
        folder = path.with_name(f"{path.name}.outbox") / pipeline
        self._into, self._endpoint, self._rules = into, endpoint, rules or Rules()
        self._roots, self._outbox = (*staging, folder), Outbox(folder, pipeline)
        self._of_table = lambda table: ReceiptsDestination(path, table, pipeline, config_json, self._roots, lock_timeout_s)
        self._book = self._of_table(into.table)
        self.pipeline, self.database = pipeline, self._book.engine.database

    def describe(self) -> str:
        """Describe type and host, and the location of the receipts."""
        return f"webhook {self._endpoint.url}, receipts in {self._book.describe()}"

    def columns(self) -> Columns | None:
        """Return the payload columns of all rows so far; None before the first commit."""
        return self._book.sent_columns()

    def ledger(self) -> tuple[str, Ledger]:
        """Return registration id and ledger."""
        return self._book.ledger()

    def letter_page(self, after: LetterMark | None, limit: int, max_bytes: int) -> Sequence[StoredLetter]:
        """Return dead letters behind a position; see `LetterPages`."""
        return self._book.letter_page(after, limit, max_bytes)

    def letters_behind(self, after: LetterMark | None) -> int:
        """Count the dead letters behind a position; see `LetterPages`."""
        return self._book.letters_behind(after)

    def unfinished(self) -> Commit | None:
        """Return a batch that a process began and that is not committed; see `Resuming`."""
        if self._outbox.pending(self._into) is None:
            return None
        with self._outbox.held(self.database.lock_timeout_s):
            begun = self._begun()
            return begun.commit if begun is not None else None

    def commit(self, commit: Commit) -> Committed:
        """Send all rows, then make receipts, dead letters and ledger visible at once; see `Destination.commit`."""
        landed = self._book.look(commit).landed
        if landed is not None:
            return landed
        with self._outbox.held(self.database.lock_timeout_s):
            begun = self._begun()
            if not commit.steps or commit.kind in ("reread", "give_up"):
                return self._decided(commit, begun)
            if begun is not None and begun.commit.id != commit.id:
                self._finished(begun)
                begun = None
            done = self._finished(begun or Pinned(commit, self._into))
        return replace(done, commit=commit.stored(done.commit.counts))

    def _begun(self) -> Pinned | None:
        """Return the batch in the outbox. A batch that was committed or given up is removed instead."""
        begun = self._outbox.pending(self._into)
        if begun is None or self._receipts_of(begun).look(begun.commit).landed is None:
            return begun
        self._outbox.clear(begun.commit.id)
        return None

    def _decided(self, commit: Commit, begun: Pinned | None) -> Committed:
        """Commit an operator's decision.

        Raises:
            DestinationError: the decision moves offsets of a batch of which the receiver may have accepted a part.
        """
        if begun is not None and commit.id != begun.commit.id:
            ledger = self._book.look(commit).ledger
            if _fits(ledger, begun.commit) and not _fits(ledger.after(commit.changes, commit.id), begun.commit):
                raise DestinationError(
                    f"pipeline {self.pipeline}: {commit.kind}: batch {begun.commit.id} is not finished, and the receiver may have"
                    f" taken part of it: {_ranges(begun.commit)}",
                    f"finish it: kpipe run {self.pipeline}; or {self._way_out}",
                )
        done = self._book.commit(commit)
        if begun is not None and commit.id == begun.commit.id:
            self._outbox.give_up(commit.id)
        return done

    def _finished(self, pinned: Pinned) -> Committed:
        """Verify, store, send, commit. Each step may be repeated after the next one has begun."""
        commit, receipts = pinned.commit, self._receipts_of(pinned)
        rows, dead = verify(commit.only.files, self._roots), verify(commit.dead_letters, self._roots)  # 1
        check_totals(commit)
        check_letters(dead)
        look = receipts.look(commit)  # under the outbox's lock
        receipts.engine.wanted = check(commit, rows, look.columns)
        if pinned.found and not _fits(look.ledger, commit):
            raise LedgerMismatch(
                f"pipeline {self.pipeline}: the ledger in {receipts.describe()} does not fit batch {commit.id}, of which the"
                f" receiver may have taken part: expected {_ranges(commit)} to be next, found other offsets",
                f"restore the ledger; or {self._way_out}",
            )
        look.ledger.after(commit.changes, commit.id)  # 2: nothing is sent for a batch that cannot be committed
        if not rows:
            return receipts.commit(commit.writing(columns=RECEIPTS if commit.only.columns else Columns()))
        Shaper(pinned.into, commit).check([name for file in rows for name in file.names])
        sender = Sender(self._endpoint, resumed=pinned.found)
        try:
            if not pinned.found:
                commit = self._outbox.pin(commit, pinned.into)  # 3
                rows = verify(commit.only.files, self._roots)
            with tempfile.TemporaryDirectory(prefix=".sent-", dir=self._outbox.folder) as made:
                told = self._sent(replace(pinned, commit=commit), rows, sender, Path(made))  # 4
                self._check_limit(look.ledger, commit, told)
                done = receipts.commit(told)  # 5
        finally:
            sender.close()
        self._outbox.clear(commit.id)
        return done

    def _sent(self, pinned: Pinned, rows: Sequence[Proven], sender: Sender, folder: Path) -> Commit:
        delivery = Delivery(pinned, self._rules.refused, self._outbox.receipts(), folder)
        try:
            return delivery.send(rows, sender)
        except KpipeError as error:
            if pinned.found or sender.taken:
                kept = f"batch {pinned.commit.id} is kept unchanged until it is committed; or {self._way_out}"
                error.hint = f"{error.hint}; {kept}" if error.hint else kept
            else:  # every request was rejected: the batch may be planned again, with another definition
                self._outbox.clear(pinned.commit.id)
            raise

    def _receipts_of(self, pinned: Pinned) -> ReceiptsDestination:
        """Return the ledger with the receipts table that the batch was begun with."""
        return self._book if pinned.into.table == self._into.table else self._of_table(pinned.into.table)

    @property
    def _way_out(self) -> str:
        return f"give it up: kpipe run {self.pipeline} --on-unfinished-batch skip"

    def _check_limit(self, ledger: Ledger, commit: Commit, told: Commit) -> None:
        """Check the limit on dead letters: rejected records are counted only after sending.

        Raises:
            DeadLettersExceeded: the pipeline's dead letters exceed the limit.
        """
        total = ledger.dead_letters + told.totals.dead_letters
        if self._rules.most is not None and told.totals.dead_letters > commit.totals.dead_letters and total > self._rules.most:
            raise DeadLettersExceeded(
                f"pipeline {self.pipeline}: errors.max_dead_letters: expected at most {self._rules.most} dead letters,"
                f" found {total}: the receiver rejected {told.totals.dead_letters - commit.totals.dead_letters} records"
                f" of batch {commit.id}",
                "check the receiver's log; to continue, raise errors.max_dead_letters",
            )

    def history(self) -> Sequence[Entry]:
        """Return every committed range of the pipeline, in order of commit."""
        return self._book.history()

    def trace(self, topic: str, partition: int, offset: int) -> Facts:
        """Return what is recorded about an offset; see `Traceable`. Its rows are receipts."""
        return self._book.trace(topic, partition, offset)

    def rows_at(self, table: str, where: Mapping[str, str], limit: int) -> Sequence[Found]:
        """Return the coordinates of receipts; see `Traceable`."""
        return self._book.rows_at(table, where, limit)

    def recount(self) -> Recount:
        """Count receipts and dead letters again."""
        return self._book.recount()

    def view(self, name: str, limit: int | None = None) -> Sequence[Mapping[str, Any]]:
        """Return the pipeline's rows of the view `kpipe_<name>`, newest first."""
        return self._book.view(name, limit)

    def record_state(self, state: str, error: str = "", kind: str = "", batch: Batch | None = None, stderr: str = "") -> None:
        """Record the pipeline's state and, if passed, an error event."""
        self._book.record_state(state, error, kind, batch, stderr)

    def clear_errors(self) -> int:
        """Delete the pipeline's error events and its last error; see `ErrorLog`."""
        return self._book.clear_errors()

    def unpublished(self, limit: int = 1000) -> Sequence[Publication]:
        """Return metadata of commits that are not published yet, oldest first."""
        return self._book.unpublished(limit)

    def published(self, publications: Sequence[Publication]) -> Sequence[str]:
        """Mark commits as published; return those that this call marked."""
        return self._book.published(publications)


def _fits(ledger: Ledger, commit: Commit) -> bool:
    """Return whether the ledger's lanes equal those that the batch expects."""
    return isinstance(ledger.apply(commit.changes), Ledger)


def _ranges(commit: Commit) -> str:
    return ", ".join(f"{step.source} {step.range}" for step in commit.steps)
