"""The place in a definition that an error is about, shown in the statement that SHOW CREATE PIPELINE gives."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kpipe.definition.pipeline import Pipeline
from kpipe.errors import InvalidStatement, KpipeError
from kpipe.sql.parser import read
from kpipe.sql.renderer import to_sql
from kpipe.sql.statements import Create

__all__ = ["in_definition"]


@contextmanager
def in_definition(pipeline: Pipeline) -> Iterator[None]:
    """Show errors that are about a field of the definition at its place there: the statement at hand does not name it.

    Raises:
        InvalidStatement: in place of an error that names such a field.
    """
    try:
        yield
    except KpipeError as error:
        found = _pointed(pipeline, error) if error.field else None
        if found is None:
            raise
        raise found from error


def _pointed(pipeline: Pipeline, error: KpipeError) -> InvalidStatement | None:
    try:
        statement = read(to_sql(pipeline))
    except KpipeError:  # a definition that no statement says: the error's own words are enough
        return None
    places = statement.places if isinstance(statement, Create) else None
    found = places.pointed(error) if places is not None else None
    return found and InvalidStatement(error.what, error.hint, found.excerpt)
