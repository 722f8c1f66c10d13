"""POST /kpipe/v1/sql: execute one statement, as `kpipe sql` does."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from kpipe.errors import InvalidStatement
from kpipe.sql import statements as s
from kpipe.sql.parser import read
from kpipe_assets.rest.problems import LIMITS, Safe
from kpipe_assets.rest.worker import Worker
from kpipe_assets.statements.json_rows import MOST_ROWS, rendered

__all__ = ["router"]


class Sql(BaseModel):
    """A statement.

    Attributes:
        statement: one statement of kpipe, or a query in DuckDB's SQL.
        limit: maximum number of rows in the response.
    """

    model_config = ConfigDict(extra="forbid")

    statement: Annotated[str, Field(min_length=1, max_length=200_000)]
    limit: Annotated[int, Field(ge=1, le=MOST_ROWS)] = MOST_ROWS


def router(worker: Worker) -> APIRouter:
    """Return the resource of statements."""
    routes = APIRouter(prefix="/kpipe/v1", tags=["kpipe: statements"])

    @routes.post("/sql", summary="Execute one statement", description=LIMITS)
    def sql(body: Sql) -> Any:
        statement = read(body.statement)
        if isinstance(statement, s.Extract):
            raise InvalidStatement("EXTRACT PIPELINE writes a file on the server", "use kpipe sql")
        if isinstance(statement, s.Start) and statement.foreground:
            raise InvalidStatement(
                "START PIPELINE ... FOREGROUND would run in the server", "leave out FOREGROUND, or use kpipe run"
            )
        with worker.slow(), worker.changing_all(s.changes(statement)):
            if isinstance(statement, s.Query):
                return Safe(worker.query(body.statement, body.limit))
            return Safe(worker.using(statement, lambda result: rendered(result, body.limit)))

    return routes
