"""An address as a destination: rows are POSTed, then the ledger says that they were (docs/adr/0023-webhook.md).

No transaction spans both. So a batch is fixed in a folder before its first request, and whoever finds it there finishes it: the
same requests, with the same keys. Exactly once where the receiver drops a key that it knows; else at least once, never less.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kpipe.audit import Entry, Recount
from kpipe.batch import Batch, Commit, Committed
from kpipe.errors import DeadLettersExceeded, Fenced, KpipeError
from kpipe.ledger import Ledger
from kpipe.pipeline import Into, Policy
from kpipe.ports import Publication
from kpipe.schema import Columns
from kpipe.verdict import applied
from resources.destinations.relational.records import check_letters
from resources.destinations.staged import Proven, check_totals, verify
from resources.destinations.webhook.book import Book
from resources.destinations.webhook.delivery import RECEIPTS, Delivery
from resources.destinations.webhook.outbox import Outbox
from resources.destinations.webhook.requests import Shaper
from resources.destinations.webhook.rows import check
from resources.destinations.webhook.sender import Endpoint, Sender

__all__ = ["Rules", "WebhookDestination"]


@dataclass(frozen=True)
class Rules:
    """What becomes of records that the receiver refuses.

    Attributes:
        refused: the policy.
        most: dead letters that the pipeline may hold; None: any number.
    """

    refused: Policy = "fail"
    most: int | None = None


class WebhookDestination:
    """One pipeline's address, and its ledger in a DuckDB file.

    Args:
        into: the fields of the definition.
        endpoint: where requests go.
        path: the ledger's file; what is on its way is kept in a folder beside it.
        pipeline: name of the pipeline.
        config_json: the pipeline's definition for people, without secrets.
        staging: folders that staged files lie in.
        rules: for records that the receiver refuses.
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
        self._book = Book(path, into.table, pipeline, config_json, self._roots, lock_timeout_s)
        self.pipeline, self.database = pipeline, self._book.database

    def describe(self) -> str:
        """Kind, host, and where the receipts are."""
        return f"webhook {self._endpoint.url}, receipts in {self._book.describe()}"

    def columns(self) -> Columns | None:
        """Payload columns that rows have had; None before the first."""
        return self._book.sent_columns()

    def ledger(self) -> tuple[str, Ledger]:
        """Registration id and ledger."""
        return self._book.ledger()

    def unfinished(self) -> Commit | None:
        """A batch that was begun, by whatever process, and can only be finished as it was; see `Resuming`."""
        if self._outbox.pending() is None:
            return None
        with self._outbox.held(self.database.lock_timeout_s):
            found = self._outbox.pending()
            return found if found is not None and self._is_due(found) else None

    def commit(self, commit: Commit) -> Committed:
        """Send all rows, then make receipts, dead letters and ledger visible at once; see `Destination.commit`."""
        landed = self._book.look(commit).landed
        if landed is not None:
            return landed
        if not commit.steps or commit.kind == "reread":
            return self._book.commit(commit)  # a decision
        with self._outbox.held(self.database.lock_timeout_s):
            begun = self._outbox.pending()
            if begun is not None and begun.id != commit.id and self._is_due(begun):
                self._finished(begun)
                begun = None
            done = self._finished(begun if begun is not None and begun.id == commit.id else commit)
        return replace(done, commit=replace(commit, counts=done.commit.counts, metadata=done.commit.metadata))

    def _is_due(self, commit: Commit) -> bool:
        """Whether a batch that was begun is still to be finished; if not, it is forgotten."""
        try:
            look = self._book.look(commit)
            if look.landed is None:
                applied(look.ledger, commit)
                return True
        except Fenced:  # an operator has moved the lanes, or another run has committed
            pass
        self._outbox.clear(commit.id)
        return False

    def _finished(self, commit: Commit) -> Committed:
        """Verify, fix, send, commit: in this order, each step may be done again after the next one has begun."""
        rows, dead = verify(commit.files, self._roots), verify(commit.dead_letters, self._roots)  # 1
        check_totals(commit)
        check_letters(dead)
        look = self._book.look(commit)  # while nobody else sends
        self._book.wanted = check(commit, rows, look.columns)
        applied(look.ledger, commit)  # 2: nothing is sent for a batch that cannot land
        if not rows:
            return self._landed(commit, replace(commit, columns=RECEIPTS if commit.columns else Columns()))
        Shaper(self._into, commit).check([name for file in rows for name in file.names])
        sender = Sender(self._endpoint)
        try:
            if (known := self._outbox.pending()) is None or known.id != commit.id:
                commit = self._outbox.pin(commit)  # 3
                rows = verify(commit.files, self._roots)
            with tempfile.TemporaryDirectory(prefix=".sent-", dir=self._outbox.folder) as made:
                told = self._sent(commit, rows, sender, Path(made))  # 4
                self._check_limit(look.ledger, commit, told)
                return self._landed(commit, told)  # 5
        finally:
            sender.close()

    def _sent(self, commit: Commit, rows: Sequence[Proven], sender: Sender, folder: Path) -> Commit:
        receipts = self._outbox.receipts()
        fresh = not receipts
        try:
            return Delivery(self._into, self._rules.refused, commit, receipts, folder).send(rows, sender)
        except KpipeError:
            if fresh and not sender.taken:  # nobody has anything of it: it may be planned anew, by another definition
                self._outbox.clear(commit.id)
            raise

    def _landed(self, commit: Commit, told: Commit) -> Committed:
        try:
            done = self._book.commit(told)
        except Fenced:
            self._outbox.clear(commit.id)
            raise
        self._outbox.clear(commit.id)
        return done

    def _check_limit(self, ledger: Ledger, commit: Commit, told: Commit) -> None:
        """What was refused is known only now.

        Raises:
            DeadLettersExceeded: the pipeline would hold more than it may.
        """
        total = ledger.dead_letters + told.totals.dead_letters
        if self._rules.most is not None and told.totals.dead_letters > commit.totals.dead_letters and total > self._rules.most:
            raise DeadLettersExceeded(
                f"pipeline {self.pipeline}: {total} dead letters, errors.max_dead_letters is {self._rules.most}:"
                f" the receiver refuses {told.totals.dead_letters - commit.totals.dead_letters} records of batch {commit.id}",
                "see the receiver's log; raise errors.max_dead_letters to go on",
            )

    def history(self) -> Sequence[Entry]:
        """Every committed range of the pipeline, in order of commit."""
        return self._book.history()

    def recount(self) -> Recount:
        """Receipts and dead letters counted afresh."""
        return self._book.recount()

    def view(self, name: str, limit: int | None = None) -> Sequence[Mapping[str, Any]]:
        """Rows of the view `kpipe_<name>` that belong to this pipeline, newest first."""
        return self._book.view(name, limit)

    def record_state(self, state: str, error: str = "", kind: str = "", batch: Batch | None = None, stderr: str = "") -> None:
        """Note the pipeline's state and, when given, an error event."""
        self._book.record_state(state, error, kind, batch, stderr)

    def clear_errors(self) -> int:
        """Remove the pipeline's error events, and its last error; see `ErrorLog`."""
        return self._book.clear_errors()

    def unpublished(self, limit: int = 1000) -> Sequence[Publication]:
        """Metadata of commits that have not been mirrored, oldest first."""
        return self._book.unpublished(limit)

    def published(self, batches: Sequence[str]) -> Sequence[str]:
        """Mark them as mirrored; gives those that this very call marked."""
        return self._book.published(batches)
