"""Decode change events of Debezium: rows of the source's table, and the keys of deleted rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from kpipe.definition.formats import Format
from kpipe.schema.columns import Columns
from kpipe.tables.changes import EMPTIES, UNCHANGED
from resources.decode.block import Decoded, Payloads
from resources.decode.debezium.envelopes import Change, Image
from resources.decode.debezium.events import Changes, Keys
from resources.decode.debezium.images import Images
from resources.decode.json.rows import Reject
from resources.schema_registry.config import Access

__all__ = ["ChangeKeys", "DebeziumDecoder"]

EVERY = Image({}, None)
"""In place of a row: all rows."""
_TRUNCATED = (
    "a TRUNCATE of the source's table",
    "set format.truncate: apply to delete all rows (not in destinations of plugins), or skip to keep them",
)


class ChangeKeys:
    """Reader of the keys of deleted rows, with the interface of `KeyReader`.

    Args:
        kind: the format.
        columns: names and types of the key columns.
        keeps: whether keys have the column `EMPTIES`, for a delete of all rows.
        access: settings of the schema registry.
    """

    def __init__(self, kind: Format, columns: Columns, keeps: bool = True, access: Access | None = None) -> None:
        self._names = {name.lower() for name in columns.names()}
        self._columns, self._images, self._keys, self._keeps = columns, Images(kind, columns), Keys(kind, access), keeps

    def read(self, keys: pa.Array) -> tuple[pa.Table, dict[int, str]]:
        """Return one row for each key, and by position the reasons of invalid keys."""
        return self.chosen(self._read(keys.to_pylist(), "a tombstone without a key"))

    def deleted(self, before: Sequence[Image | None], keys: Sequence[bytes | None]) -> tuple[pa.Table, dict[int, str]]:
        """Return one row for each delete: from the record's key, or if that lacks a key column, from the row before."""
        pairs = zip(before, self._read(keys, "a delete without a key"), strict=True)
        return self.chosen([image if image is EVERY else self._of_delete(image, found) for image, found in pairs])

    def chosen(self, images: Sequence[Image | str]) -> tuple[pa.Table, dict[int, str]]:
        """Return one row for each image; a text is the reason why there is none."""
        reasons = {at: image for at, image in enumerate(images) if isinstance(image, str)}
        decoded = self._images.table(
            [(at, image) for at, image in enumerate(images) if isinstance(image, Image) and image is not EVERY], len(images)
        )
        reasons = {**reasons, **{at: f"key: {why}" for at, why in decoded.rejects}}
        rows: list[int | None] = [None] * len(images)
        for row, at in enumerate(range(len(images)) if decoded.kept is None else decoded.kept):
            rows[at] = row
        table = decoded.table.select(list(self._columns.names())).take(pa.array(rows, pa.int64()))
        for name in self._columns.names():
            for at in np.flatnonzero(table.column(name).is_null().to_numpy()).tolist():
                if images[at] is not EVERY:
                    reasons.setdefault(at, f"key column {name} is NULL or missing")
        if self._keeps:
            every = pa.array([image is EVERY for image in images], pa.bool_())
            table = table.append_column(EMPTIES, every)
        return table, reasons

    def _read(self, keys: Sequence[bytes | None], without: str) -> list[Image | str]:
        """Return each key, or the reason why there is none; `without` is the reason of a record without one."""
        there = [at for at, key in enumerate(keys) if key is not None]
        found = self._keys.read([key for key in keys if key is not None])
        images: list[Image | str] = [without] * len(keys)
        for index, at in enumerate(there):
            image = found[index]
            if isinstance(image, Reject):
                images[at] = f"key: {image}"
                continue
            lacking = sorted(self._names - {name.lower() for name in image.values})
            images[at] = image if not lacking else f"key: it has no {lacking[0]}, which is in into.key"
        return images

    def _of_delete(self, before: Image | None, found: Image | str) -> Image | str:
        if not isinstance(found, str) or before is None:
            return found
        return before if self._names <= {name.lower() for name in before.values} else found


class DebeziumDecoder:
    """Decoder of change events: an insert, update or snapshot gives a row, a delete the key of a row.

    A record is one JSON object, with the schema of Kafka Connect's converter or without. With one, its semantic types give
    the columns' types; else values are those of JSON, but for `format.types`.

    Args:
        kind: the format.
        columns: the payload columns.
        unique: columns of the table's key; empty in a sample, which deletes nothing.
        keeps: whether the destination keeps values that an update left out.
        access: settings of the schema registry.
        grows: whether the table gets a column for each new member.

    Raises:
        InvalidPipeline: `format.types` names an unknown type.
    """

    takes_nulls = False

    def __init__(
        self,
        kind: Format,
        columns: Columns,
        unique: Columns | None = None,
        keeps: bool = True,
        access: Access | None = None,
        grows: bool = False,
    ) -> None:
        self._kind, self._keeps = kind, keeps
        self._tables: set[tuple[str, ...]] = set()  # of the events so far, two at most
        self._unique = {name.lower() for name in unique.names()} if unique else set[str]()
        self._changes, self._images = Changes(kind, access), Images(kind, columns, grows)
        self._keys = ChangeKeys(kind, unique, keeps, access) if unique else None

    def decode(self, payloads: Payloads, keys: pa.Array | None = None) -> Decoded:
        """See `Decoder`."""
        rows: list[tuple[int, Image]] = []
        deletes: list[tuple[int, Image | None]] = []
        rejects: list[tuple[int, str]] = []
        stops: list[tuple[int, str, str]] = []
        for at, change in sorted(self._changes.read(payloads), key=lambda one: one[0]):
            if isinstance(change, Reject):
                rejects.append((at, str(change)))
            elif change.what == "message":
                continue
            elif problem := self._mixed(change):
                stops.append((at, *problem))
            elif change.what == "row":
                assert change.row is not None
                rows.append((at, change.row))
                if self._moved(change):
                    stops.append((at, *_MOVED))
            elif change.what == "delete":
                deletes.append((at, change.row))
            elif change.what == "truncate" and self._kind.truncate != "skip":
                if self._kind.truncate == "apply" and self._keeps:
                    deletes.append((at, EVERY))
                else:
                    stops.append((at, *_TRUNCATED))
        made = self._images.table(rows, len(payloads))
        gone, keyed = list[int](), None
        if self._keys is not None and deletes:
            found = [None] * len(payloads) if keys is None else keys.to_pylist()
            keyed, bad = self._keys.deleted([image for _, image in deletes], [found[at] for at, _ in deletes])
            rejects += [(deletes[index][0], why) for index, why in bad.items()]
            good = [index for index in range(len(deletes)) if index not in bad]
            gone, keyed = [deletes[index][0] for index in good], keyed.take(pa.array(good, pa.int64()))
        if not self._keeps:
            flags = made.table.column(UNCHANGED).to_pylist()
            places = range(made.rows) if made.kept is None else made.kept
            stops += [(at, *_UNKEPT) for at, flag in zip(places, flags, strict=True) if flag]
        rejects = sorted([*made.rejects, *rejects])
        table = made.table if self._keeps else made.table.drop_columns([UNCHANGED])
        return Decoded(table, made.rows, made.kept, rejects, made.new_columns, (), gone, keyed, sorted(stops))

    def _mixed(self, change: Change) -> tuple[str, str] | None:
        """Return problem and hint if the events are of several tables: one table's keys and TRUNCATE are not those of another.

        Debezium's transforms for topics merge the shards of a table on purpose, so there only a TRUNCATE is a problem.
        """
        if self._kind.source_table is not None or not change.table:
            return None
        if len(self._tables) < 2:
            self._tables.add(change.table)
        if len(self._tables) == 1 or (self._kind.envelope in ("debezium", "flat") and change.what != "truncate"):
            return None
        first, second = (".".join(names) for names in sorted(self._tables)[:2])
        what = f"events of several tables of the source are in the topic: {first!r}, {second!r}"
        return what, "set format.source_table, and load each table by a pipeline of its own"

    def _moved(self, change: Change) -> bool:
        """Return whether an update changed the key: one record would be a delete and a row. No row has NULL in its key."""
        if not change.old or change.row is None:
            return False
        old = {name.lower(): item for name, item in change.old.items()}
        return any(
            old.get(name.lower(), item) not in (item, None)
            for name, item in change.row.values.items()
            if name.lower() in self._unique
        )


_MOVED = (
    "an update changed a column of into.key in one event, which would be a delete and a row",
    "let Debezium write the topic, which writes two events if the primary key changes, and name that key in into.key",
)
_UNKEPT = (
    "an update left out a large value that it did not change: this destination cannot keep the value of the row",
    "set REPLICA IDENTITY FULL for the source's table, or load into a destination of kpipe's own",
)
