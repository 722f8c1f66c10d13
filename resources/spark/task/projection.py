"""Apply WHERE, computed columns and constraints to decoded rows.

A pipeline without any of these has no selector: its blocks go from the decoder to the output directly.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from kpipe.column_growth import names_in
from kpipe.definition.formats import VARIABLE
from kpipe.expressions.projection import COORDINATES, Selection
from kpipe.schema.columns import Columns, Type
from kpipe.tables.changes import UNCHANGED
from resources.decode.block import Decoded, filtered
from resources.duckdb_engine.arrow_types import staged_type
from resources.duckdb_engine.expressions import Assigned, Evaluator
from resources.lookups.join import Join
from resources.lookups.reference_table import LookupRows as Lookup
from resources.spark.task.kept_values import missing, settled
from resources.spark.task.nul_check import may_hold_nul, nul_reasons
from resources.spark.task.projection_plan import Shape
from resources.spark.task.task_spec import TableSpec
from resources.spark.task.unnest import Lists, bounded

__all__ = ["Selector", "inputs_of", "selector"]

_COORDINATES = Columns.of(
    dict(
        zip(
            COORDINATES,
            ("INTEGER", "BIGINT", "TIMESTAMP WITH TIME ZONE", "VARCHAR", "BLOB", "STRUCT(name VARCHAR, value BLOB)[]"),
            strict=True,
        )
    )
)
_HEADERS = Columns(tuple(item for item in _COORDINATES if item[0] == "_kafka_headers"))
#: Returns one of Kafka's coordinates for the payloads at these positions.
Coordinate = Callable[[str, "np.ndarray[Any, Any]"], pa.Array]


def selector(table: TableSpec, lookups: Mapping[str, Lookup]) -> Selector | None:
    """Return the selector for a table's rows, or None if they need none.

    Raises:
        InvalidPipeline: an expression does not fit the types of the columns.
    """
    shape = table.shape
    if shape is None:
        return None
    selection = shape.selection
    expressed = selection.where or selection.assigned or selection.only or selection.unnest
    if not (expressed or shape.required or shape.no_nul or shape.reads != table.columns):
        return None
    return Selector(table, lookups)


class Selector:
    """Converter of decoded records to rows of the table. Keeps their order.

    Args:
        table: the table.
        lookups: lookups that expressions call, by name.

    Raises:
        InvalidPipeline: an expression does not fit the types of the columns.
    """

    def __init__(self, table: TableSpec, lookups: Mapping[str, Lookup]) -> None:
        assert table.shape is not None
        shape, selection = table.shape, table.shape.selection
        self._columns, self._required, self._where = table.columns, shape.required, selection.where
        self._no_nul = shape.no_nul
        self._texts = [(name, kind) for name, kind in table.columns if may_hold_nul(kind, shape.no_nul)]
        self._headers = _HEADERS if shape.headers and shape.no_nul else Columns()
        inputs = inputs_of(shape)
        #: Kafka's coordinates that expressions read.
        self.coordinates = [name for name in _COORDINATES.names() if name in inputs]
        self._inputs = inputs.without(_COORDINATES.names())
        self._lists = Lists(selection.unnest, inputs) if selection.unnest is not None else None
        self._elements = self._lists.columns if self._lists is not None else Columns()
        self._width = sum(names_in(kind) for _, kind in (*shape.reads, *inputs, *self._elements))
        #: Names in lower case that expressions read of each row; the list itself is not repeated for its elements.
        self._of_rows = _read_of_rows(selection) if self._lists is not None else frozenset()
        inputs = Columns((*inputs.without(self._elements.names()).items, *self._elements.items))
        assigned = [Assigned(name, text, table.columns.get(name)) for name, text in selection.assigned]
        # Records that WHERE filters make no request to lookups that only computed columns need.
        self._first = Join(selection.calls[: selection.before], lookups, inputs)
        self._then = Join(selection.calls[selection.before :], lookups, self._first.columns)
        self._condition = Evaluator(self._first.columns, selection.where, ())
        self._evaluator = Evaluator(self._then.columns, "", assigned)
        self._outputs = selection.outputs
        self._assigned = {name.lower() for name in selection.targets}
        new = [(name, kind) for name, kind in self._evaluator.columns if name not in table.columns]
        #: Computed columns that the table lacks.
        self.new_columns = Columns(tuple(new))
        self._unknown = [
            (name, kind) for name, kind in self._inputs
            if name not in table.columns
            and name.lower() not in self._assigned
            and not VARIABLE.fullmatch(name)
            and (selection.outputs is None or name.lower() in selection.outputs)
        ]  # fmt: skip

    def apply(self, decoded: Decoded, coordinate: Coordinate) -> Decoded:
        """Return the rows of a block. If one row of a payload fails, all are dropped, and `refused` contains the reason.

        Args:
            decoded: the block's decoded rows.
            coordinate: of the block's records.

        Raises:
            TooManyRows: values of lookups, or copies of columns for UNNEST, take too much memory for several payloads together.
        """
        new = decoded.new_columns.without(self._assigned)
        if self._outputs is not None:
            new = Columns(tuple((name, kind) for name, kind in new if name.lower() in self._outputs))
        if not decoded.rows:
            return replace(decoded, new_columns=new)
        decoded = settled(decoded, self._inputs.names(), self._assigned)
        table, count = decoded.table, decoded.rows
        new = Columns((*new.items, *((name, kind) for name, kind in self._unknown if _any(table, name))))
        payloads = decoded.owners
        inputs = self._input_table(table, count, payloads, coordinate)
        bad: dict[int, str] = {}
        if self._lists is not None:
            rows, elements, bad = self._lists.apart(inputs, payloads)
            table, inputs = _only(table, self._outputs), _only(inputs, self._of_rows)
            rows, elements = bounded([table, inputs], rows, elements, payloads, bad, self._width)
            table, payloads, inputs = table.take(pa.array(rows)), payloads[rows], inputs.take(pa.array(rows))
            count = len(rows)
            for name, array in zip(self._elements.names(), elements, strict=True):
                table, inputs = _with(table, name, array), _with(inputs, name, array)
        reasons: dict[int, str] = {}
        inputs, rows = _joined(self._first, inputs, np.arange(count), payloads, reasons)
        if self._where:
            wanted, errors = self._condition.holds(inputs)
            reasons |= {int(rows[index]): why for index, why in errors.items()}
            if not wanted.all():
                rows, inputs = rows[wanted], inputs.take(pa.array(np.flatnonzero(wanted)))
        inputs, rows = _joined(self._then, inputs, rows, payloads, reasons)
        computed, failed = self._evaluator.values(inputs) if self._assigned else (None, {})
        if failed:
            reasons |= {int(rows[index]): why for index, why in failed.items()}
            good = np.ones(len(rows), bool)
            good[list(failed)] = False
            rows = rows[good]
        made = self._made(table if len(rows) == count else table.take(pa.array(rows)), computed, len(rows))
        for name in self._required:
            for index in missing(made, name):
                reasons.setdefault(int(rows[index]), f"{name}: NULL in a NOT NULL column")
        for index, why in nul_reasons(made, self._texts, self._no_nul).items():
            reasons.setdefault(int(rows[index]), why)
        for row in sorted(reasons):
            bad.setdefault(int(payloads[row]), reasons[row])
        if self._headers:
            places = np.unique(payloads[rows])
            headers = pa.table({name: coordinate(name, places) for name in self._headers.names()})
            for index, why in nul_reasons(headers, self._headers, self._no_nul).items():
                bad.setdefault(int(places[index]), why)
        if bad:
            good = ~np.isin(payloads[rows], list(bad))
            rows, made = rows[good], filtered(made, good)
        whole = len(rows) == count and decoded.kept is None and self._lists is None
        kept = None if whole else payloads[rows].tolist()
        return replace(decoded, table=made, rows=len(rows), kept=kept, new_columns=new, refused=sorted(bad.items()))

    def _input_table(self, table: pa.Table, count: int, payloads: np.ndarray[Any, Any], coordinate: Coordinate) -> pa.Table:
        """Return the columns that expressions read."""
        arrays = [_column(table, name, kind, count) for name, kind in self._inputs]
        arrays += [coordinate(name, payloads) for name in self.coordinates]
        names = [*self._inputs.names(), *self.coordinates]
        return pa.table(arrays, names=names) if names else pa.table([pa.nulls(count, pa.bool_())], names=["__kpipe_none"])

    def _made(self, table: pa.Table, computed: pa.Table | None, count: int) -> pa.Table:
        """Return the table's columns, in its order; missing ones are NULL."""
        arrays = []
        for name, kind in self._columns:
            if computed is not None and name.lower() in self._assigned:
                index = [item.lower() for item in computed.column_names].index(name.lower())
                arrays.append(computed.column(index))
            else:
                arrays.append(_column(table, name, kind, count))
        names = [*self._columns.names(), *(name for name in (UNCHANGED,) if name in table.column_names)]
        return pa.table([*arrays, *(table.column(name) for name in names[len(arrays) :])], names=names)


def inputs_of(shape: Shape) -> Columns:
    """Return the columns that expressions read: the decoder's, followed by Kafka's coordinates."""
    names = {name.lower() for name in shape.selection.names}
    inputs = [(name, kind) for name, kind in shape.reads if name.lower() in names]
    return Columns((*inputs, *((name, _kind(name)) for name in _COORDINATES.names() if name in names)))


def _joined(
    join: Join, inputs: pa.Table, rows: np.ndarray[Any, Any], payloads: np.ndarray[Any, Any], reasons: dict[int, str]
) -> tuple[pa.Table, np.ndarray[Any, Any]]:
    """Join the lookups' answers, drop rows whose lookup failed, and add the reasons of these."""
    inputs, failed = join.apply(inputs, payloads[rows])
    if not failed:
        return inputs, rows
    reasons |= {int(rows[index]): why for index, why in failed.items()}
    good = np.ones(len(rows), bool)
    good[list(failed)] = False
    return inputs.filter(pa.array(good)), rows[good]


def _kind(name: str) -> Type:
    kind = _COORDINATES.get(name)
    assert kind is not None
    return kind


def _column(table: pa.Table, name: str, kind: Type, count: int) -> Any:
    return table.column(name) if name in table.column_names else pa.nulls(count, staged_type(kind))


def _with(table: pa.Table, name: str, array: pa.Array) -> pa.Table:
    """Return the table with that column, replacing a column of the same name."""
    same = [have for have in table.column_names if have.lower() == name.lower()]
    return table.drop_columns(same).append_column(name, array)


def _read_of_rows(selection: Selection) -> frozenset[str]:
    """Return the names in lower case that expressions other than UNNEST read."""
    from kpipe.expressions.languages import names_of

    return frozenset(name.lower() for _, text in selection.says()[1:] for name in names_of(text))


def _only(table: pa.Table, names: Collection[str] | None) -> pa.Table:
    """Return the table with NULL in other columns than these; None: unchanged."""
    if names is None:
        return table
    kept = {*names, UNCHANGED}
    columns = [(name, table.column(name)) for name in table.column_names]
    return pa.table({name: array if name.lower() in kept else pa.nulls(len(table), array.type) for name, array in columns})


def _any(table: pa.Table, name: str) -> bool:
    return name in table.column_names and table.column(name).null_count < table.num_rows
