"""Between decoder and output: which rows are wanted, columns that are computed, and what the table does not take.

A pipeline without any of these has no selector, and its blocks go from the decoder to the output as before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kpipe.definition.formats import VARIABLE
from kpipe.expressions.projection import COORDINATES
from kpipe.schema.columns import Columns, Type
from resources.decode.block import Decoded
from resources.duckdb_engine.arrow_types import staged_type
from resources.duckdb_engine.expressions import Assigned, Evaluator
from resources.lookups.join import Join
from resources.spark.task.nul_check import may_hold_nul, rows_with_nul
from resources.spark.task.projection_plan import Shape
from resources.spark.task.task_spec import Job
from resources.spark.task.unnest import Lists

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
#: Gives one of Kafka's coordinates for the payloads at these positions.
Coordinate = Callable[[str, "np.ndarray[Any, Any]"], pa.Array]


def selector(job: Job) -> Selector | None:
    """What the job's rows go through before they are written; None: nothing.

    Raises:
        InvalidPipeline: an expression does not fit the types of the columns.
    """
    shape = job.shape
    if shape is None:
        return None
    selection = shape.selection
    expressed = selection.where or selection.assigned or selection.only or selection.unnest
    if not (expressed or shape.required or shape.no_nul or shape.reads != job.columns):
        return None
    return Selector(job)


class Selector:
    """Makes rows of the table from decoded records. Order is kept.

    Args:
        job: what the batch's tasks share.

    Raises:
        InvalidPipeline: an expression does not fit the types of the columns.
    """

    def __init__(self, job: Job) -> None:
        assert job.shape is not None
        shape, selection = job.shape, job.shape.selection
        self._columns, self._required, self._where = job.columns, shape.required, selection.where
        self._texts = [(name, kind) for name, kind in job.columns if shape.no_nul and may_hold_nul(kind)]
        inputs = inputs_of(shape)
        self._coordinates = [name for name in _COORDINATES.names() if name in inputs]
        self._inputs = inputs.without(_COORDINATES.names())
        self._lists = Lists(selection.unnest, inputs) if selection.unnest is not None else None
        self._elements = self._lists.columns if self._lists is not None else Columns()
        inputs = Columns((*inputs.without(self._elements.names()).items, *self._elements.items))
        assigned = [Assigned(name, text, job.columns.get(name)) for name, text in selection.assigned]
        # Lookups that only computed columns need are not asked for records that `where` leaves out.
        self._first = Join(selection.calls[: selection.before], job.lookups, inputs)
        self._then = Join(selection.calls[selection.before :], job.lookups, self._first.columns)
        self._condition = Evaluator(self._first.columns, selection.where, ())
        self._evaluator = Evaluator(self._then.columns, "", assigned)
        self._outputs = selection.outputs
        self._assigned = {name.lower() for name in selection.targets}
        new = [(name, kind) for name, kind in self._evaluator.columns if name not in job.columns]
        #: Columns that are computed and that the table lacks.
        self.new_columns = Columns(tuple(new))
        self._unknown = [
            (name, kind) for name, kind in self._inputs
            if name not in job.columns
            and name.lower() not in self._assigned
            and not VARIABLE.fullmatch(name)
            and (selection.outputs is None or name.lower() in selection.outputs)
        ]  # fmt: skip

    def apply(self, decoded: Decoded, coordinate: Coordinate) -> Decoded:
        """The rows of a block. A payload of which one row fails gives none: it is among `refused`, with the reason.

        Args:
            decoded: what the decoder made of the block.
            coordinate: of the block's records.
        """
        new = decoded.new_columns.without(self._assigned)
        if self._outputs is not None:
            new = Columns(tuple((name, kind) for name, kind in new if name.lower() in self._outputs))
        if not decoded.rows:
            return replace(decoded, new_columns=new)
        table, count = decoded.table, decoded.rows
        new = Columns((*new.items, *((name, kind) for name, kind in self._unknown if _any(table, name))))
        payloads = np.arange(count) if decoded.kept is None else np.asarray(decoded.kept, np.int64)
        given = self._given(table, count, payloads, coordinate)
        bad: dict[int, str] = {}
        if self._lists is not None:
            rows, elements, bad = self._lists.apart(given, payloads)
            table, payloads, given = table.take(pa.array(rows)), payloads[rows], given.take(pa.array(rows))
            count = len(rows)
            for name, array in zip(self._elements.names(), elements, strict=True):
                table, given = _with(table, name, array), _with(given, name, array)
        reasons: dict[int, str] = {}
        given, rows = _joined(self._first, given, np.arange(count), reasons)
        if self._where:
            wanted, unsaid = self._condition.holds(given)
            reasons |= {int(rows[at]): why for at, why in unsaid.items()}
            if not wanted.all():
                rows, given = rows[wanted], given.take(pa.array(np.flatnonzero(wanted)))
        given, rows = _joined(self._then, given, rows, reasons)
        computed, failed = self._evaluator.values(given) if self._assigned else (None, {})
        if failed:
            reasons |= {int(rows[at]): why for at, why in failed.items()}
            good = np.ones(len(rows), bool)
            good[list(failed)] = False
            rows = rows[good]
        made = self._made(table if len(rows) == count else table.take(pa.array(rows)), computed, len(rows))
        for name in self._required:
            for at in _nulls(made, name):
                reasons.setdefault(int(rows[at]), f"{name}: NULL, and the column takes none")
        for name, kind in self._texts:
            for at in rows_with_nul(made.column(name), kind):
                reasons.setdefault(int(rows[at]), f"{name}: the character NUL, which the table cannot hold")
        for row in sorted(reasons):
            bad.setdefault(int(payloads[row]), reasons[row])
        if bad:
            good = ~np.isin(payloads[rows], list(bad))
            rows, made = rows[good], made.filter(pa.array(good))
        whole = len(rows) == count and decoded.kept is None and self._lists is None
        return Decoded(
            made, len(rows), None if whole else payloads[rows].tolist(), decoded.rejects, new, refused=sorted(bad.items())
        )

    def _given(self, table: pa.Table, count: int, payloads: np.ndarray[Any, Any], coordinate: Coordinate) -> pa.Table:
        """What the expressions take values from."""
        arrays = [_column(table, name, kind, count) for name, kind in self._inputs]
        arrays += [coordinate(name, payloads) for name in self._coordinates]
        names = [*self._inputs.names(), *self._coordinates]
        return pa.table(arrays, names=names) if names else pa.table([pa.nulls(count, pa.bool_())], names=["__kpipe_none"])

    def _made(self, table: pa.Table, computed: pa.Table | None, count: int) -> pa.Table:
        """The table's columns, in its order; those that nothing gives are NULL."""
        arrays = []
        for name, kind in self._columns:
            if computed is not None and name.lower() in self._assigned:
                place = [item.lower() for item in computed.column_names].index(name.lower())
                arrays.append(computed.column(place))
            else:
                arrays.append(_column(table, name, kind, count))
        return pa.table(arrays, names=list(self._columns.names()))


def inputs_of(shape: Shape) -> Columns:
    """Return what expressions take values from: columns that the decoder gives, and Kafka's coordinates behind them."""
    names = {name.lower() for name in shape.selection.names}
    inputs = [(name, kind) for name, kind in shape.reads if name.lower() in names]
    return Columns((*inputs, *((name, _kind(name)) for name in _COORDINATES.names() if name in names)))


def _joined(
    join: Join, given: pa.Table, rows: np.ndarray[Any, Any], reasons: dict[int, str]
) -> tuple[pa.Table, np.ndarray[Any, Any]]:
    """The rows that lookups answer, with their answers; the reasons of the others are added."""
    given, failed = join.apply(given)
    if not failed:
        return given, rows
    reasons |= {int(rows[at]): why for at, why in failed.items()}
    good = np.ones(len(rows), bool)
    good[list(failed)] = False
    return given.filter(pa.array(good)), rows[good]


def _kind(name: str) -> Type:
    found = _COORDINATES.get(name)
    assert found is not None
    return found


def _column(table: pa.Table, name: str, kind: Type, count: int) -> Any:
    return table.column(name) if name in table.column_names else pa.nulls(count, staged_type(kind))


def _with(table: pa.Table, name: str, array: pa.Array) -> pa.Table:
    """The table with that column; one that is called so gives way."""
    same = [have for have in table.column_names if have.lower() == name.lower()]
    return table.drop_columns(same).append_column(name, array)


def _any(table: pa.Table, name: str) -> bool:
    return name in table.column_names and table.column(name).null_count < table.num_rows


def _nulls(table: pa.Table, name: str) -> list[int]:
    column = table.column(name)
    return pc.indices_nonzero(pc.is_null(column)).to_pylist() if column.null_count else []
