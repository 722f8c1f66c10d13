"""Show the position of an error in the text of SHOW CREATE PIPELINE."""

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
    """Add the position in SHOW CREATE PIPELINE to errors about a field that the current statement does not contain.

    Raises:
        InvalidStatement: replaces an error that names a field.
    """
    try:
        yield
    except KpipeError as error:
        pointed = _pointed(pipeline, error) if error.field else None
        if pointed is None:
            raise
        raise pointed from error


def _pointed(pipeline: Pipeline, error: KpipeError) -> InvalidStatement | None:
    try:
        statement = read(to_sql(pipeline))
    except KpipeError:  # no statement can express this definition: keep the error as it is
        return None
    places = statement.places if isinstance(statement, Create) else None
    pointed = places.pointed(error) if places is not None else None
    return pointed and InvalidStatement(error.what, error.hint, pointed.excerpt)
