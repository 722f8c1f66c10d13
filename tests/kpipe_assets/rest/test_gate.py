"""Which requests reach a resource: by token, Host, Origin, content type, size and JSON."""

from __future__ import annotations

import base64
import http.client
import random
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.responses import PlainTextResponse

from kpipe.errors import InvalidPipeline
from kpipe_assets.dagster_server.access_rules import Rules, check_reachable
from kpipe_assets.rest import gate
from resources.home import Home
from tests.certificates import certificates
from tests.kpipe_assets.rest.client import CONFIG, Client, serving

TOKEN = "tOkEn-42"
BEARER = {"Authorization": f"Bearer {TOKEN}"}


def basic(user: str, password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Client]:
    with serving(Home.at(tmp_path / "home").make(), TOKEN) as client:
        yield client


def test_the_token_comes_as_bearer_or_as_the_password_of_basic(guarded: Client) -> None:
    for headers in (BEARER, basic("kpipe", TOKEN), basic("", TOKEN)):
        assert guarded.ask("GET", "/connectors", headers=headers).status == 200
    wrong: list[dict[str, str]] = [
        {},
        basic(TOKEN, ""),
        basic("a", "b"),
        {"Authorization": "Basic !"},
        {"Authorization": "Bearer x"},
    ]
    for headers in wrong:
        answer = guarded.ask("GET", "/connectors", headers=headers)
        assert answer.status == 401, headers
        assert answer.headers["www-authenticate"].startswith("Basic")
        assert "Bearer TOKEN" in answer.message
    assert guarded.ask("GET", f"/connectors?token={TOKEN}").status == 401, "an address is logged and shared"
    for path in ("/", "/metrics", "/openapi.json", "/kpipe/v1/pipelines", "/nothing"):
        assert guarded.ask("GET", path).status == 401, path


def test_health_without_the_token_has_no_details(tmp_path: Path) -> None:
    """Orchestrators probe without a token; what the service runs is for its users."""
    found = (200, {"status": "running", "pipelines": {"secret": {"running": True}}})
    with serving(Home.at(tmp_path / "home").make(), TOKEN, health=lambda: found) as client:
        for headers in ({}, {"Authorization": "Bearer x"}):
            answer = client.ask("GET", "/health", headers=headers)
            assert (answer.status, answer.json) == (200, {"status": "running"})
            assert client.ask("GET", "/health/x", headers=headers).status == 401
        assert client.ask("GET", "/health", headers=BEARER).json == found[1]
        assert client.ask("GET", "/health", headers={"Host": "evil.example"}).status == 403
        assert client.ask("GET", "/health", headers={"Origin": "https://evil.example"}).status == 403
        assert client.ask("POST", "/health", {}).status == 405
        assert client.ask("GET", "/health", raw=b" " * (2 << 20)).status == 413


def test_a_body_that_does_not_end_is_answered(api: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "_BODY_S", 0.3)
    with socket.create_connection(("127.0.0.1", api.port), timeout=300) as connection:
        head = f"POST /connectors HTTP/1.1\r\nHost: 127.0.0.1:{api.port}\r\nContent-Type: application/json\r\n"
        connection.sendall(f"{head}Content-Length: 100\r\n\r\n{{".encode())
        assert connection.recv(1000).startswith(b"HTTP/1.1 408 ")
    assert api.get("/connectors") == []


def test_pages_of_others_are_refused(api: Client) -> None:
    own = f"127.0.0.1:{api.port}"
    foreign: list[tuple[dict[str, str], str]] = [
        ({"Host": "evil.example"}, "Host"),
        ({"Origin": "https://evil.example"}, "Origin"),
        ({"Origin": "null"}, "Origin"),
        ({"Origin": f"http://127.0.0.1:{api.port + 1}"}, "Origin"),
        ({"Sec-Fetch-Site": "cross-site"}, "Sec-Fetch-Site"),
        ({"Sec-Fetch-Site": "same-site"}, "Sec-Fetch-Site"),
    ]
    api.create(state="RUNNING")
    before = api.home.noted("orders")
    for headers, name in foreign:
        for method, path in (("GET", "/connectors"), ("PUT", "/connectors/orders/stop"), ("DELETE", "/connectors/orders")):
            answer = api.ask(method, path, headers=headers)
            assert (answer.status, answer.message.partition(":")[0]) == (403, name)
    assert api.get("/connectors") == ["orders"]
    assert (api.state(), api.home.noted("orders")) == ("UNASSIGNED", before)
    assert api.ask("GET", "/connectors", headers={"Origin": f"http://{own}", "Sec-Fetch-Site": "same-origin"}).status == 200


def test_what_a_page_can_send_without_a_preflight_is_refused(api: Client) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""):
        answer = api.ask("POST", "/connectors", {"name": "x", "config": CONFIG}, headers={"Content-Type": kind})
        assert answer.status == 415, kind
    assert (
        api.ask(
            "POST", "/connectors", {"name": "x", "config": CONFIG}, headers={"Content-Type": "application/json; charset=utf-8"}
        ).status
        == 201
    )


def test_nothing_is_changed_by_get(api: Client) -> None:
    api.create(state="RUNNING")
    schema = api.get("/openapi.json")
    kept = sorted(item.read_bytes() for item in api.home.pipelines.iterdir())
    for path in schema["paths"]:
        path = path.replace("{connector}", "orders").replace("{name}", "orders").replace("{task}", "0")
        path = path.replace("{plugin}", "kpipe").replace("{logger}", "root")
        assert api.ask("GET", path).status in (200, 404, 405), path
    assert sorted(item.read_bytes() for item in api.home.pipelines.iterdir()) == kept
    assert api.state() == "UNASSIGNED"


def test_large_and_broken_bodies(tmp_path: Path) -> None:
    with serving(Home.at(tmp_path / "home").make(), most_bytes=10_000) as api:
        big = api.ask("PUT", "/connectors/x/config", {**CONFIG, "where": "a" * 20_000})
        assert (big.status, "at most 10000 bytes" in big.message) == (413, True)
        for raw in (b"{", b"\xff\xfe{}", b'{"a": NaN}', b'{"a": 1e999}', b'{"a": "\\ud800"}', b'{"a": 1, "a": 2}', b"[" * 5000):
            answer = api.ask("PUT", "/connectors/x/config", raw=raw)
            assert (answer.status, "not JSON" in answer.message) == (400, True), raw
        for raw in (b"[]", b"1", b'"x"', b"null", b""):
            assert api.ask("PUT", "/connectors/x/config", raw=raw).status == 400, raw
        assert api.get("/connectors") == []


def test_a_token_is_sent_over_tls(tmp_path: Path) -> None:
    """By the files of a certificate, as the service sets them; a client that does not trust it sends nothing."""
    certificates(tmp_path)
    files = {"ssl_certfile": tmp_path / "broker.pem", "ssl_keyfile": tmp_path / "broker.key"}
    with serving(Home.at(tmp_path / "home").make(), TOKEN, web=files) as client:
        trusting = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
        for context, works in ((trusting, True), (ssl.create_default_context(), False)):
            connection = http.client.HTTPSConnection("127.0.0.1", client.port, timeout=300, context=context)
            try:
                connection.request("GET", "/connectors", headers=BEARER)
                assert works and connection.getresponse().read() == b"[]"
            except ssl.SSLCertVerificationError:
                assert not works
            finally:
                connection.close()


def test_a_mounted_application_is_behind_the_same_checks(tmp_path: Path) -> None:
    with serving(Home.at(tmp_path / "home").make(), TOKEN, mounts={"/metrics": PlainTextResponse("up 1")}) as client:
        assert client.ask("GET", "/metrics").status == 401
        for path in ("/metrics", "/metrics/"):
            assert client.ask("GET", path, headers=BEARER).text == "up 1"


def test_other_machines_need_token_and_tls() -> None:
    check_reachable(Rules("127.0.0.1", 1), tls=False)
    check_reachable(Rules("::1", 1), tls=False)
    check_reachable(Rules("0.0.0.0", 1, (), TOKEN), tls=True)
    with pytest.raises(InvalidPipeline, match="found none"):
        check_reachable(Rules("0.0.0.0", 1), tls=True)
    with pytest.raises(InvalidPipeline, match="unencrypted"):
        check_reachable(Rules("10.0.0.1", 1, (), TOKEN), tls=False)


PARTS = [
    "",
    "a",
    "orders",
    "..",
    ".",
    "%2e%2e",
    "%00",
    "%2F",
    "%ff",
    "0",
    "-1",
    "9" * 30,
    "x" * 300,
    "%F0%9F%98%80",
    "config",
    "status",
    "tasks",
    "restart",
    "offsets",
    "topics",
    "validate",
    "kpipe",
    "sql",
    "%0a",
    "~",
    "*",
    "'",
    "%22",
    "{connector}",
]
QUERIES = [
    "",
    "?expand=status",
    "?expand=%00",
    "?limit=-1",
    "?limit=x",
    "?limit=1000",
    "?includeTasks=maybe",
    "?reread=%ff",
    "?after=%ff",
]
VALUES = [
    None,
    True,
    0,
    -1,
    1 << 70,
    1.5,
    "",
    "x",
    "{",
    "[1",
    "[]",
    "{}",
    "\x00",
    "\u202e",
    [],
    {},
    [None],
    {"": ""},
    {"a": {"b": [1]}},
]
KEYS = [
    "name",
    "config",
    "connector.class",
    "source",
    "source.topic",
    "source.brokers",
    "source.start",
    "into",
    "into.table",
    "into.type",
    "into.key",
    "columns",
    "columns.",
    "columns.a",
    "format.mapping.a",
    "lookups",
    "lookups.a",
    "lookups.a.key",
    "also",
    "also.0.table",
    "transform",
    "offsets",
    "partition",
    "offset",
    "statement",
    "limit",
    "to",
    "level",
    ".",
    "",
    "a.b",
    "topics",
    "topics.regex",
    "initial_state",
    "errors.parse",
    "start",
    "end",
    "where",
    "set.a",
    "batch",
    "asset.tags.a",
]
SINKS = [
    "kpipe",
    "JdbcSink",
    "io.confluent.connect.jdbc.JdbcSinkConnector",
    "org.apache.iceberg.connect.IcebergSinkConnector",
    "x",
    None,
    5,
]


def test_no_request_gives_500(api: Client) -> None:
    """Random methods, paths, queries and JSON over a home with a pipeline; the seed is fixed."""
    dice = random.Random(18)  # not the generator of this process, which ports are taken from
    api.create("orders")
    paths = list(api.get("/openapi.json")["paths"])
    seen: dict[int, int] = {}
    for _ in range(200):
        path = dice.choice(paths)
        for name in ("connector", "name", "task", "plugin", "logger"):
            common = {"task": "0", "plugin": "kpipe", "logger": "kpipe.rest"}.get(name, "orders")
            path = path.replace("{" + name + "}", dice.choice([common, common, dice.choice(PARTS)]))
        if dice.random() < 0.1:
            path = "/" + "/".join(dice.choice(PARTS) for _ in range(dice.randrange(6)))
        if any(path.endswith(slow) for slow in ("/test", "/plan", "/seek", "/backfill")):
            continue  # waits for brokers, of which there are none
        body = {dice.choice(KEYS): dice.choice(VALUES) for _ in range(dice.randrange(4))}
        if dice.random() < 0.5:
            body = {**CONFIG, "connector.class": dice.choice(SINKS), **body}
        if dice.random() < 0.3:
            body = {"name": dice.choice(VALUES), "config": body}
        method = dice.choice(["GET", "PUT", "POST", "PATCH", "DELETE", "HEAD", "OPTIONS"])
        sent = dice.choice([body, body, body, dice.choice(VALUES)])
        answer = api.ask(method, path + dice.choice(QUERIES), sent if method not in ("GET", "HEAD") else None)
        assert answer.status < 500, (method, path, sent, answer)
        if answer.status >= 400 and method != "HEAD":
            assert answer.message, (method, path, sent, answer)
        seen[answer.status] = seen.get(answer.status, 0) + 1
        if "orders" not in api.home.names():
            api.create("orders")
    assert {200, 400, 404, 405} <= seen.keys(), seen
