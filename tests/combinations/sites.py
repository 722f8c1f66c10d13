"""Where the rows of an example go: what `into` needs there, and how it is read without kpipe."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import duckdb

from resources.destinations.ducklake.extension import load
from tests.combinations.definition import NAME, Definition
from tests.combinations.found import Found, of_duckdb, of_ducklake, of_lake

__all__ = ["DuckDBSite", "DuckLakeSite", "LakeSite", "Plain", "Site", "create"]

_PROGRAMS = {
    "map": "#!/bin/sh\nexec cat\n",
    "filter": "#!/bin/sh\nexec awk -F'[:,]' '$2 % 3 != 0'\n",
    "flatmap": "#!/bin/sh\nexec awk '{ print; print }'\n",
}
#: The same over Arrow streams: how many rows a record with that id has.
_ROWS = {"filter": "row['id'] % 3 != 0", "flatmap": "2"}
_ARROW = """#!{python}
import json, sys
import pyarrow as pa
names = ("offset", "id", "k", "x", "g", "m")
schema = pa.schema([(name, pa.string() if name == "k" else pa.json_() if name == "x" else pa.int64()) for name in names])
reader = pa.ipc.open_stream(sys.stdin.buffer)
with pa.ipc.new_stream(sys.stdout.buffer, schema) as writer:
    for batch in reader:
        rows = []
        for at, value in zip(batch["offset"].to_pylist(), batch["value"].to_pylist()):
            if value is not None:
                row = json.loads(value)
                text = value.decode().partition('"x":')[2].rpartition(',"g":')[0]
                rows += [{{**row, "offset": at, "x": text}}] * ({rows})
        columns = [pa.array([row.get(name) for row in rows], field.type if name != "x" else pa.string())
                   for name, field in zip(names, schema)]
        columns[3] = pa.ExtensionArray.from_storage(pa.json_(), columns[3])
        writer.write_batch(pa.record_batch(columns, schema=schema))
"""


class Site(Protocol):
    """A destination's place."""

    def into(self, definition: Definition) -> dict[str, Any]:
        """Fields of `into` beside those of the definition."""

    def program(self, definition: Definition) -> str:
        """Path of the definition's program."""

    def prepare(self, definition: Definition) -> None:
        """Make the tables that are there before kpipe comes."""

    def answers(self, answers: Sequence[str]) -> None:
        """How a receiver answers the next requests."""

    def outlive(self) -> None:
        """Let the transaction that is open end by itself."""

    def found(self, tables: Sequence[str], destination: Callable[[], Any]) -> Found:
        """What is there now."""

    def close(self) -> None:
        """Remove what is outside of the example's folder."""


class Plain:
    """What most places have in common.

    Args:
        folder: of the example; `home` in it is KPIPE_HOME.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def into(self, definition: Definition) -> dict[str, Any]:
        """Nothing is needed."""
        return {}

    def program(self, definition: Definition) -> str:
        """A program of a few shell words, written when it is asked for."""
        if not definition.program:
            return ""
        file = self.folder / f"{definition.program}{'_arrow.py' if definition.arrow else '.sh'}"
        if not file.exists():
            text = _PROGRAMS[definition.program]
            if definition.arrow:
                text = _ARROW.format(python=sys.executable, rows=_ROWS[definition.program])
            file.write_text(text)
            file.chmod(0o700)
        return str(file)

    def prepare(self, definition: Definition) -> None:
        """Nothing is there before."""

    def answers(self, answers: Sequence[str]) -> None:
        """Nobody answers."""

    def outlive(self) -> None:
        """No transaction has a limit."""

    def close(self) -> None:
        """Everything is in the folder."""


def create(definition: Definition, **types: str) -> str:
    """CREATE TABLE of a table that is there before kpipe comes; types that the server names otherwise are given."""
    columns = [f"{name} {types.get(kind, kind)}" for name, kind in definition.columns.items()]
    if definition.prepared == "check":
        columns = [f"{column} CHECK (g < 100)" if column.startswith("g ") else column for column in columns]
    if definition.prepared == "default":
        columns.append("n INTEGER DEFAULT 7")
    return f"CREATE TABLE IF NOT EXISTS {definition.table} ({', '.join(columns)})"


class DuckDBSite(Plain):
    """The home's own DuckDB file."""

    @property
    def path(self) -> Path:
        """The file."""
        return self.folder / "home" / "data" / "kpipe.duckdb"

    def prepare(self, definition: Definition) -> None:
        """The table, if the definition wants one."""
        if definition.prepared:
            with duckdb.connect(str(self.path)) as database:
                database.execute(create(definition))

    def found(self, tables: Sequence[str], destination: Callable[[], Any]) -> Found:
        """By SQL."""
        return of_duckdb(self.path, *tables)


class DuckLakeSite(Plain):
    """The home's own DuckLake; it needs a DuckDB that an extension fits (`make ducklake`)."""

    def found(self, tables: Sequence[str], destination: Callable[[], Any]) -> Found:
        """By SQL."""
        with duckdb.connect() as connection:
            load(connection, ["ducklake"])
            return of_ducklake(connection, self.folder / "home" / "data" / "ducklake.duckdb", *tables)


class LakeSite(Plain):
    """A folder in the home."""

    def __init__(self, folder: Path, kind: str) -> None:
        super().__init__(folder)
        self._kind = kind

    def found(self, tables: Sequence[str], destination: Callable[[], Any]) -> Found:
        """By Arrow; dead letters as `kpipe errors` shows them."""
        place = self.folder / "home" / "data" / self._kind
        both = Found()
        for table in tables:
            one = of_lake(self._kind, place, table, iter(()))
            both.rows |= one.rows
        both.letters = of_lake(self._kind, place, NAME, iter(destination().view("errors"))).letters
        return both
