"""Read the table with PyIceberg, without kpipe."""

import os

from pyiceberg.catalog.sql import SqlCatalog

lake = f"{os.environ['KPIPE_HOME']}/lake"
catalog = SqlCatalog("kpipe", uri=f"sqlite:///{lake}/catalog.db", warehouse=f"file://{lake}")
rows = catalog.load_table("default.visits").scan().to_arrow().to_pylist()
seconds = sum(row["seconds"] or 0 for row in rows)
print(f"{len(rows)} rows, {seconds} seconds, pages {sorted({row['page'] for row in rows})}")  # noqa: T201
