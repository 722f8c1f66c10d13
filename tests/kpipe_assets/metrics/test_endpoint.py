"""`/metrics` in an application, behind the access rules of `kpipe ui`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp

from kpipe_assets.dagster_server.access import Access
from kpipe_assets.dagster_server.access_rules import Rules
from kpipe_assets.metrics import exposition
from kpipe_assets.metrics.endpoint import with_metrics
from resources.home import Home
from tests.cases import each_case

RULES = Rules("127.0.0.1", 3000, (), "the-token")
TOKEN = {"authorization": "Bearer the-token"}


@pytest.fixture
def app(tmp_path: Path) -> ASGIApp:
    return Access(with_metrics(PlainTextResponse("dagster"), Home.at(tmp_path / "home").make()), RULES)


def request(
    app: ASGIApp, path: str = "/metrics", method: str = "GET", headers: dict[str, str] | None = None, root: str = ""
) -> tuple[int, dict[str, str], bytes]:
    sent: list[Any] = []
    given = {"host": "127.0.0.1:3000", **(headers or {})}
    scope = {
        "type": "http", "method": method, "path": root + path, "raw_path": (root + path).encode(), "query_string": b"",
        "root_path": root, "scheme": "http", "headers": [(key.encode(), value.encode()) for key, value in given.items()],
    }  # fmt: skip

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(app(scope, receive, send))
    headers_of = {key.decode(): value.decode() for key, value in sent[0]["headers"]}
    return sent[0]["status"], headers_of, b"".join(message.get("body", b"") for message in sent[1:])


def test_a_scrape_with_the_token_gets_the_metrics(app: ASGIApp) -> None:
    status, headers, body = request(app, headers=TOKEN)
    assert status == 200 and headers["content-type"].startswith("text/plain") and b"# TYPE kpipe_up gauge" in body
    assert headers["cache-control"] == "no-store"
    accepting = {**TOKEN, "accept": "application/openmetrics-text; version=1.0.0"}
    assert request(app, headers=accepting)[1]["content-type"].startswith("application/openmetrics-text")
    assert request(app, headers=TOKEN, root="/prefix")[2] == body


def test_other_paths_are_dagsters(app: ASGIApp) -> None:
    for path in ("/", "/metrics/more", "/runs/metrics"):
        assert request(app, path, headers=TOKEN)[2] == b"dagster"


@each_case(
    ("headers", "status"),
    [({}, 401), ({"authorization": "Bearer no"}, 401), ({**TOKEN, "host": "evil.example"}, 403),
     ({**TOKEN, "sec-fetch-site": "cross-site"}, 403), ({**TOKEN, "origin": "https://evil.example"}, 403)],
    ids=["no-token", "wrong-token", "host", "site", "origin"],
)  # fmt: skip
def test_the_access_rules_apply(app: ASGIApp, headers: dict[str, str], status: int) -> None:
    found, _, body = request(app, headers=headers)
    assert found == status and b"kpipe_up" not in body


def test_a_scrape_changes_nothing_by_other_methods(app: ASGIApp) -> None:
    posted = {**TOKEN, "content-type": "application/json"}
    assert request(app, method="POST", headers=posted)[0] == 405


def test_an_invalid_setting_is_the_answer(app: ASGIApp, monkeypatch: pytest.MonkeyPatch) -> None:
    exposition.exporter.cache_clear()
    monkeypatch.setenv("KPIPE_METRICS_MAX_PARTITIONS", "many")
    status, _, body = request(app, headers=TOKEN)
    assert status == 500 and b"KPIPE_METRICS_MAX_PARTITIONS" in body
    exposition.exporter.cache_clear()
