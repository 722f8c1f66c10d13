"""Split CSV records into lines and fields by the rules of MySQL's LOAD DATA, with a reason for each reject. It is slow.

The rules (MySQL 8.4 manual, 15.2.9): A field is quoted if it begins with the quote. A quoted field ends with a quote before a
delimiter, a line end or the end of the record. A quote inside it is doubled or escaped. Escapes mean the same inside and
outside of quotes. All other bytes are taken literally.

Three rules differ from MySQL's. An unclosed quote is a reject, and so is a line with a wrong number of fields. The end of the
record ends a line as a line end does, so the last field may be empty.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from kpipe.definition.formats import Format
from resources.decode.json.rows import Reject

__all__ = ["Rules", "lines"]

# The byte after the escape, and its meaning; every other byte means itself.
_ESCAPES = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"b": b"\b", b"0": b"\0", b"Z": b"\x1a"}


@dataclass(frozen=True)
class Rules:
    """The options of a CSV format as bytes (UTF-8)."""

    delimiter: bytes
    quote: bytes
    escape: bytes
    line_end: bytes
    line_start: bytes
    null: bytes | None
    null_quoted: bool
    skip_lines: int

    @classmethod
    def of(cls, kind: Format) -> Rules:
        """Read the options of a pipeline's format."""
        return cls(
            kind.delimiter.encode(),
            kind.quote.encode(),
            kind.escape.encode(),
            kind.line_end.encode(),
            kind.line_start.encode(),
            None if kind.null is None else kind.null.encode(),
            kind.null_quoted,
            kind.skip_lines,
        )

    @cached_property
    def signs(self) -> re.Pattern[bytes]:
        """The pattern of bytes with a special meaning in a field."""
        return re.compile(b"|".join(re.escape(sign) for sign in (self.quote, self.escape, self.delimiter, self.line_end) if sign))

    def is_plain(self, record: bytes) -> bool:
        """Return whether splitting the record at line ends and delimiters is enough."""
        signs = any(sign and sign in record for sign in (self.quote, self.escape))
        return not (signs or self.line_start or set(self.delimiter) & set(self.line_end))

    def is_null(self, text: bytes, quoted: bool, escaped: bool, marked: bool) -> bool:
        """Return whether a field is NULL.

        Args:
            text: the field without quotes and escapes.
            quoted: whether it was quoted.
            escaped: whether it contained an escape.
            marked: whether one of the escapes was the escape and an N.
        """
        if marked and text == b"N":
            return True
        if self.null is None:
            return bool(self.quote) and not quoted and not escaped and text == b"NULL"
        return text == self.null and not escaped and (self.null_quoted or not quoted)


def lines(record: bytes, rules: Rules, wanted: int) -> list[list[bytes | None]]:
    """Return the fields of each line; None is NULL.

    Args:
        record: a payload.
        rules: the format's options.
        wanted: number of fields of a line.

    Raises:
        Reject: a line has more or fewer fields, or a quote is not closed; the text names the line.
    """
    result = []
    for number, line in _lines(record, rules):
        if len(line) != wanted:
            raise Reject(f"line {number}: expected {wanted} {'field' if wanted == 1 else 'fields'}, found {len(line)}")
        result.append(line)
    return result


def _lines(record: bytes, rules: Rules) -> Iterator[tuple[int, list[bytes | None]]]:
    at, number = 0, 1
    for _ in range(rules.skip_lines):
        at, number = _next_line(record, at, rules), number + 1
    if rules.is_plain(record) and at < len(record):
        texts = record[at:].split(rules.line_end)
        for ahead, text in enumerate(texts if texts[-1] else texts[:-1]):
            fields = text.split(rules.delimiter)
            yield number + ahead, [None if rules.is_null(field, False, False, False) else field for field in fields]
        return
    while at < len(record):
        if rules.line_start:
            start = record.find(rules.line_start, at)
            if start < 0:
                return
            number += record.count(rules.line_end, at, start)
            at = start + len(rules.line_start)
        line: list[bytes | None] = []
        more = True
        while more:
            value, at, more = _field(record, at, rules, number)
            line.append(value)
        yield number, line
        number += 1


def _next_line(record: bytes, at: int, rules: Rules) -> int:
    """Return the position after the line end; quotes are ignored, escapes are not."""
    while at < len(record):
        if rules.escape and record.startswith(rules.escape, at):
            at += len(rules.escape) + 1
        elif record.startswith(rules.line_end, at):
            return at + len(rules.line_end)
        else:
            at += 1
    return len(record)


def _field(record: bytes, at: int, rules: Rules, number: int) -> tuple[bytes | None, int, bool]:
    """Read the field at a position; return it, the next position, and whether the line has more fields."""
    quote, escape, begin = rules.quote, rules.escape, at
    quoted = bool(quote) and record.startswith(quote, at)
    at += len(quote) if quoted else 0
    text = bytearray()
    escaped = marked = False

    def done(end: int, more: bool) -> tuple[bytes | None, int, bool]:
        value = bytes(text)
        return (None if rules.is_null(value, quoted, escaped, marked) else value), end, more

    while at < len(record):
        if escape and record.startswith(escape, at) and (escape != quote or record.startswith(escape, at + len(escape))):
            after = at + len(escape)
            sign = record[after : after + 1]
            if not sign:  # an escape at the end of the record means itself
                text += escape
                at = after
                continue
            escaped = True
            if escape == quote:
                text += quote
                at = after + len(quote)
                continue
            marked = marked or sign == b"N"
            text += _ESCAPES.get(sign, sign)
            at = after + 1
        elif quoted and record.startswith(quote, at):
            after = at + len(quote)
            if record.startswith(quote, after):
                text += quote
                at = after + len(quote)
            elif after == len(record):
                return done(after, False)
            elif record.startswith(rules.line_end, after):
                return done(after + len(rules.line_end), False)
            elif record.startswith(rules.delimiter, after):
                return done(after + len(rules.delimiter), True)
            else:
                text += quote
                at = after
        elif not quoted and record.startswith(rules.line_end, at):
            return done(at + len(rules.line_end), False)
        elif not quoted and record.startswith(rules.delimiter, at):
            return done(at + len(rules.delimiter), True)
        else:
            stop = rules.signs.search(record, at + 1)
            text += record[at : stop.start() if stop else len(record)]
            at = stop.start() if stop else len(record)
    if quoted:
        raise Reject(f"line {number}: the quote at byte {begin} is not closed")
    return done(at, False)
