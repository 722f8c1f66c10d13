"""Places of examples, by the type of destination."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.combinations.outlets import KafkaSite, WebhookSite
from tests.combinations.servers import MySQLSite, PostgresSite
from tests.combinations.sites import DuckDBSite, DuckLakeSite, LakeSite, Site


@pytest.fixture
def sites(request: pytest.FixtureRequest) -> Callable[[str, Path], Site]:
    """Makes a place; a server is started when the first example needs it."""

    def made(destination: str, folder: Path) -> Site:
        match destination:
            case "duckdb":
                return DuckDBSite(folder)
            case "ducklake":
                return DuckLakeSite(folder)
            case "kafka":
                return KafkaSite(folder, request.getfixturevalue("brokers"))
            case "webhook":
                return WebhookSite(folder)
            case "postgres":
                return PostgresSite(folder, request.getfixturevalue("postgres"))
            case "mysql":
                return MySQLSite(folder, request.getfixturevalue("mariadb"))
        return LakeSite(folder, destination)

    return made
