"""Frame records as bytes for a program's stdin.

    lines             value, newline                                              text, and JSON
    length-prefixed   8 bytes native unsigned length, value                       anything; SingleStore's framing
    json              one object per line with all fields of a Kafka record       when key, headers or offsets matter

Whole blocks are framed at a time: joins and searches run in C, without bytecode per record, except for `json`. A null
value (tombstone) cannot be framed in the first two formats; the caller removes those before.
"""

from __future__ import annotations

import base64
import re
import struct
from collections.abc import Iterable, Sequence
from json.encoder import encode_basestring

FRAMINGS = ("lines", "length-prefixed", "json")
LENGTH = struct.Struct("@Q")
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"?', re.DOTALL)
_BLANK_NEWLINES = bytes.maketrans(b"\n\r\0", b"  \n")


class NewlineInValue(ValueError):
    """Values that contain a newline and cannot be framed as one line.

    Attributes:
        indices: their positions in the sequence that was to be framed, ascending.
    """

    def __init__(self, indices: Sequence[int]) -> None:
        super().__init__(f"{len(indices)} values contain a newline, the first one at index {indices[0]}")
        self.indices = tuple(indices)


def lines(values: Sequence[bytes], *, json: bool = False) -> bytes:
    """Frame each value as a line, including the last one.

    Args:
        values: one per record, none of them null.
        json: the values are JSON documents, in which a raw newline or carriage return can only be white space
            (RFC 8259, section 2). Both become spaces, so that every document is one line for every reader.

    Raises:
        NewlineInValue: a value contains a newline, and is not JSON; or it contains one in a string, which JSON does not allow.
    """
    if not values:
        return b""
    framed = b"\n".join([*values, b""])
    torn = framed.count(b"\n") != len(values)
    if json and (torn or b"\r" in framed):
        bad = [index for index, value in enumerate(values) if _breaks_a_string(value)]
        if bad:
            raise NewlineInValue(bad)
        return _blank_newlines(values)
    if torn:
        raise NewlineInValue([index for index, value in enumerate(values) if b"\n" in value])
    return framed


def _breaks_a_string(value: bytes) -> bool:
    """Return whether a newline or carriage return is inside of a string: as a space, it would change the string."""
    if b"\n" not in value and b"\r" not in value:
        return False
    return any(b"\n" in found[0] or b"\r" in found[0] for found in _STRING.finditer(value))


def _blank_newlines(values: Sequence[bytes]) -> bytes:
    framed = b"\0".join([*values, b""])
    if framed.count(b"\0") == len(values):  # JSON has no raw NUL, so this is the rule: one pass over the block
        return framed.translate(_BLANK_NEWLINES)
    return b"\n".join([*(value.replace(b"\n", b" ").replace(b"\r", b" ") for value in values), b""])


def length_prefixed(values: Sequence[bytes]) -> bytes:
    """Frame each value after its length in bytes: 8 bytes, unsigned, in the machine's byte order."""
    parts = [b""] * (2 * len(values))
    parts[0::2] = map(LENGTH.pack, map(len, values))
    parts[1::2] = values
    return b"".join(parts)


def json_envelopes(
    *,
    topic: str,
    partition: int,
    offsets: Sequence[int],
    timestamps: Sequence[int],
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    headers: Sequence[Iterable[tuple[str, bytes | None]] | None] | None = None,
) -> bytes:
    """Frame each record as one line: {"topic", "partition", "offset", "timestamp", "key", "value", "headers"}.

    key, value and the headers' values are text; null where Kafka has null; {"base64": "..."} where the bytes are not
    UTF-8. A value that is JSON is text as well, and stays byte for byte what it was. headers is a list of [name,
    value], since names may repeat.

    Args:
        topic: the topic's name.
        partition: number of the partition.
        offsets: of each record.
        timestamps: of each record, ms since 1970 UTC.
        keys: of each record.
        values: of each record; tombstones are null.
        headers: of each record; None if no record has any.
    """
    start = f'{{"topic":{encode_basestring(topic)},"partition":{partition},"offset":'
    each_headers = map(_headers, headers) if headers is not None else ("[]",) * len(values)
    return "".join(
        [
            f'{start}{offset},"timestamp":{timestamp},"key":{_text(key)},"value":{_text(value)},"headers":{header}}}\n'
            for offset, timestamp, key, value, header in zip(offsets, timestamps, keys, values, each_headers, strict=True)
        ]
    ).encode()


def _text(data: bytes | None) -> str:
    if data is None:
        return "null"
    try:
        return encode_basestring(data.decode())
    except UnicodeDecodeError:
        return f'{{"base64":"{base64.b64encode(data).decode()}"}}'


def _headers(headers: Iterable[tuple[str, bytes | None]] | None) -> str:
    return "[" + ",".join(f"[{encode_basestring(name)},{_text(value)}]" for name, value in headers or ()) + "]"
