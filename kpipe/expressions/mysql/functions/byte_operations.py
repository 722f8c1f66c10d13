"""Convert addresses and compress bytes: DuckDB calls `call` as `kpipe_bytes`, with bytes as hexadecimal digits.

Sources: MySQL 8.4 manual, "Miscellaneous Functions" (INET6_ATON and its neighbours), "Encryption and Compression Functions".
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable
from ipaddress import AddressValueError, IPv6Address

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


_OPERATIONS: dict[str, Callable[..., Text]] = {
    "address": _address,
    "address_text": _address_text,
    "compress": _compress,
    "uncompress": _uncompress,
    "uncompressed_length": _uncompressed_length,
}
