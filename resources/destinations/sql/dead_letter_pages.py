"""Read dead letters of a database in pages, in the order of their commits: `error_id` increases with each."""

# ruff: noqa: S608 - names in statements are constants, values are always parameters
from __future__ import annotations

from collections.abc import Sequence

from kpipe.batch.dead_letter_page import LetterMark, StoredLetter, of_other_ledger
from resources.destinations.sql.ledger.table_definitions import COMMITS, ERRORS
from resources.destinations.sql.sql_dialect import Connection
from resources.destinations.sql.store import Store

__all__ = ["PagedLetters"]

_BEHIND = f"FROM {ERRORS.sql} WHERE pipeline_name = $1 AND dead_letter AND error_id > $2"


class PagedLetters:
    """The part of a destination that reads its dead letters in pages; see `LetterPages`."""

    store: Store

    def letter_page(self, after: LetterMark | None, limit: int, max_bytes: int) -> Sequence[StoredLetter]:
        """Return dead letters behind a position; see `LetterPages`."""
        nothing: Sequence[StoredLetter] = ()
        return self.store.read_ledger(lambda connection: _page(self.store, connection, after, limit, max_bytes), nothing)

    def letters_behind(self, after: LetterMark | None) -> int:
        """Count the dead letters behind a position; see `LetterPages`."""

        def read(connection: Connection) -> int:
            first = _checked(self.store, connection, after)
            row = connection.execute(f"SELECT count(*) {_BEHIND}", [self.store.pipeline, first]).fetchone()
            return int(row[0])

        return self.store.read_ledger(read, 0)


def _page(store: Store, connection: Connection, after: LetterMark | None, limit: int, max_bytes: int) -> Sequence[StoredLetter]:
    first = _checked(store, connection, after)
    sizes = connection.execute(
        f'SELECT error_id, coalesce(octet_length(load_data_line), 0) + coalesce(octet_length("key"), 0) {_BEHIND}'
        " ORDER BY error_id LIMIT $3",
        [store.pipeline, first, limit],
    ).fetchall()
    last, total = first, 0
    for number, size in sizes:
        total += int(size)
        if total > max_bytes and last > first:
            break
        last = number
    rows = connection.execute(
        f'SELECT error_id, batch_id, topic, "partition", "offset", {store.engine.dialect.micros.format("kafka_timestamp")},'
        f' "key", load_data_line, headers, stage, error_message {_BEHIND} AND error_id <= $3 ORDER BY error_id',
        [store.pipeline, first, last],
    ).fetchall()
    return [
        StoredLetter(
            LetterMark(batch, number), topic, partition, offset, micros, key, value,
            () if headers is None else store.engine.headers(headers), stage or "", reason or "",
        )
        for number, batch, topic, partition, offset, micros, key, value, headers, stage, reason in rows
    ]  # fmt: skip


def _checked(store: Store, connection: Connection, after: LetterMark | None) -> int:
    """Return the number of a position.

    Raises:
        DestinationError: the ledger does not contain its commit.
    """
    if after is None:
        return -1
    found = connection.execute(
        f"SELECT 1 FROM {COMMITS.sql} WHERE batch_id = $1 AND pipeline_name = $2", [after.batch, store.pipeline]
    ).fetchone()
    if found is None:
        raise of_other_ledger(store.pipeline, store.describe(), after)
    return after.at
