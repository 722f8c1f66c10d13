"""Find the version that a commit made in a Delta table's log, query it, and search rows of a version."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import DeltaError

from kpipe.errors import DestinationError
from kpipe.provenance.facts import Query, Snapshot
from resources.destinations.delta.log import DeltaState, entry_name, transaction
from resources.destinations.lakehouse.folder import Folder
from resources.destinations.lakehouse.row_search import Condition, filtered
from resources.duckdb_engine.sandbox import quote

__all__ = ["DeltaTimeTravel"]

_ENTRY = re.compile(r"([0-9]{20})\.json")


class DeltaTimeTravel:
    """The methods of `DeltaLake` that read earlier versions or single rows."""

    _folder: Folder

    def matching(self, state: DeltaState, names: Sequence[str], where: Sequence[Condition], limit: int | None) -> Any:
        """Return these columns of the rows that match; see `Table.matching`."""
        # Not by a filter on the library's Arrow dataset: it leaves out files without bounds of a column, such as long texts
        # (deltalake 1.6.6). The query engine gets numbers only, so that no value is part of a statement.
        needed = list(dict.fromkeys([*names, *(name for name, _, _ in where)]))
        numbers = [(name, operator, value) for name, operator, value in where if type(value) is int]
        columns = ", ".join(quote(name) for name in needed)
        conditions = " AND ".join(f"{quote(name)} {operator.replace('==', '=')} {value}" for name, operator, value in numbers)
        statement = f"SELECT {columns} FROM t" + (f" WHERE {conditions}" if conditions else "")  # noqa: S608 - quoted, and numbers
        found: list[pa.Table] = []
        count = 0
        try:
            reader = pa.RecordBatchReader.from_stream(QueryBuilder().register("t", state.opened()).execute(statement))
            for part in reader:
                if limit is not None and count >= limit:
                    break
                found.append(filtered(_plain(pa.table(part)), where, limit))
                count += found[-1].num_rows
            empty = _plain(reader.schema.empty_table())
        except (DeltaError, OSError, ValueError) as error:
            raise DestinationError(f"Delta {self._folder.place} cannot be read: {self._folder.hide(str(error))}") from None
        return pa.concat_tables([empty, *found]).slice(0, limit).select(list(names))

    def landed(self, state: DeltaState, pipeline: str, seqs: Collection[int]) -> Mapping[int, Snapshot]:
        """Return the versions that these commits made; see `Table.landed`.

        Each version of a pipeline's commit has a higher number than the one before, so the log is searched by halves.
        """
        if not seqs:
            return {}
        matches = map(_ENTRY.fullmatch, self._folder.names("_delta_log"))
        known = sorted(version for match in matches if match and (version := int(match[1])) <= state.version)
        read: dict[int, int | None] = {}

        def seq_of(version: int) -> int | None:
            if version not in read:
                read[version] = _seq(self._folder, version, transaction(pipeline, "seq"))
            return read[version]

        found = {seq: _search(known, seq, seq_of) for seq in sorted(set(seqs))}
        return {seq: Snapshot(at, seq) for seq, at in found.items() if at is not None and _is_readable(self._folder, at)}

    def queries(self, state: DeltaState | None, snapshot: Snapshot, condition: str) -> Sequence[Query]:
        """Return queries of a version; see `Table.queries`."""
        del state
        place, version = self._folder.place, snapshot.id
        where = f" WHERE {condition}" if condition else ""
        literal, quoted = place.replace("'", "''"), place.replace("`", "``")
        python = f"deltalake.DeltaTable({place!r}, version={version})"
        if condition:
            query = f"SELECT * FROM t{where}"  # noqa: S608 - the text is printed
            python = f"deltalake.QueryBuilder().register('t', {python}).execute({query!r}).read_all()"
        attached = f"SELECT * FROM as_of AT (VERSION => {version}){where}"  # noqa: S608 - a number
        return (
            Query("DuckDB", f"ATTACH '{literal}' AS as_of (TYPE delta); {attached}"),
            Query("Spark SQL", f"SELECT * FROM delta.`{quoted}` VERSION AS OF {version}{where}"),  # noqa: S608 - quoted
            Query("Python", python),
        )


def _plain(table: pa.Table) -> pa.Table:
    """Return the table with types that can be compared: the query engine returns views of texts and bytes."""
    views = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
    return table.cast(pa.schema([field.with_type(views.get(field.type, field.type)) for field in table.schema]))


def _is_readable(folder: Folder, version: int) -> bool:
    """Return whether the log still describes the version: its earlier entries may have been cleaned up."""
    try:
        DeltaTable(folder.place, version=version, storage_options=folder.options())
    except (DeltaError, OSError, ValueError):
        return False
    return True


def _seq(folder: Folder, version: int, name: str) -> int | None:
    """Return the pipeline's sequence number in a log entry; None: another writer made it, or it was cleaned up."""
    for line in (folder.read(entry_name(version)) or b"").splitlines():
        said = json.loads(line).get("txn")
        if said is not None and said["appId"] == name:
            return int(said["version"])
    return None


def _search(known: Sequence[int], seq: int, seq_of: Any) -> int | None:
    """Return the version of a commit, by bisection over versions, some of which are of other writers."""
    low, high = 0, len(known) - 1
    while low <= high:
        middle = at = (low + high) // 2
        while at >= low and seq_of(known[at]) is None:
            at -= 1
        if at < low:
            low = middle + 1
            continue
        number = seq_of(known[at])
        if number == seq:
            return known[at]
        if number < seq:
            low = middle + 1
        else:
            high = at - 1
    return None
