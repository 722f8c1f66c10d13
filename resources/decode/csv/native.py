"""CSV payloads to columns of text by compiled code; it leaves alone what is not plainly good (resources/native/csv.c)."""

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
    """A decoder for these rules; None where nothing is compiled, or a quote or an escape takes more than a byte.

    Args:
        rules: of the format.
        wanted: fields of a line.
        places: of each column that is asked for: its field.
    """
    found = library()
    plain = len(rules.quote) <= 1 and len(rules.escape) <= 1
    return NativeCsv(found, rules, wanted, places) if found is not None and plain else None


class NativeCsv:
    """Splits blocks. Not for two threads at once."""

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
        """The fields of each column as bytes, how many rows each payload gave, and its status (`native_json.GOOD` or `LOOK`).

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
