"""An asset that reads a pipeline's table, as anybody's would: it is computed anew when the table has grown."""

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
    """The pipeline of `kpipe demo`, if the home has it; one of the same name that is somebody's own is not it."""
    with suppress(KpipeError):  # the catalog says what is wrong with it
        if "tweets" in home.names():
            pipeline = home.pipeline("tweets")
            program = pipeline.transform.program if pipeline.transform else ""
            if program == str(_PROGRAM) and pipeline.into == Into(table="tweets"):
                yield pipeline


def downstream(home: Home, pipeline: Pipeline) -> dg.Definitions:
    """`tweets_by_language`: one row for each language, eager."""
    database = Database(home.data / "kpipe.duckdb", ())  # waits while a commit has the file open

    @dg.asset(
        deps=[dg.AssetDep([pipeline.into.table], partition_mapping=dg.AllPartitionMapping())],
        group_name=pipeline.asset.group,
        kinds={"duckdb"},
        automation_condition=dg.AutomationCondition.eager(),
        description="Tweets by language, as they stand in the table. Computed anew when the table has grown.",
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
