"""Match the columns of staged files with those of the table, and find the columns that the table must gain."""

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
    "NULL_HINT",
    "Match",
    "by_shape",
    "check_inserted",
    "check_new",
    "matched",
    "missing",
    "nested_growth",
    "parsed",
    "spelled",
    "unkeyed",
    "unsuitable",
    "widening",
]

#: A column of a file: its name, its type in the file, its type in the table.
Match = tuple[str, Type, Type]

#: The hint of an error about NULL in a NOT NULL column that would store another value.
NULL_HINT = (
    "give the column a value in a transform, or remove NOT NULL from it; to store its default, list the other columns in"
    " format.fields, format.mapping or select"
)


def missing(pipeline: str, table: str, rows: int) -> LedgerMismatch:
    """Return the error of a missing table whose rows the ledger records."""
    return LedgerMismatch(
        f"pipeline {pipeline}: table {table} is missing, the ledger records {rows} rows in it",
        f"restore it; or create {table} empty to continue without these rows; or start again under another pipeline name",
    )


def unkeyed(table: str) -> InvalidPipeline:
    """Return the error of a table whose key columns are not defined."""
    return InvalidPipeline(
        f"table {table}: no key columns: expected into.key, or an existing table with a primary key",
        "set into.key, or write KEY (...) after INTO TABLE",
    )


def spelled(key: Sequence[str], known: Columns, table: str) -> tuple[str, ...]:
    """Return the key columns as the table spells them.

    Raises:
        InvalidPipeline: no key columns are defined.
        SchemaConflict: a key column does not exist in the table.
    """
    if not key:
        raise unkeyed(table)
    result = []
    for column in key:
        found = next((name for name in known.names() if name.lower() == column.lower()), None)
        if found is None or found in COORDINATES:
            raise SchemaConflict(f"key column {column} does not exist in table {table}", "set into.key to existing columns")
        result.append(found)
    return tuple(result)


def widening(known: Columns, needed: Columns) -> list[tuple[Path, Type]]:
    """Return the columns, and fields inside of columns, that a table must gain to store every value of the needed columns.

    Raises:
        SchemaConflict: a column has another type, which no addition can change; the message names the column.
    """
    steps: list[tuple[Path, Type]] = []
    for name, kind in needed:
        have = known.get(name)
        steps += [((name,), kind)] if have is None else additions(have, kind, (name,))
    return steps


def check_new(table: str, new: Iterable[str], computed: Iterable[str]) -> None:
    """Check that the columns that the table must gain are not among those that it computes, which kpipe cannot write.

    Raises:
        SchemaConflict: one is.
    """
    known = {name.lower(): name for name in computed}
    for name in new:
        if name.lower() in known:
            raise SchemaConflict(
                f"table {table}: column {known[name.lower()]!r} is computed by the database, and records have a field of"
                " that name",
                "rename the field in a transform, or leave it out: declare `columns` with `schema: ignore`",
            )


def nested_growth(known: Columns, steps: Iterable[tuple[Path, Type]], changed: Mapping[str, Type]) -> dict[str, Type]:
    """Return the new types of columns that gain nested fields: databases that store these as JSON record the types only.

    Args:
        known: columns of the table, as it was.
        steps: of `widening`; new columns among them are ignored.
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
    """Group files that can be read together: those with the same columns and types."""
    for _, group in groupby(sorted(staged, key=lambda file: file.shape), key=lambda file: file.shape):
        yield list(group)


def matched(stored: Columns, file: Proven, commit: Commit, known: Columns) -> list[Match]:
    """Match each column of a staged file with the column of the table.

    Raises:
        StagingFailed: the file has other columns than the commit.
    """
    columns = commit.only.columns
    absent = [name for name, _ in columns if name not in stored]
    if absent:
        raise StagingFailed(f"staged file {file.path!r}: column {absent[0]!r} of batch {commit.id} is missing")
    found: list[Match] = []
    for name, kind in stored:
        meant = COORDINATES.get(name) or columns.get(name)
        if meant is None:
            raise StagingFailed(f"staged file {file.path!r}: unexpected column {name!r}, which batch {commit.id} does not have")
        have = known.get(name)
        if not carries(kind, meant) or have is None:
            raise StagingFailed(f"staged file {file.path!r}: column {name!r} has type {kind}, batch {commit.id} expects {meant}")
        found.append((name, kind, have))
    return found


def check_inserted(commit: Commit, files: Sequence[Proven], inserted: int) -> None:
    """Check that as many rows were inserted as the files contain.

    Raises:
        StagingFailed: the numbers differ.
    """
    expected = sum(file.rows for file in files)
    if inserted != expected:
        raise StagingFailed(f"batch {commit.id}: expected {expected} inserted rows, found {inserted}")


def parsed(rows: Iterable[tuple[str, str]], where: str) -> Columns:
    """Return columns from names and DuckDB's types.

    Raises:
        SchemaConflict: kpipe cannot write the type of a column.
    """
    result: list[tuple[str, Type]] = []
    for name, text in rows:
        try:
            result.append((name, parse_type(text)))
        except InvalidPipeline as error:
            raise unsuitable(where, name, text) from error
    return Columns(tuple(result))


def unsuitable(where: str, name: str, text: str) -> SchemaConflict:
    """Return the error of a column whose type kpipe cannot write."""
    return SchemaConflict(
        f"{where}: column {name!r} has type {text}, which kpipe cannot write",
        "give it another type, or load into another table and derive this one from it",
    )
