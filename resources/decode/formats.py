"""Which decoder reads which format."""

from __future__ import annotations

from collections.abc import Sequence

from kpipe.formats import Format
from kpipe.schema import Columns, infer
from resources.decode.block import Decoder, Payloads
from resources.decode.csv_format import CsvDecoder
from resources.decode.json_format import JsonDecoder
from resources.decode.json_rows import Reject, load
from resources.decode.mapped_json import MappedJsonDecoder, sampled_paths
from resources.decode.raw_format import RawDecoder

__all__ = ["decoder", "sampled"]


def decoder(kind: Format, columns: Columns) -> Decoder:
    """The decoder of a format. Not for two threads at once.

    Args:
        kind: the format and its options.
        columns: the payload columns.
    """
    if kind.type == "raw":
        return RawDecoder()
    if kind.type == "csv":
        return CsvDecoder(kind, columns)
    return JsonDecoder(columns) if kind.mapping is None else MappedJsonDecoder(kind.mapping, columns)


def sampled(kind: Format, payloads: Sequence[bytes]) -> Columns:
    """The columns that payloads hold, for a table that is yet to be made; those that cannot be decoded are left out."""
    if kind.type == "json" and kind.mapping is not None:
        return sampled_paths(kind.mapping, payloads)
    if kind.type != "json":
        return decoder(kind, Columns()).decode(Payloads.of(payloads)).new_columns
    objects = []
    for payload in payloads:
        try:
            objects.append(load(payload))
        except Reject:
            continue
    return infer(objects)
