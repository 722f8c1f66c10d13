"""A user's asset downstream of a pipeline's table, computed again after each new materialization."""

# No `from __future__ import annotations`: Dagster reads the annotations of assets, sensors and checks as objects.

from collections.abc import Iterator
from contextlib import suppress
from importlib.resources import files
from typing import Any

import dagster as dg

from kpipe.definition.pipeline import Into, Pipeline
from kpipe.errors import KpipeError
from resources.duckdb_engine.file_connection import Database
from resources.home import Home

__all__ = ["demos", "downstream"]

_PROGRAM = files("transforms") / "programs" / "flatten_tweet.py"


def demos(home: Home) -> Iterator[Pipeline]:
    """Yield the pipeline of `kpipe demo` if the home has it, but not a user's pipeline of the same name."""
    with suppress(KpipeError):  # the catalog reports the error
        if "tweets" in home.names():
            pipeline = home.pipeline("tweets")
            program = pipeline.transform.program if pipeline.transform else ""
            if program == str(_PROGRAM) and pipeline.into == Into(table="tweets"):
                yield pipeline


def downstream(home: Home, pipeline: Pipeline) -> dg.Definitions:
    """Build the asset `tweets_by_language`, with one row for each language and eager automation."""
    database = Database(home.data / "kpipe.duckdb", ())  # waits while a commit has the file open

    @dg.asset(
        deps=[dg.AssetDep([pipeline.into.table], partition_mapping=dg.AllPartitionMapping())],
        group_name=pipeline.asset.group,
        kinds={"duckdb"},
        automation_condition=dg.AutomationCondition.eager(),
        description="Number of tweets by language. Computed again when the table has new rows.",
    )
    def tweets_by_language() -> Iterator[dg.MaterializeResult[Any]]:
        with database.read() as connection:
            rows = connection.execute(
                "SELECT coalesce(lang, '?'), count(*), sum(retweets) FROM tweets GROUP BY 1 ORDER BY 2 DESC"
            ).fetchall()
        records = [dg.TableRecord({"lang": lang, "tweets": count, "retweets": int(sums or 0)}) for lang, count, sums in rows]
        yield dg.MaterializeResult(
            metadata={
                "dagster/row_count": len(rows),
                "tweets": sum(row[1] for row in rows),
                "languages": dg.MetadataValue.table(records),
            }
        )

    return dg.Definitions(assets=[tweets_by_language])
