"""Read lookups on the driver: once a run, and again before a batch when they are older than `refresh_s`."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import duckdb
import pyarrow as pa

from kpipe.definition.lookups import Lookup, Version
from kpipe.definition.pipeline import Pipeline
from kpipe.errors import InvalidPipeline, NotAvailable
from kpipe.expressions.mysql.function_list import is_name
from kpipe.expressions.projection import Selection
from kpipe.schema.columns import Columns, Scalar, Type
from resources.duckdb_engine import in_memory
from resources.duckdb_engine.arrow_types import staged_type
from resources.duckdb_engine.column_casts import NotCoercible, coercion
from resources.duckdb_engine.expressions import described
from resources.lookups.file_source import chosen, too_large, unpacked
from resources.lookups.http_source import KINDS, Web
from resources.lookups.reference_table import Here, LookupRows, Reference, packed
from resources.lookups.table_source import Asking, check_query
from transforms.preflight import opened

__all__ = ["Lookups", "no_tables"]


def no_tables(name: str, lookup: Lookup, _: Sequence[str]) -> pa.Table:
    """Raise the error for lookups where no destination is available."""
    raise NotAvailable(f"lookups.{name}: {lookup.describe()} cannot be queried here", "name a file")


class Lookups:
    """Lookups that a pipeline's expressions call.

    Args:
        pipeline: the definition.
        selection: its expressions.
        `ask`: queries the destination.
        environ: values for templates of credentials.
        clock: seconds.

    Raises:
        InvalidPipeline: an invalid definition, or a variable that is not set.
        NotAvailable: a table of a destination that cannot be queried.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        selection: Selection | None,
        ask: Asking = no_tables,
        environ: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ask, self._clock = ask, clock
        self._wanted: dict[str, list[str]] = {}
        for call in selection.calls if selection is not None else ():
            mine = self._wanted.setdefault(call.lookup, list(pipeline.lookups[call.lookup].keys))
            mine += [name for name in call.members if name.lower() not in map(str.lower, mine)]
        self._lookups = {name: pipeline.lookups[name] for name in self._wanted}
        self._webs: dict[str, Web] = {}
        for name, lookup in self._lookups.items():
            _check_name(name)
            check_query(pipeline, name, lookup)
            if lookup.kind == "url":
                self._webs[name] = Web.of(name, lookup, environ)
        self._read: dict[str, tuple[float, Reference]] = {}
        self._batch = ""

    def check_files(self) -> None:
        """Read local files, to report their errors before anything starts.

        Raises:
            InvalidPipeline: a file cannot be read, or is malformed.
        """
        for name, lookup in self._lookups.items():
            if lookup.path is not None:
                self._reference(name, lookup)

    def of_batch(self, batch: str) -> Mapping[str, LookupRows]:
        """Return the lookups of that batch; the same versions each time it is staged.

        Raises:
            InvalidPipeline: a lookup cannot be read, lacks a column, or has a key that is NULL or duplicate.
            LookupFailed, CredentialsRefused: its server.
            KpipeError: the destination.
        """
        fresh = batch != self._batch
        for name, lookup in self._lookups.items():
            entry = self._read.get(name)
            old = entry is not None and lookup.refresh_s is not None and self._clock() - entry[0] >= lookup.refresh_s
            if entry is None or (old and fresh):
                self._read[name] = self._clock(), self._reference(name, lookup)
        self._batch = batch
        return {name: Here(reference) for name, (_, reference) in self._read.items()}

    def _reference(self, name: str, lookup: Lookup) -> Reference:
        moment = int(time.time() * 1000)
        wanted = self._wanted[name]
        where = f"lookups.{name}: {lookup.describe()}"
        digest = ""
        if lookup.kind in ("table", "query"):
            content = self._ask(name, lookup, wanted)
        else:
            data, file, kind = self._file(name, lookup)
            digest = hashlib.sha256(data).hexdigest()
            try:
                content = unpacked(name, lookup, kind, data, wanted, file)
            except OverflowError:
                raise too_large(name, lookup) from None
        table, columns = _typed(where, content.select(chosen(where, content.column_names, wanted)))
        if table.nbytes > lookup.max_mb << 20:
            raise too_large(name, lookup)
        keys = len(lookup.keys)
        _check_keys(where, table, columns, keys)
        # Sorted by key: a table has no order, and the same rows must give the same version.
        table = table.sort_by([(column, "ascending") for column in columns.names()[:keys]])
        rows = packed(table)
        version = Version(digest or hashlib.sha256(rows).hexdigest(), table.num_rows, moment)
        return Reference(name, keys, columns, lookup.required, version, rows)

    def _file(self, name: str, lookup: Lookup) -> tuple[bytes, str, str]:
        """Return content, name and format."""
        if lookup.path is not None:
            file, kind = lookup.path, lookup.format_of(lookup.path)
            if kind is None:
                raise _unknown(name, f"the file name {file} does not contain it")
            with opened(file, Path.cwd(), f"lookups.{name}.path") as (_, content):
                if os.fstat(content.fileno()).st_size > lookup.max_mb << 20:
                    raise too_large(name, lookup)
                return content.read(), file, kind
        answer = self._webs[name].fetch()
        file = urlsplit(str(lookup.url)).path
        kind = lookup.format or KINDS.get(answer.type) or lookup.format_of(file)
        if kind is None:
            raise _unknown(name, f"neither its path nor its Content-Type ({answer.type[:60] or 'none'}) contains it")
        return answer.body, ".tsv" if answer.type == "text/tab-separated-values" else file, kind


def _check_name(name: str) -> None:
    functions = in_memory.ask("SELECT count(*) FROM duckdb_functions() WHERE lower(function_name) = $1", [name.lower()])
    if functions or is_name(name):
        raise InvalidPipeline(f"lookups.{name}: {name} is a function", "rename the lookup")


def _unknown(name: str, why: str) -> InvalidPipeline:
    return InvalidPipeline(f"lookups.{name}: unknown format: {why}", f"write lookups.{name}.format: csv, json or parquet")


def _typed(where: str, table: pa.Table) -> tuple[pa.Table, Columns]:
    """Convert the columns to kpipe's types, and to their staged form.

    Raises:
        InvalidPipeline: a column has an unsupported type.
    """
    have = described(table)
    parts: list[str] = []
    kinds: list[tuple[str, Type]] = []
    for at, (name, (said, kind)) in enumerate(zip(table.column_names, have, strict=True)):
        if kind is None:
            raise InvalidPipeline(f"{where}: {name} has type {said}, which no column can have", "CAST it where it comes from")
        try:
            value, bad = coercion(said, kind)
        except NotCoercible as error:
            raise InvalidPipeline(f"{where}: {name}: {error}", "CAST it where it comes from") from None
        parts.append(f"{value.format(f'c{at}')} AS c{at}")
        if bad:
            parts[-1] = f"CASE WHEN {bad.format(f'c{at}')} THEN error('{_LOSSY}') ELSE {value.format(f'c{at}')} END AS c{at}"
        kinds.append((name, kind))
    renamed = table.rename_columns([f"c{at}" for at in range(table.num_columns)])
    try:
        found = in_memory.query(f"SELECT {', '.join(parts)} FROM block", renamed)  # noqa: S608 - our own names
    except duckdb.InvalidInputException as error:
        raise InvalidPipeline(f"{where}: {_LOSSY}", "CAST it where it comes from") from error
    columns = Columns(tuple(kinds))
    arrays = [found.column(at).cast(staged_type(kind)) for at, (_, kind) in enumerate(columns)]
    return pa.table(arrays, names=list(columns.names())).combine_chunks(), columns


_LOSSY = "a value cannot be kept without loss"


def _check_keys(where: str, table: pa.Table, columns: Columns, keys: int) -> None:
    """Check that no key is NULL or duplicate: a lookup returns at most one row for a record.

    Raises:
        InvalidPipeline: a key is; the message contains it.
    """
    names = columns.names()[:keys]
    nested = [name for name, kind in columns.items[:keys] if not isinstance(kind, Scalar)]
    if nested:
        raise InvalidPipeline(
            f"{where}: {nested[0]}: not a type of a key: {columns.get(nested[0])}", "a key is text, a number or a time"
        )
    for name in names:
        if table.column(name).null_count:
            raise InvalidPipeline(f"{where}: the key {name} is NULL in a row", "leave such rows out, or name another key")
    places = [f"k{at}" for at in range(keys)]
    block = table.select(list(range(keys))).rename_columns(places)
    shown = ", ".join(f"CAST({place} AS VARCHAR) AS {place}" for place in places)
    groups = ", ".join(f"block.{place}" for place in places)
    sql = f"SELECT {shown}, count(*) AS n FROM block GROUP BY {groups} HAVING count(*) > 1 LIMIT 1"  # noqa: S608 - our own names
    twice = in_memory.query(sql, block).to_pylist()
    if twice:
        key = ", ".join(f"{name} {str(twice[0][place])[:40]!r}" for name, place in zip(names, places, strict=True))
        raise InvalidPipeline(
            f"{where}: duplicate key {key}: expected one row, found {twice[0]['n']}",
            "remove all but one, or add a column to the key",
        )
