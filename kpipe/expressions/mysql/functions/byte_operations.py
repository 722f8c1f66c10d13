"""Compute functions of binary strings: DuckDB calls `call` as `kpipe_bytes`, with bytes as hexadecimal digits.

Sources: MySQL 8.4 manual, "Miscellaneous Functions" (INET6_ATON and its neighbours), "Encryption and Compression Functions",
"String Functions and Operators".
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable
from ipaddress import AddressValueError, IPv6Address

from kpipe.expressions.short_cache import short_cache

__all__ = ["NAME", "call"]

#: Its name in DuckDB.
NAME = "kpipe_bytes"

_IPV4 = re.compile(r"\d{1,3}(\.\d{1,3}){3}", re.ASCII)
_LARGEST = 16_777_216  # bytes after decompression, as text_arguments.LARGEST

Text = str | None


def call(name: str, args: list[Text]) -> Text:
    """Return the result of an operation; NULL for a NULL."""
    texts = [text for text in args if text is not None]
    return _OPERATIONS[name](*texts) if len(texts) == len(args) else None


def _address(text: str) -> Text:
    """Compute INET6_ATON: 4 bytes of an IPv4 address, 16 of an IPv6 address; NULL for any other text."""
    if _IPV4.fullmatch(text):
        parts = [int(part) for part in text.split(".")]
        return bytes(parts).hex() if max(parts) < 256 else None
    try:
        return None if "%" in text else IPv6Address(text).packed.hex()
    except AddressValueError:
        return None


def _address_text(digits: str) -> Text:
    """Compute INET6_NTOA. The longest run of zero groups becomes `::`; mapped and compatible addresses end as in IPv4."""
    code = bytes.fromhex(digits)
    if len(code) == 4:
        return ".".join(map(str, code))
    if len(code) != 16:
        return None
    groups = [int.from_bytes(code[at : at + 2], "big") for at in range(0, 16, 2)]
    runs = [(_zeros(groups[at:]), -at) for at in range(8) if groups[at] == 0 and (at == 0 or groups[at - 1] != 0)]
    count, place = max(runs, default=(0, 0))
    if place == 0 and (count == 6 or (count == 5 and groups[5] == 0xFFFF)):
        return f"::{'ffff:' if count == 5 else ''}{'.'.join(map(str, code[12:]))}"
    written = [f"{group:x}" for group in groups]
    if not count:
        return ":".join(written)
    return f"{':'.join(written[:-place])}::{':'.join(written[count - place :])}"


def _zeros(groups: list[int]) -> int:
    return next((at for at, group in enumerate(groups) if group), len(groups))


def _compress(digits: str) -> str:
    """Compute COMPRESS: the length in four little-endian bytes, then zlib's bytes; a point follows a space at the end."""
    code = bytes.fromhex(digits)
    if not code:
        return ""
    packed = zlib.compress(code)
    return (len(code).to_bytes(4, "little") + packed + (b"." if packed.endswith(b" ") else b"")).hex()


def _uncompress(digits: str) -> Text:
    """Compute UNCOMPRESS; NULL for bytes that COMPRESS did not make."""
    code = bytes.fromhex(digits)
    if len(code) <= 4:
        return None if code else ""
    size = int.from_bytes(code[:4], "little") & 0x3FFFFFFF
    if size > _LARGEST:
        return None
    reader = zlib.decompressobj()
    try:
        found = reader.decompress(code[4:], size or 1)
    except zlib.error:
        return None
    return found.hex() if len(found) <= size and not reader.unconsumed_tail else None


def _uncompressed_length(digits: str) -> Text:
    code = bytes.fromhex(digits)
    if len(code) <= 4:
        return None if code else "0"
    return str(int.from_bytes(code[:4], "little") & 0x3FFFFFFF)


def _locate(digits: str, what: str, start: str) -> str:
    code, first = bytes.fromhex(digits), int(start)
    return str(code.find(bytes.fromhex(what), first - 1) + 1 if 1 <= first <= len(code) + 1 else 0)


def _replace(digits: str, old: str, new: str) -> str:
    return bytes.fromhex(digits).replace(bytes.fromhex(old), bytes.fromhex(new)).hex() if old else digits


def _substring_index(digits: str, mark: str, count: str) -> str:
    if not mark or int(count) == 0:
        return ""
    code, between = bytes.fromhex(digits), bytes.fromhex(mark)
    times = max(min(int(count), len(code) + 1), -len(code) - 1)  # no text has more parts
    if times > 0:
        return between.join(code.split(between, times)[:times]).hex()
    return between.join(code.rsplit(between, -times)[times:]).hex()  # from the right: a delimiter may overlap itself


def _trim(side: str, digits: str, what: str) -> str:
    code, part = bytes.fromhex(digits), bytes.fromhex(what)
    begin, end = 0, len(code)
    while part and side != "TRAILING" and code.startswith(part, begin, end):
        begin += len(part)
    while part and side != "LEADING" and code.endswith(part, begin, end):
        end -= len(part)
    return code[begin:end].hex()


def _find_in_set(what: str, items: str) -> str:
    code, parts = bytes.fromhex(what), bytes.fromhex(items).split(b",")
    return str(parts.index(code) + 1 if items and code in parts else 0)


def _reverse(digits: str) -> str:
    return bytes.fromhex(digits)[::-1].hex()


#: A part of a pattern without %: what it has at which places, and the number of bytes that it matches.
_Part = tuple[tuple[tuple[int, bytes], ...], int]


def _like(digits: str, pattern: str, mark: str) -> str:
    """Compute LIKE. The parts between % are searched from the left: the earliest match leaves the most bytes for the others."""
    code = bytes.fromhex(digits)
    parts = _parts(pattern, mark)
    if len(parts) == 1:
        return "1" if len(code) == parts[0][1] and _fits(code, parts[0], 0) else "0"
    first, *middle, last = parts
    if not _fits(code, first, 0):
        return "0"
    at = first[1]
    for part in middle:
        at = _found(code, part, at)
        if at < 0:
            return "0"
        at += part[1]
    end = len(code) - last[1]
    return "1" if end >= at and _fits(code, last, end) else "0"


def _fits(code: bytes, part: _Part, at: int) -> bool:
    """Return whether a part matches at a place."""
    runs, length = part
    return at + length <= len(code) and all(code.startswith(run, at + offset) for offset, run in runs)


def _found(code: bytes, part: _Part, begin: int) -> int:
    """Return the first place from `begin` on where a part matches; -1: nowhere."""
    runs, length = part
    if not runs:
        return begin if begin + length <= len(code) else -1
    offset, first = runs[0]
    at = code.find(first, begin + offset)
    while at >= 0 and not _fits(code, part, at - offset):
        at = code.find(first, at + 1)
    return at - offset if at >= 0 else -1


@short_cache(maxsize=256, longest=2000)
def _parts(pattern: str, mark: str) -> list[_Part]:
    """Return the parts of a pattern between %."""
    code, escape, at = bytes.fromhex(pattern), bytes.fromhex(mark), 0
    parts, runs, run, length = list[_Part](), list[tuple[int, bytes]](), bytearray(), 0

    def close() -> None:
        if run:
            runs.append((length - len(run), bytes(run)))
            run.clear()

    while at < len(code):
        escaped = bool(escape) and code.startswith(escape, at) and at + len(escape) < len(code)
        at += len(escape) if escaped else 0
        sign = code[at : at + 1]
        at += 1
        if escaped or sign not in (b"%", b"_"):
            run += sign
            length += 1
            continue
        close()
        if sign == b"_":
            length += 1
        else:
            parts.append((tuple(runs), length))
            runs.clear()
            length = 0
    close()
    return [*parts, (tuple(runs), length)]


_OPERATIONS: dict[str, Callable[..., Text]] = {
    "address": _address,
    "address_text": _address_text,
    "compress": _compress,
    "find_in_set": _find_in_set,
    "like": _like,
    "locate": _locate,
    "replace": _replace,
    "reverse": _reverse,
    "substring_index": _substring_index,
    "trim": _trim,
    "uncompress": _uncompress,
    "uncompressed_length": _uncompressed_length,
}
