from __future__ import annotations

from pathlib import Path

import pytest

from resources.testing.conformance import Conformance
from resources.testing.place import Place
from tests.resources.destinations.lake_place import (
    DeltaPlace,
    DeltaStorePlace,
    IcebergPlace,
    ParquetPlace,
    PostgresIcebergPlace,
    RestIcebergPlace,
    StoreIcebergPlace,
)  # fmt: skip

# By name: the class, and the servers that it needs.
PLACES: dict[str, tuple[type[Place], tuple[str, ...]]] = {
    "delta": (DeltaPlace, ()),
    "parquet": (ParquetPlace, ()),
    "iceberg": (IcebergPlace, ()),
    "iceberg_postgres": (PostgresIcebergPlace, ("postgres",)),
    "iceberg_rest": (RestIcebergPlace, ("rest",)),
    "iceberg_s3": (StoreIcebergPlace, ("postgres", "s3")),
    "delta_s3": (DeltaStorePlace, ("s3",)),
    "delta_gcs": (DeltaStorePlace, ("gcs",)),
    "delta_azure": (DeltaStorePlace, ("azure",)),
}
# The others go the way of Delta on a disk but for snapshots, catalogues or the store, and each of these takes half a second: in
# `make chaos`.
ALWAYS = ("delta", "parquet")


@pytest.fixture(params=[name if name in ALWAYS else pytest.param(name, marks=pytest.mark.chaos) for name in PLACES])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    made, servers = PLACES[request.param]
    return made(tmp_path, *map(request.getfixturevalue, servers))


class TestLakes(Conformance):
    pass
