"""An asset that reads a pipeline's table, as anybody's would: it is computed anew when the table has grown."""

# No `from __future__ import annotations`: Dagster reads the annotations of assets, sensors and checks as objects.

from collections.abc import Iterator
from typing import Any

import dagster as dg
import duckdb

from resources.home import Home

__all__ = ["downstream"]


def downstream(home: Home) -> dg.Definitions:
    """`tweets_by_language`: one row for each language, eager."""
    pipeline = home.pipeline("tweets")
    path = pipeline.into.database or str(home.data / "kpipe.duckdb")

    @dg.asset(
        deps=[dg.AssetDep([pipeline.into.table], partition_mapping=dg.AllPartitionMapping())],
        group_name=pipeline.asset.group,
        kinds={"duckdb"},
        automation_condition=dg.AutomationCondition.eager(),
        description="Tweets by language, as they stand in the table. Computed anew after every run of the pipeline.",
    )
    def tweets_by_language() -> Iterator[dg.MaterializeResult[Any]]:
        with duckdb.connect(path, read_only=True) as connection:
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
