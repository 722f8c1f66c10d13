"""Decode JSON of Kafka Connect's converter (`schemas.enable=true`): a record is its schema and its payload."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from kpipe.definition.formats import Format
from kpipe.schema.columns import Columns
from resources.decode.block import Decoded, Decoder, Payloads, filtered
from resources.decode.convert import Fitting
from resources.decode.debezium.connect_schema import Plan, as_json, plan
from resources.decode.debezium.events import JsonDocuments
from resources.decode.json.rows import Reject
from resources.decode.paths.columns import MappedFitting
from resources.duckdb_engine.arrow_types import schema, staged_type

__all__ = ["ConnectDecoder"]

_MOST_PLANS = 64


@dataclass
class _Rows:
    """Rows of one schema: positions of their payloads, and values of the schema's fields."""

    plan: Plan
    at: list[int] = field(default_factory=list)
    values: list[list[Any]] = field(default_factory=list)


class ConnectDecoder:
    """Decodes records of the members `schema` and `payload`; the schema gives the types.

    A record whose schema is null is decoded as JSON without one. Members of the schema without a column are reported as new
    columns, with the schema's types.

    Args:
        kind: the format.
        columns: the payload columns.
        plain: decoder of payloads without a schema.

    Raises:
        InvalidPipeline: a default of the mapping is not a value of its column's type.
    """

    takes_nulls = False

    def __init__(self, kind: Format, columns: Columns, plain: Decoder) -> None:
        self._columns, self._mapping, self._plain = columns, kind.mapping, plain
        self._documents = JsonDocuments(plan, enveloped=True)
        self._fittings: OrderedDict[int, tuple[Plan, Fitting | MappedFitting]] = OrderedDict()

    def decode(self, payloads: Payloads, keys: pa.Array | None = None) -> Decoded:
        """See `Decoder`."""
        rejects: list[tuple[int, str]] = []
        groups: OrderedDict[int, _Rows] = OrderedDict()
        texts: list[tuple[int, bytes]] = []
        for at, value, found in self._documents.read(payloads):
            try:
                if isinstance(value, Reject):
                    raise value
                if not isinstance(value, Mapping):
                    raise Reject(f"payload: {'null' if value is None else as_json(value)[:40]} is not an object")
                if found is not None and not found.columns:
                    raise Reject("the schema has no fields")
                if found is None:
                    texts.append((at, as_json(value).encode()))
                    continue
                row = found.row(value)
            except Reject as error:
                rejects.append((at, str(error)))
                continue
            group = groups.setdefault(id(found), _Rows(found))
            group.at.append(at)
            group.values.append(row)
        parts = [self._of_schema(group, rejects) for group in groups.values()]
        if texts:
            parts.append(self._without_schema(texts, rejects))
        new = Columns()
        for _, _, more in parts:
            new = new.joined(more, apart=True)
        places = np.concatenate([np.zeros(0, np.int64), *(held for _, held, _ in parts)])
        table = pa.concat_tables([made for made, _, _ in parts]) if parts else schema(self._columns).empty_table()
        order = np.argsort(places, kind="stable")
        if len(parts) > 1:
            places, table = places[order], table.take(pa.array(order)) if table.num_columns else table
        kept = None if len(places) == len(payloads) else places.tolist()
        return Decoded(table, len(places), kept, sorted(rejects), new)

    def _of_schema(self, group: _Rows, rejects: list[tuple[int, str]]) -> tuple[pa.Table, np.ndarray[Any, Any], Columns]:
        """Return the rows of one schema, their positions, and the new columns."""
        fitting = self._fitting(group.plan)
        arrays = [
            pa.array([row[at] for row in group.values], staged_type(kind)) for at, (_, kind) in enumerate(group.plan.columns)
        ]
        table, reasons = fitting.fit(arrays, len(group.values))
        held = np.asarray(group.at, np.int64)
        if reasons:
            rejects += [(group.at[row], why) for row, why in reasons.items()]
            good = np.ones(len(held), bool)
            good[list(reasons)] = False
            held, table = held[good], filtered(table, good)
        return table, held, fitting.every if len(held) else Columns()

    def _without_schema(
        self, texts: list[tuple[int, bytes]], rejects: list[tuple[int, str]]
    ) -> tuple[pa.Table, np.ndarray[Any, Any], Columns]:
        """Return the rows of payloads without a schema, as `_of_schema` does."""
        part = self._plain.decode(Payloads.of([text for _, text in texts]))
        at = np.asarray([place for place, _ in texts], np.int64)
        rejects += [(int(at[index]), why) for index, why in part.rejects]
        return part.table, at if part.kept is None else at[np.asarray(part.kept, np.int64)], part.new_columns

    def _fitting(self, wanted: Plan) -> Fitting | MappedFitting:
        """Return the conversion of a schema's columns; a few schemas are kept, as JsonDocuments keeps them."""
        found = self._fittings.get(id(wanted))
        if found is None:
            made: Fitting | MappedFitting = Fitting(wanted.columns, self._columns)
            if self._mapping is not None:
                made = MappedFitting(wanted.columns, self._columns, self._mapping)
            found = self._fittings[id(wanted)] = wanted, made
            if len(self._fittings) > _MOST_PLANS:
                self._fittings.popitem(last=False)
        return found[1]
