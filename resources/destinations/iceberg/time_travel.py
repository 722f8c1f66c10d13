"""Find the snapshot that a commit made in an Iceberg table, query it, and search rows of the current one."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import date, datetime, time
from typing import Any

from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, EqualTo, GreaterThanOrEqual, LessThan

from kpipe.provenance.facts import Query, Snapshot
from resources.destinations.iceberg.state import KEY, IcebergState
from resources.destinations.lakehouse.ledger_file import Pointer
from resources.destinations.lakehouse.row_search import Condition, filtered

__all__ = ["IcebergTimeTravel"]

_OPERATORS: dict[str, Any] = {"==": EqualTo, ">=": GreaterThanOrEqual, "<": LessThan}


class IcebergTimeTravel:
    """The methods of `IcebergLake` that read earlier snapshots or single rows."""

    def matching(self, state: IcebergState, names: Sequence[str], where: Sequence[Condition], limit: int | None) -> Any:
        """Return these columns of the rows that match; see `Table.matching`."""
        needed = tuple(dict.fromkeys([*names, *(name for name, _, _ in where)]))
        condition: BooleanExpression = AlwaysTrue()
        for name, operator, value in where:
            text = value.isoformat() if isinstance(value, (date, datetime, time)) else value
            condition = And(condition, _OPERATORS[operator](name, text))
        found = state.table.scan(row_filter=condition, selected_fields=needed, limit=limit).to_arrow()
        return filtered(found, where, limit).select(list(names))

    def landed(self, state: IcebergState, pipeline: str, seqs: Collection[int]) -> Mapping[int, Snapshot]:
        """Return the oldest remaining snapshots of main with these commits as the pipeline's newest; see `Table.landed`."""
        meta, found = state.table.metadata, dict[int, Snapshot]()
        snapshot = meta.current_snapshot()
        while snapshot is not None:  # kpipe keeps some 256 snapshots
            said = snapshot.summary.additional_properties if snapshot.summary is not None else {}
            pointer = Pointer.read(said.get(f"{KEY}{pipeline}"))
            if pointer is not None and pointer.seq in seqs:
                found[pointer.seq] = Snapshot(snapshot.snapshot_id, pointer.seq)
            parent = snapshot.parent_snapshot_id
            snapshot = meta.snapshot_by_id(parent) if parent is not None else None
        return found

    def queries(self, state: IcebergState | None, snapshot: Snapshot, condition: str) -> Sequence[Query]:
        """Return queries of a snapshot; see `Table.queries`.

        DuckDB reads the table's current metadata file. Spark needs a catalogue with the name `kpipe`, Python one as `catalog`.
        """
        if state is None:
            return ()
        where = f" WHERE {condition}" if condition else ""
        file = state.table.metadata_location.removeprefix("file://").replace("'", "''")
        names = [*state.table.name()]
        table = ".".join("`" + name.replace("`", "``") + "`" for name in ("kpipe", *names))
        chosen = f"row_filter={condition!r}, " if condition else ""
        scan = f"iceberg_scan('{file}', snapshot_from_id => {snapshot.id})"
        return (
            Query("DuckDB", f"SELECT * FROM {scan}{where}"),  # noqa: S608 - quoted
            Query("Spark SQL", f"SELECT * FROM {table} VERSION AS OF {snapshot.id}{where}"),  # noqa: S608 - quoted
            Query("Python", f"catalog.load_table({'.'.join(names)!r}).scan({chosen}snapshot_id={snapshot.id})"),
        )
