"""Find the snapshot that a commit made in an Iceberg table, query it, and search rows of the current one."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import date, datetime, time
from typing import Any

from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, EqualTo, GreaterThanOrEqual, LessThan
from pyiceberg.table.snapshots import ancestors_of

from kpipe.provenance.facts import Query, Snapshot
from resources.destinations.iceberg.state import KEY, MADE_BY, IcebergState
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
        """Return the snapshots of main that these commits of the pipeline made, if they remain; see `Table.landed`.

        Compactions and commits of other pipelines repeat the pipeline's pointer. An earlier kpipe did not mark a commit's own
        snapshot: it counts if the one before it remains, and has another pointer.
        """
        meta, found, unmarked = state.table.metadata, dict[int, Snapshot](), list[Snapshot]()
        for snapshot in ancestors_of(meta.current_snapshot(), meta):  # newest first; kpipe keeps some 256
            said = snapshot.summary.additional_properties if snapshot.summary is not None else {}
            if not any(name.startswith(KEY) for name in said):
                continue
            pointer = Pointer.read(said.get(f"{KEY}{pipeline}"))
            seq = pointer.seq if pointer is not None else 0
            found.update({item.seq: item for item in unmarked if item.seq != seq})
            unmarked.clear()
            if seq in seqs and said.get(MADE_BY, pipeline) == pipeline:
                made = Snapshot(snapshot.snapshot_id, seq)
                if MADE_BY in said:
                    found[seq] = made
                else:
                    unmarked.append(made)
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
