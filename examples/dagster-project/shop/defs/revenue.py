"""An asset of the project's own, computed from kpipe's table."""

import json

import dagster as dg
import duckdb

from resources.home import Home


@dg.asset(deps=[dg.AssetDep("sales", partition_mapping=dg.AllPartitionMapping())])
def revenue() -> dg.MaterializeResult:
    """Sum the sales to each customer."""
    home = Home.from_env()
    with duckdb.connect(str(home.data / "kpipe.duckdb"), read_only=True) as connection:
        found = dict(connection.execute("SELECT customer, sum(total) FROM sales GROUP BY ALL ORDER BY ALL").fetchall())
    (home.path / "revenue.json").write_text(json.dumps(found), encoding="utf-8")
    return dg.MaterializeResult(metadata={"customers": len(found)})
