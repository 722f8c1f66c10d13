"""Which decoder reads which format."""

from __future__ import annotations

from kpipe.formats import Format
from kpipe.schema import Columns
from resources.decode.block import Decoder
from resources.decode.json_format import JsonDecoder
from resources.decode.raw_format import RawDecoder

__all__ = ["decoder"]


def decoder(kind: Format, columns: Columns) -> Decoder:
    """The decoder of a format. Not for two threads at once.

    Args:
        kind: the format and its options.
        columns: the payload columns.
    """
    if kind.type == "raw":
        return RawDecoder()
    return JsonDecoder(columns)
