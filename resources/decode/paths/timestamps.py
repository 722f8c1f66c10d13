"""Infer timestamps in new columns of JSON records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from kpipe.definition.formats import Format, Mapped
from kpipe.definition.json_path import parse_path
from kpipe.schema.timestamps import has_text, with_timestamps
from resources.decode.block import Decoded, Decoder, Payloads
from resources.decode.json.rows import load
from resources.decode.paths.tree import picked

__all__ = ["TimestampDecoder", "members"]


def members(kind: Format) -> Callable[[Mapping[str, Any]], Mapping[str, Any]]:
    """Return the function from an object to its values by column."""
    if kind.mapping is None:
        return lambda value: value
    ways = [
        (name, parse_path(item.path), item.default) if isinstance(item, Mapped) else (name, parse_path(item), None)
        for name, item in kind.mapping.items()
    ]

    def selected(value: Mapping[str, Any]) -> dict[str, Any]:
        found = ((name, default, *picked(value, parts)) for name, parts, default in ways)
        return {name: item if there else default for name, default, there, item in found}

    return selected


class TimestampDecoder:
    """A decoder of objects whose new columns of text are timestamps if all texts of the block are.

    Only blocks with such new columns are read a second time. Where blocks differ, the column is text (`merge`).

    Args:
        kind: the format.
        inner: the decoder.
    """

    takes_nulls = False

    def __init__(self, kind: Format, inner: Decoder) -> None:
        self._inner, self._members = inner, members(kind)

    def decode(self, payloads: Payloads, keys: pa.Array | None = None) -> Decoded:
        """See `Decoder`."""
        part = self._inner.decode(payloads, keys)
        if not has_text(part.new_columns):
            return part
        rows = range(len(payloads)) if part.kept is None else part.kept
        records = (self._members(load(payloads[at])) for at in rows)
        return replace(part, new_columns=with_timestamps(part.new_columns, records))
