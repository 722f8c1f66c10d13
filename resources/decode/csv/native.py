"""Split CSV payloads to columns of text with compiled code (resources/native/csv.c). Other code splits unusual payloads."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from resources.decode.block import Payloads
from resources.decode.csv.rows import Rules
from resources.decode.native_columns import arrays
from resources.native import library

__all__ = ["NativeCsv", "native_csv"]


def native_csv(rules: Rules, wanted: int, places: Sequence[int]) -> NativeCsv | None:
    """Create a decoder; None without the compiled library, or if the quote or the escape has more than one byte.

    Args:
        rules: the format's options.
        wanted: number of fields of a line.
        places: for each selected column the index of its field.
    """
    compiled = library()
    plain = len(rules.quote) <= 1 and len(rules.escape) <= 1
    return NativeCsv(compiled, rules, wanted, places) if compiled is not None and plain else None


class NativeCsv:
    """Splits blocks. Not thread-safe."""

    def __init__(self, found: ctypes.CDLL, rules: Rules, wanted: int, places: Sequence[int]) -> None:
        self._library = found
        self._kind = pa.struct([(str(at), pa.binary()) for at in range(len(places))])
        signs = np.array([sign[0] if sign else -1 for sign in (rules.quote, rules.escape)], np.int64)
        texts = [rules.delimiter, rules.line_end, rules.line_start]
        lengths = [*map(len, texts), -1 if rules.null is None else len(rules.null)]
        numbers = np.array([*lengths, rules.null_quoted, rules.skip_lines, wanted, len(places)], np.int64)
        columns = np.full(wanted, -1, np.int32)
        columns[list(places)] = np.arange(len(places))
        joined = b"".join((*texts, rules.null or b""))
        self._decoder = found.kp_csv_new(signs.ctypes.data, numbers.ctypes.data, joined, columns.ctypes.data)
        if not self._decoder:
            raise MemoryError
        weakref.finalize(self, found.kp_csv_free, self._decoder)

    def split(self, payloads: Payloads) -> tuple[list[pa.Array], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Return the fields of each column as bytes, and each payload's number of rows and status (`GOOD` or `LOOK`).

        Raises:
            MemoryError: the block is too large.
        """
        count = len(payloads)
        status, rows = np.empty(count, np.uint8), np.empty(count, np.int64)
        text, bounds = np.frombuffer(payloads.text, np.uint8), np.ascontiguousarray(payloads.bounds)
        data = (text.ctypes.data, bounds.ctypes.data, count, status.ctypes.data, rows.ctypes.data)
        total = self._library.kp_csv_decode(self._decoder, *data)
        if total < 0:
            raise MemoryError(f"{len(text):,} bytes of CSV")
        return arrays(self._library, self._decoder, self._kind, total), rows, status
