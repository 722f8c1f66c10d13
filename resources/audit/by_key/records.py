"""Convert records of a topic to keys and canonical texts of their contents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from kpipe.audit.canonical import EXACT, joined, of_record, parse
from kpipe.audit.key_outcomes import Read
from resources.audit.by_key.fields import Finder, Plan

__all__ = ["Message", "Records", "Rows"]

_SAMPLES = 100


class Message(Protocol):
    """A record, as the Kafka client returns it."""

    def key(self) -> bytes | str | None:
        """Return the key."""

    def value(self) -> bytes | str | None:
        """Return the value."""


@dataclass
class Rows:
    """Keys and contents, as columns of equal length.

    Attributes:
        keys: texts of the keys.
        contents: texts of each compared column.
        offsets: of the records; empty for rows of a table.
        absent: whether a record has no value.
    """

    keys: list[str] = field(default_factory=list)
    contents: list[list[str | None]] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    absent: list[bool] = field(default_factory=list)


class Records:
    """Converter of records; counts what it leaves out.

    Args:
        plan: what is compared.
        own_key: take the key from Kafka's key, not from the value.
        compares: whether Kafka's key is compared with the key: what tombstones delete and compaction keeps depends on it.
        skips_tombstones: leave out records without a value.
        unit: unit of numbers that are timestamps.

    Attributes:
        read: counts since `begin`.
        unreadable: partition, offset and reason of some records whose key cannot be read.
    """

    def __init__(self, plan: Plan, own_key: bool, compares: bool, skips_tombstones: bool, unit: str) -> None:
        self._own_key, self._compares, self._skips = own_key, compares, skips_tombstones
        self._names = [item.path for item in plan.keys]
        self._to_key = [of_record(item.kind, unit) for item in plan.keys]
        self._to_text = [of_record(item.kind, unit) for item in plan.contents]
        self._is_text = len(plan.keys) == 1 and plan.keys[0].kind == EXACT
        self._paths = [*self._names, *(item.path for item in plan.contents)]
        self.begin()

    def begin(self) -> None:
        """Begin to count."""
        self.read, self.unreadable = Read(), list[tuple[int, int, str]]()
        self._finder, self._keys = Finder(self._paths), Finder(self._names)

    def counted(self) -> Read:
        """Return the counts since `begin`."""
        first = len(self._names)
        self.read.fields = {at - first for at in self._finder.found if at >= first}
        self.read.unmapped = set(self._finder.unmapped)
        return self.read

    def rows(self, messages: Sequence[Message], offsets: Sequence[int], partition: int, later: bool) -> Rows:
        """Convert records.

        Args:
            messages: the records.
            offsets: of each.
            partition: of all of them.
            later: whether they are above the end of the range.
        """
        made, texts = Rows(), []
        for message, offset in zip(messages, offsets, strict=True):
            value = message.value()
            if value is None and self._skips:
                self.read.ignored += 1
                continue
            try:
                key, text = self._converted(message, value)
            except (ValueError, RecursionError) as error:
                if later:
                    self.read.ignored += 1
                else:
                    self.read.unreadable += 1
                    if len(self.unreadable) < _SAMPLES:
                        self.unreadable.append((partition, offset, str(error)[:200] or type(error).__name__))
                continue
            made.keys.append(key)
            made.offsets.append(offset)
            made.absent.append(value is None)
            texts.append(text)
        count = len(made.keys)
        if later:
            self.read.later, self.read.later_tombstones = self.read.later + count, self.read.later_tombstones + sum(made.absent)
        else:
            self.read.records, self.read.tombstones = self.read.records + count, self.read.tombstones + sum(made.absent)
        made.contents = [list(column) for column in zip(*texts, strict=True)] if texts else [[] for _ in self._to_text]
        return made

    def _converted(self, message: Message, value: bytes | str | None) -> tuple[str, Sequence[str | None]]:
        raw = message.key()
        needed = raw is not None and (value is None or self._own_key or self._compares)
        own = self._own(raw) if raw is not None and needed else None
        if value is None:
            if own is None:
                raise ValueError("no value, and no key of Kafka that has the columns of the key")
            return own, [None] * len(self._to_text)
        record = parse(_json(value))
        if not isinstance(record, dict):
            raise ValueError("not a JSON object")
        values = self._finder.values(record)
        count = len(self._to_key)
        key = own if self._own_key else joined([to(item) for to, item in zip(self._to_key, values[:count], strict=True)])
        if key is None:
            raise ValueError("without a field of the key")
        self.read.foreign += self._compares and own != key
        return key, [to(item) for to, item in zip(self._to_text, values[count:], strict=True)]

    def _own(self, raw: bytes | str) -> str | None:
        """Return the key in Kafka's key: an object with the fields, a list of them, or the only one; None: it has not all."""
        data = _json(raw)
        try:
            found: Any = parse(data)
        except (ValueError, RecursionError):
            found = data.decode("utf-8", "replace")
        if self._is_text and not isinstance(found, dict):
            found = found if isinstance(found, str) else data.decode("utf-8", "replace")
        values = self._keys.values(found) if isinstance(found, dict) else found if isinstance(found, list) else [found]
        if len(values) != len(self._to_key):
            return None
        return joined([to(item) for to, item in zip(self._to_key, values, strict=True)])


def _json(data: bytes | str) -> bytes:
    """Return the text; without the five bytes that a schema registry's serializer writes in front of it."""
    raw = data.encode() if isinstance(data, str) else data
    return raw[5:] if raw[:1] == b"\0" else raw
