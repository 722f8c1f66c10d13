"""Execute statements by `kpipe sql` and return what it prints."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import duckdb

from tests.commandline import Kpipe

SMALL = "CREATE PIPELINE orders AS LOAD DATA KAFKA '127.0.0.1:1/orders' INTO TABLE orders FORMAT JSON"


def sql(kpipe: Kpipe, text: str, status: int = 0, **environ: str) -> str:
    """What the statements print."""
    return kpipe("sql", text, status=status, **environ).stdout


def lines(kpipe: Kpipe, text: str) -> list[dict[str, Any]]:
    return kpipe.json("sql", text)


def wrong(kpipe: Kpipe, text: str, status: int = 2) -> str:
    return kpipe("sql", text, status=status).stderr


def state(kpipe: Kpipe, name: str = "orders") -> str:
    return {row["pipeline"]: row["state"] for row in lines(kpipe, "SHOW PIPELINES")}[name]


def loaded(kpipe: Kpipe) -> int:
    """Rows of the table; 0 while there is none, and while a commit holds the database."""
    with suppress(duckdb.Error):
        return int(kpipe.sql("SELECT count(*) FROM orders")[0][0])
    return 0
