"""Which column of a staged file goes to which of the table, and what a table must gain."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from kpipe.batch.batch import Commit
from kpipe.errors import InvalidPipeline, LedgerMismatch, SchemaConflict, StagingFailed
from kpipe.schema.columns import Columns, Type, parse_type
from resources.destinations.staged_file_check import Proven
from resources.type_compatibility import COORDINATES, Path, additions, carries, grown

__all__ = [
    "COORDINATES",
    "Match",
    "by_shape",
    "check_inserted",
    "matched",
    "missing",
    "nested_growth",
    "parsed",
    "spelled",
    "unkeyed",
    "unsuitable",
    "widening",
]

#: A column of a file: its name, its type there, its type in the table.
Match = tuple[str, Type, Type]


def missing(pipeline: str, table: str, rows: int) -> LedgerMismatch:
    """Return the error of a missing table whose rows the ledger records."""
    return LedgerMismatch(
        f"pipeline {pipeline}: table {table} is missing, the ledger records {rows} rows in it",
        f"restore it; or create {table} empty to go on without these rows; or begin anew under another pipeline name",
    )


def unkeyed(table: str) -> InvalidPipeline:
    """The error of rows with a key where nothing says what the key is."""
    return InvalidPipeline(
        f"table {table} is not there, or has no primary key, and nothing else says what the key is",
        "name its columns: into.key, or KEY (...) behind INTO TABLE",
    )


def spelled(key: Sequence[str], known: Columns, table: str) -> tuple[str, ...]:
    """The columns of a key as the table spells them.

    Raises:
        InvalidPipeline: there are none.
        SchemaConflict: the table lacks one.
    """
    if not key:
        raise unkeyed(table)
    result = []
    for column in key:
        found = next((name for name in known.names() if name.lower() == column.lower()), None)
        if found is None or found in COORDINATES:
            raise SchemaConflict(f"table {table} has no column {column}, which is of the key", "name other columns: into.key")
        result.append(found)
    return tuple(result)


def widening(known: Columns, needed: Columns) -> list[tuple[Path, Type]]:
    """What must be added to a table, columns and fields inside of them, so that it holds every value of those needed.

    Raises:
        SchemaConflict: no addition can do it; the message names the column.
    """
    steps: list[tuple[Path, Type]] = []
    for name, kind in needed:
        have = known.get(name)
        steps += [((name,), kind)] if have is None else additions(have, kind, (name,))
    return steps


def nested_growth(known: Columns, steps: Iterable[tuple[Path, Type]], changed: Mapping[str, Type]) -> dict[str, Type]:
    """Return the new types of columns that gain nested fields: databases that store these as JSON record the types only.

    Args:
        known: columns of the table, as it was.
        steps: of `widening`; new columns among them are passed over.
        changed: new columns with their types, which come first in the result.
    """
    names = {name.lower(): name for name in known.names()}
    result = dict(changed)
    for path, kind in steps:
        if len(path) > 1:
            name = names[path[0].lower()]
            have = result.get(name) or known.get(name)
            assert have is not None
            result[name] = grown(have, path[1:], kind)
    return result


def by_shape(staged: Sequence[Proven]) -> Iterator[list[Proven]]:
    """Files that can be read together."""
    for _, group in groupby(sorted(staged, key=lambda file: file.shape), key=lambda file: file.shape):
        yield list(group)


def matched(stored: Columns, file: Proven, commit: Commit, known: Columns) -> list[Match]:
    """What goes where, from a file with these columns.

    Raises:
        StagingFailed: the file holds other columns than the commit.
    """
    columns = commit.only.columns
    absent = [name for name, _ in columns if name not in stored]
    if absent:
        raise StagingFailed(f"staged file {file.path!r} lacks column {absent[0]!r} of batch {commit.id}")
    found: list[Match] = []
    for name, kind in stored:
        meant = COORDINATES.get(name) or columns.get(name)
        if meant is None:
            raise StagingFailed(f"staged file {file.path!r} holds column {name!r}, which batch {commit.id} does not name")
        have = known.get(name)
        if not carries(kind, meant) or have is None:
            raise StagingFailed(f"staged file {file.path!r} holds column {name!r} as {kind}, batch {commit.id} says {meant}")
        found.append((name, kind, have))
    return found


def check_inserted(commit: Commit, files: Sequence[Proven], inserted: int) -> None:
    """As many rows were inserted as the files hold.

    Raises:
        StagingFailed: others were.
    """
    expected = sum(file.rows for file in files)
    if inserted != expected:
        raise StagingFailed(f"batch {commit.id}: {inserted} rows were inserted, {expected} are staged")


def parsed(rows: Iterable[tuple[str, str]], where: str) -> Columns:
    """Columns from names and DuckDB's types.

    Raises:
        SchemaConflict: a column's type is none that kpipe can write.
    """
    result: list[tuple[str, Type]] = []
    for name, text in rows:
        try:
            result.append((name, parse_type(text)))
        except InvalidPipeline as error:
            raise unsuitable(where, name, text) from error
    return Columns(tuple(result))


def unsuitable(where: str, name: str, text: str) -> SchemaConflict:
    """The error of a column whose type kpipe cannot write."""
    return SchemaConflict(
        f"{where}: column {name!r} has type {text}, which kpipe cannot write",
        "give it another type, or load into another table and derive this one from it",
    )
