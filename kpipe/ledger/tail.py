"""Fingerprint of the last records before an offset, to notice a log that was cut and has grown again.

Offsets alone do not show it: after an unclean leader election, or from a backup, a log may contain other records at offsets
that were read before. So a lane stores hashes of the last records before its next offset. The next read of the lane begins with
these records and compares (docs/adr/0054-tail-fingerprint.md).
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from kpipe.errors import LogTruncated

__all__ = ["ACCEPTED", "BYTES", "CUT", "RECORDS", "SPAN", "Difference", "Tail", "record_hash"]

#: Records in a fingerprint: one would do, unless compaction removes it or a producer repeats records with their timestamps.
RECORDS = 4
#: Offsets before the end in which they are: beyond, a read would have to get past many aborted records first.
SPAN = 1_000
#: Bytes of the records to read again; the last record is always one of them.
BYTES = 64 << 10

#: States of a fingerprint: a read found other records, and an operator has not decided yet; an operator has decided.
CUT, ACCEPTED = "cut", "accepted"

_NUMBERS = struct.Struct(">5q")


def record_hash(offset: int, timestamp: int, key: bytes | None, value: bytes | None, headers: bytes | None) -> str:
    """Return the hash of a record: 32 bits, in hexadecimal. Four of them identify a log; one does not reveal its record.

    Args:
        offset: its offset.
        timestamp: ms since 1970 UTC; -1 without a timestamp.
        key: None if it has none.
        value: None if it has none.
        headers: in one piece; None without headers.
    """
    parts = (key, value, headers)
    found = hashlib.blake2b(_NUMBERS.pack(offset, timestamp, *(-1 if x is None else len(x) for x in parts)), digest_size=4)
    for part in parts:
        if part:
            found.update(part)
    return found.hexdigest()


@dataclass(frozen=True)
class Difference:
    """First record that differs from what was read.

    Attributes:
        offset: its offset.
        before: hash of the record that was read; empty: there was none.
        now: hash of the record in the log; empty: there is none.
        found_before: whether an earlier read has found the difference, and the log has none of these records any more.
    """

    offset: int
    before: str
    now: str
    found_before: bool = False

    def __str__(self) -> str:
        """Return what was found at the offset."""
        if self.found_before:
            return f"none of the records that were read before offset {self.offset}, after an earlier read had found others"
        if not self.before:
            return f"a record at offset {self.offset}, where none was when it was read"
        if self.now:
            return f"another record at offset {self.offset}"
        return f"no record at offset {self.offset}, which compaction removes only while cleanup.policy has compact"


@dataclass(frozen=True)
class Tail:
    """Fingerprint of the last records before an offset. It is parsed only to compare it: a ledger has many, most of them idle.

    Attributes:
        end: the offset: the next one to read.
        text: what a destination stores: leader epoch, state (`-`: none), and the records as OFFSET:HASH.
    """

    end: int
    text: str

    @classmethod
    def made(cls, end: int, records: Iterable[tuple[int, str]] = (), epoch: int = -1, state: str = "") -> Tail:
        """Make a fingerprint.

        Args:
            end: the offset.
            records: offset and hash of each record, ascending, all before the end.
            epoch: leader epoch of the partition when the batch was planned; -1: unknown.
            state: empty, `CUT` or `ACCEPTED`.
        """
        return cls(end, " ".join((str(epoch), state or "-", *(f"{offset}:{found}" for offset, found in records))))

    @classmethod
    def of(cls, end: int, records: Iterable[tuple[int, str]], epoch: int = -1) -> Tail | None:
        """Return the fingerprint of the last of these records, in offset order; None if none is near enough to the end."""
        near = [(offset, found) for offset, found in records if end - SPAN <= offset < end]
        return cls.made(end, near[-RECORDS:], epoch) if near else None

    @classmethod
    def read(cls, text: str | None, end: int) -> Tail | None:
        """Return the fingerprint of a text that a destination has stored; None without one."""
        return cls(end, text) if text else None

    @cached_property
    def records(self) -> tuple[tuple[int, str], ...]:
        """Offset and hash of each record, ascending; at most `RECORDS`. Offsets between them had no record."""
        pairs = (item.split(":") for item in self.text.split(" ")[2:])
        return tuple((int(offset), found) for offset, found in pairs)

    @property
    def epoch(self) -> int:
        """Leader epoch of the partition when the batch was planned; -1: unknown."""
        return int(self.text.split(" ", 1)[0])

    @property
    def state(self) -> str:
        """Empty, `CUT`, `ACCEPTED`, or the mark of an exchange (kpipe/rebuild/exchange.py)."""
        return self.text.split(" ", 2)[1].strip("-")

    @property
    def start(self) -> int:
        """Offset of the first record; the end without records."""
        return self.records[0][0] if self.records else self.end

    def has(self, offset: int, found: str) -> bool:
        """Return whether a record with this hash was read at the offset; empty: whether none was."""
        return self.start <= offset < self.end and dict(self.records).get(offset, "") == found

    def marked(self, state: str) -> Tail:
        """Return the fingerprint in this state."""
        return self.made(self.end, self.records, self.epoch, state)

    def accepted(self) -> Tail:
        """Return the fingerprint as an operator's decision leaves it: unchanged, unless the log was found to be cut."""
        return self.marked(ACCEPTED) if self.state == CUT else self

    def comparable(self, log_start: int) -> Tail | None:
        """Return the part that the log still contains; None if an operator has decided, or without such a part.

        A fingerprint in state `CUT` is compared in any case.
        """
        records = tuple(item for item in self.records if item[0] >= log_start)
        if self.state == ACCEPTED or (not records and self.state != CUT):
            return None
        return self if len(records) == len(self.records) else self.made(self.end, records, self.epoch, self.state)

    def difference(
        self, found: Mapping[int, str], required: Callable[[], int], epoch: int = -1, compacted: bool = True
    ) -> Difference | None:
        """Compare with the records in the log.

        A missing record before an unchanged record was removed by compaction, whatever `cleanup.policy` is now: a cut log has
        other records behind the cut. So were missing last records if no leader was elected since, unless other records took
        their offsets. After a read has found other records (`CUT`), one of the known ones must be back: retention or compaction
        may remove the others, and an operator has not decided.

        Args:
            found: hashes of the records from `start` on, by offset; those behind the end do not count.
            required: returns the offset from which on no record may be missing: the log start, or the end if the log is
                compacted. Called only if records are missing, and nothing else explains it.
            epoch: leader epoch of the partition now; -1: unknown.
            compacted: whether a record can have been removed between others; a split of a source keeps all.

        Returns:
            The first difference; None if the log continues what was read.
        """
        known = dict(self.records)
        for offset, now in sorted(item for item in found.items() if item[0] < self.end):
            if known.get(offset) != now:
                return Difference(offset, known.get(offset, ""), now)
        unchanged = max(known.keys() & found.keys(), default=-1)
        if self.state == CUT and unchanged < 0:
            return Difference(self.end, "", "", found_before=True)
        missing = [offset for offset in known if offset not in found and (offset > unchanged or not compacted)]
        if not missing or 0 <= self.epoch == epoch:
            return None
        first = required()
        return next((Difference(offset, known[offset], "") for offset in missing if offset >= first), None)

    def error(self, source: str, found: Difference, epoch: int = -1) -> LogTruncated:
        """Return the error of a log that differs.

        Args:
            source: the partition, as text.
            found: the difference.
            epoch: the leader epoch now.
        """
        hashes = [f"fingerprint {found.before or 'none'} when it was read, {found.now or 'none'} now"]
        if self.epoch >= 0 and epoch >= 0:
            hashes.append(f"leader epoch {self.epoch} then, {epoch} now")
        error = LogTruncated(
            f"{source}: the log was cut below offset {self.end} and has grown again: found {found} ({'; '.join(hashes)})",
            "SET OFFSETS in ALTER PIPELINE decides where to continue",
        )
        error.offset, error.before = found.offset, found.before
        return error
