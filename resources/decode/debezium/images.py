"""Convert rows of change events to the columns of a table, and mark the values that an update left out."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from kpipe.definition.formats import Format
from kpipe.errors import InvalidPipeline
from kpipe.schema.columns import Columns, Type
from kpipe.tables.changes import UNCHANGED, marks
from resources.decode.block import Decoded, Payloads
from resources.decode.convert import Fitting
from resources.decode.debezium.connect_schema import Plan, as_json
from resources.decode.debezium.envelopes import Image
from resources.decode.debezium.events import unavailable_values
from resources.decode.debezium.semantic_types import Convert, semantic
from resources.decode.json.decoder import JsonDecoder
from resources.decode.json.rows import Reject
from resources.duckdb_engine.arrow_types import schema, staged_type

__all__ = ["Images", "declared_types"]

_MOST_PLANS = 64
_SHORT = 10_000  # characters of names that are remembered


def declared_types(kind: Format) -> dict[str, tuple[Type, Convert]]:
    """Return the semantic types that `format.types` declares, by column in lower case.

    Raises:
        InvalidPipeline: a name is not a semantic type.
    """
    found = {}
    for name, text in kind.types.items():
        try:
            one = semantic(text, {})
        except Reject as error:
            raise InvalidPipeline(
                f"format.types.{name}: {text}: {error}", "write its name with the scale: ...Decimal(2)"
            ) from None
        if one is None:
            raise InvalidPipeline(
                f"format.types.{name}: unknown semantic type {text!r}",
                "write a name such as io.debezium.time.MicroTimestamp, org.apache.kafka.connect.data.Decimal(2) or bytes",
            )
        found[name.lower()] = one
    return found


@dataclass
class _Rows:
    """Rows of one schema: positions of their payloads, and images."""

    plan: Plan | None
    at: list[int] = field(default_factory=list)
    images: list[Image] = field(default_factory=list)


class Images:
    """Converter of images to the columns of a table.

    Args:
        kind: the format.
        columns: the columns.
        grows: whether the table gets a column for each other member.
    """

    def __init__(self, kind: Format, columns: Columns, grows: bool = False) -> None:
        self._columns, self._grows = columns, grows
        self._declared = declared_types(kind)
        self._unavailable = unavailable_values(kind.unavailable)
        self._fittings: OrderedDict[int, tuple[Plan, Fitting]] = OrderedDict()
        named = [(name, item) for name, item in columns if name.lower() in self._declared]
        self._typed = Columns(tuple(named))
        self._folded = frozenset((*self._declared, *(name.lower() for name in columns.names())))
        self._json = JsonDecoder(columns.without(self._declared))

    def table(self, rows: Sequence[tuple[int, Image]], count: int) -> Decoded:
        """Return the rows with the column `UNCHANGED`; `kept` and `rejects` have the positions of `rows`.

        Args:
            rows: position and image, in the order of the positions.
            count: payloads of the block.
        """
        groups: OrderedDict[int, _Rows] = OrderedDict()
        for at, image in rows:
            group = groups.setdefault(id(image.plan), _Rows(image.plan))
            group.at.append(at)
            group.images.append(image)
        parts, kept, rejects, new = [], [], list[tuple[int, str]](), Columns()
        for group in groups.values():
            make = self._planned if group.plan is not None else self._plain
            table, good, bad, more = make(group)
            parts.append(table)
            kept.append(np.asarray(group.at, np.int64)[good])
            rejects += [(group.at[index], why) for index, why in bad.items()]
            new = new.joined(more, apart=True)
        if not parts:
            return Decoded(self._empty(), 0, [])
        places, table = np.concatenate(kept), pa.concat_tables(parts)
        if len(parts) > 1:
            order = np.argsort(places, kind="stable")
            places, table = places[order], table.take(pa.array(order))
        whole = len(places) == count
        return Decoded(table, len(places), None if whole else places.tolist(), sorted(rejects), new)

    def _empty(self) -> pa.Table:
        return schema(self._columns).empty_table().append_column(UNCHANGED, pa.array([], pa.string()))

    def _planned(self, group: _Rows) -> tuple[pa.Table, np.ndarray[Any, Any], dict[int, str], Columns]:
        plan = group.plan
        assert plan is not None
        fitting = self._fitting(plan)
        names, bad = plan.columns.names(), dict[int, str]()
        values: list[list[Any]] = []
        held, flags = [], []
        for index, image in enumerate(group.images):
            kept = self._kept(image.values)
            row = image.values if not kept else {name: item for name, item in image.values.items() if name not in kept}
            try:
                values.append(plan.row(row))
            except Reject as error:
                bad[index] = str(error)
                continue
            held.append(index)
            flags.append(self._marks(kept))
        arrays = [
            pa.array([row[at] for row in values], staged_type(kind)) for at, (_, kind) in enumerate(plan.columns)
        ] or [pa.nulls(len(values))] * len(names)  # fmt: skip
        table, reasons = fitting.fit(arrays, len(values))
        for row_at, why in reasons.items():
            bad[held[row_at]] = why
        return self._good(table, np.asarray(held, np.int64), flags, bad, fitting.every if values else Columns())

    def _plain(self, group: _Rows) -> tuple[pa.Table, np.ndarray[Any, Any], dict[int, str], Columns]:
        """Convert images without a schema: as JSON, but for the declared types.

        A schema cannot have two names that differ by case only; here each image is checked.
        """
        texts, bad = list[bytes](), dict[int, str]()
        flags = list[str | None]()
        typed: dict[str, list[Any]] = {name: [] for name in self._declared}
        spelled: dict[str, str] = {}
        for index, image in enumerate(group.images):
            names = tuple(image.values)
            twin = (_twin if sum(map(len, names)) <= _SHORT else _twin.__wrapped__)(names, self._folded)
            if twin is not None:
                bad[index] = f"member {twin[:40]} differs from a column by case only"
            values = image.values if twin is None else {}
            kept, rest = self._kept(values), dict[str, Any]()
            found = dict.fromkeys(typed)
            for name, item in values.items():
                if name.lower() not in typed:
                    rest[name] = None if name in kept else item
                    continue
                spelled.setdefault(name.lower(), name)
                try:
                    found[name.lower()] = None if item is None or name in kept else self._declared[name.lower()][1](item)
                except Reject as error:
                    bad.setdefault(index, f"{name[:40]}: {error}")
            for name, value in found.items():
                typed[name].append(value)
            texts.append(as_json(rest).encode())
            flags.append(self._marks(kept))
        decoded = self._json.decode(Payloads.of(texts))
        bad = {**dict(decoded.rejects), **bad}
        good = np.arange(len(texts)) if decoded.kept is None else np.asarray(decoded.kept, np.int64)
        natural = Columns(tuple((spelled.get(name, name), kind) for name, (kind, _) in self._declared.items()))
        fitting = Fitting(natural, self._typed)
        arrays = [pa.array(typed[name.lower()], staged_type(kind)) for name, kind in natural]
        table, reasons = fitting.fit(arrays, len(texts)) if natural else (pa.table({}), dict[int, str]())
        bad = {**reasons, **bad}
        take = pa.array(good)
        columns = {name: table.column(name).take(take) for name in self._typed.names()}
        columns |= dict(zip(decoded.table.column_names, decoded.table.columns, strict=True))
        names = self._columns.names()
        whole = pa.table([columns[name] for name in names], names=list(names)) if names else pa.table({})
        new = decoded.new_columns.joined(Columns(tuple((n, k) for n, k in fitting.every if n.lower() in spelled)))
        return self._good(whole, good, [flags[at] for at in good.tolist()], bad, new)

    def _good(
        self, table: pa.Table, held: np.ndarray[Any, Any], flags: Sequence[str | None], bad: dict[int, str], new: Columns
    ) -> tuple[pa.Table, np.ndarray[Any, Any], dict[int, str], Columns]:
        """Add the column of unchanged values, and leave out rows with a reason."""
        table = pa.table([*table.columns, pa.array(flags, pa.string())], names=[*table.column_names, UNCHANGED])
        stay = ~np.isin(held, list(bad))
        return (table if stay.all() else table.filter(pa.array(stay))), held[stay], bad, new

    def _kept(self, values: Mapping[str, Any]) -> set[str]:
        """Return the members whose value did not change and is not in the event."""
        return {name for name, item in values.items() if item is not None and self._unavailable(item)}

    def _marks(self, kept: set[str]) -> str | None:
        """Return the value of `UNCHANGED`. A column that the table does not have yet has a value in the source, too."""
        return marks(name for name in kept if name in self._columns or (self._grows and not name.lower().startswith("_kafka_")))

    def _fitting(self, plan: Plan) -> Fitting:
        found = self._fittings.get(id(plan))
        if found is None:
            found = self._fittings[id(plan)] = plan, Fitting(plan.columns, self._columns)
            if len(self._fittings) > _MOST_PLANS:
                self._fittings.popitem(last=False)
        return found[1]


@lru_cache(maxsize=256)
def _twin(names: tuple[str, ...], columns: frozenset[str]) -> str | None:
    """Return a name that differs by case only from an earlier one, if a column has it; None: each column has one member."""
    seen = set[str]()
    for name in names:
        folded = name.lower()
        if folded in seen and folded in columns:
            return name
        seen.add(folded)
    return None
