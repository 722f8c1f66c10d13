"""Avro payloads to columns, each by the schema that it was written with.

Measured on tweets of 182 bytes, CPU time a record: fastavro 7 to 11 µs for Python's objects and 4 for Arrow's columns of them,
cavro 7, Apache's own library 40, pyruhvro (arrow-rs) 0.26, this 0.36. pyruhvro does not see bytes behind the datum, which is
how a record that was written with another schema looks, fails a block as a whole, and its package names no licence: see ADR 13.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from kpipe.formats import Format
from kpipe.schema import Columns
from resources.decode import avro_schema as steps
from resources.decode.avro_rows import Reader
from resources.decode.block import Decoded, Payloads
from resources.decode.fitted import Fitting
from resources.decode.json_rows import Reject
from resources.decode.mapped_columns import MappedFitting
from resources.decode.native_avro import native_avro
from resources.decode.schemas import Part, Written, assembled
from resources.registry.access import Access
from resources.registry.client import Schema

__all__ = ["AvroDecoder"]


class AvroDecoder:
    """Decodes a datum a payload, with Confluent's prefix where the format has a registry.

    A payload becomes a row only if it is a datum of its schema and no more, and every field that has a column fits it. Fields
    of the schema without a column are reported as new columns, whether they hold something or not.

    Args:
        kind: the format.
        columns: the payload columns.
        access: to the registry.
        name: of the column, where a schema is no record.

    Raises:
        InvalidPipeline: the registry's address is none.
    """

    takes_nulls = False

    def __init__(self, kind: Format, columns: Columns, access: Access | None = None, name: str = "value") -> None:
        self._columns = columns
        self._written = Written(kind, "AVRO", lambda schema: _Schema(schema, columns, name, kind), access)

    def decode(self, payloads: Payloads, keys: pa.Array | None = None) -> Decoded:
        """See `Decoder`.

        Raises:
            RegistryFailed, CredentialsRefused: the registry did not say what an id is.
        """
        parts = []
        for chosen, skip, reader in self._written.groups(payloads):
            if isinstance(reader, str):
                parts.append(Part(None, chosen, [(int(at), reader) for at in chosen], Columns()))
            else:
                parts.append(reader.decode(payloads, chosen, skip))
        return assembled(parts, self._columns, len(payloads))


class _Schema:
    """Data of one schema, as rows of the table."""

    def __init__(self, schema: Schema, columns: Columns, name: str, kind: Format) -> None:
        self._plan = steps.plan(schema.text, schema.references, name)
        self._native, self._reader = native_avro(self._plan), Reader(self._plan)
        natural = self._plan.columns
        self._fitting: Fitting | MappedFitting = Fitting(natural, columns)
        if kind.mapping is not None:
            self._fitting = MappedFitting(natural, columns, kind.mapping)

    def decode(self, payloads: Payloads, chosen: np.ndarray[Any, Any], skip: int) -> Part:
        """Rows of the chosen payloads. A column of a block has 2 GiB at most; symbols of an enum may make much of few bytes."""
        try:
            return self._decode(payloads, chosen, skip)
        except MemoryError:
            if len(chosen) == 1:
                why = "the record is too large: its columns do not fit into memory"
                return Part(None, chosen[:0], [(int(chosen[0]), why)], Columns())
        halves = [self.decode(payloads, part, skip) for part in np.array_split(chosen, 2)]
        tables = [part.table for part in halves if part.table is not None]
        return Part(
            pa.concat_tables(tables) if tables else None,
            np.concatenate([part.kept for part in halves]),
            [item for part in halves for item in part.rejects],
            halves[0].new.joined(halves[1].new),
        )

    def _decode(self, payloads: Payloads, chosen: np.ndarray[Any, Any], skip: int) -> Part:
        rejects: list[tuple[int, str]] = []
        arrays, kept = self._read(payloads, chosen, skip, rejects)
        reasons: dict[int, str] = {}
        root, members = self._plan.nodes[0], []
        fields = [at for at, place in zip(root.inner, root.places, strict=True) if place >= 0]
        for at, array, (name, _) in zip(fields, arrays, self._plan.columns, strict=True):
            members.append(self._texts(array, at, np.arange(len(kept)), name, reasons))
        table, more = self._fitting.fit(members, len(kept))
        reasons = {**more, **reasons}
        if reasons:
            rejects += [(int(kept[row]), why) for row, why in reasons.items()]
            good = np.ones(len(kept), bool)
            good[list(reasons)] = False
            table, kept = table.filter(pa.array(good)), kept[good]
        return Part(table, kept, rejects, self._fitting.new if len(kept) else Columns())

    def _read(
        self, payloads: Payloads, chosen: np.ndarray[Any, Any], skip: int, rejects: list[tuple[int, str]]
    ) -> tuple[list[pa.Array], np.ndarray[Any, Any]]:
        """The columns as they are carried, and the payload of each row."""
        arrays: list[pa.Array] = []
        looked, kept = chosen, np.zeros(0, np.int64)
        if self._native is not None:
            arrays, good = self._native.decode(payloads, chosen, skip)
            looked, kept = chosen[~good], chosen[good]
        rows, found = [], []
        for at in looked.tolist():
            try:
                rows.append(self._reader.row(payloads[at][skip:]))
                found.append(at)
            except Reject as error:
                rejects.append((at, str(error)))
        if self._native is not None and not rows:
            return arrays, kept
        slow = [pa.array([row[item.name] for row in rows], item.type) for item in self._plan.carried]
        if not arrays:
            return slow, np.array(found, np.int64)
        order = np.argsort(places := np.concatenate((kept, np.array(found, np.int64))), kind="stable")
        both = [pa.concat_arrays(pair).take(pa.array(order)) for pair in zip(arrays, slow, strict=True)]
        return both, places[order]

    def _texts(self, array: pa.Array, at: int, rows: np.ndarray[Any, Any], path: str, reasons: dict[int, str]) -> pa.Array:
        """The column with JSON text in place of the bytes that it is made of."""
        node = self._plan.nodes[at]
        if "JSON" not in str(node.kind):
            return array
        if node.op == steps.OPTIONAL:
            return self._texts(array, node.inner[0], rows, path, reasons)
        if node.op == steps.SPAN:
            return self._json(array, at, rows, path, reasons)
        if node.op == steps.ARRAY:
            parents = rows[array.value_parent_indices().to_numpy()]
            items = self._texts(array.flatten(), node.inner[0], parents, f"{path}[]", reasons)
            kind = pa.list_(items.type)
            offsets = pa.array(array.offsets.to_numpy() - array.offsets[0].as_py(), pa.int32())
            return pa.ListArray.from_arrays(offsets, items, type=kind, mask=array.is_null())
        members = []
        for inner, name, place in zip(node.inner, node.names, node.places, strict=True):
            if place >= 0:
                member = array.field(name) if not array.null_count else array.flatten()[place]
                members.append((name, self._texts(member, inner, rows, f"{path}.{name}", reasons)))
        return pa.StructArray.from_arrays([item for _, item in members], [name for name, _ in members], mask=array.is_null())

    def _json(self, array: pa.Array, at: int, rows: np.ndarray[Any, Any], path: str, reasons: dict[int, str]) -> pa.Array:
        texts: list[str | None] = []
        for place, part in enumerate(array.to_pylist()):
            try:
                texts.append(None if part is None else self._reader.json(at, part))
            except Reject as error:
                texts.append(None)
                reasons.setdefault(int(rows[place]), f"{path}: {str(error).removeprefix('the record: ')}")
        return pa.array([None if text == "null" else text for text in texts], pa.string())
