"""Which requests reach Dagster's web server: by Host, Origin, fetch metadata, method, content type and token."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from starlette.types import Message, Receive, Scope, Send

from kpipe_assets.dagster_server.access import Access
from kpipe_assets.dagster_server.access_rules import Rules
from tests.cases import each_case

TOKEN = "tOkEn_-42"
LOCAL = Rules("127.0.0.1", 3000, (), TOKEN)
JSON = {"content-type": "application/json"}
COOKIE = {"cookie": f"other=1; kpipe-3000={TOKEN}"}
BEARER = {"authorization": f"Bearer {TOKEN}"}


class Dagster:
    """Stands for Dagster: remembers what reached it."""

    def __init__(self) -> None:
        self.reached: list[Scope] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.reached.append(scope)
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 200, "headers": [(b"x-frame-options", b"ALLOWALL")]})
            await send({"type": "http.response.body", "body": b"here"})
        elif scope["type"] == "websocket":
            await send({"type": "websocket.accept"})


class Answer:
    """What came back."""

    def __init__(self, sent: list[Message], reached: list[Scope]) -> None:
        self.reached = reached
        self.kind, self.status = sent[0]["type"], sent[0].get("status", 0)
        self.headers = {name.decode(): value.decode() for name, value in sent[0].get("headers", ())}
        self.body = b"".join(message.get("body", b"") for message in sent[1:]).decode()


def ask(
    path: str = "/",
    method: str = "GET",
    *more: dict[str, str] | tuple[str, str],
    rules: Rules = LOCAL,
    kind: str = "http",
    host: str | None = "127.0.0.1:3000",
) -> Answer:
    """Send a request; further headers as dicts, or as pairs where a header comes twice."""
    path, _, query = path.partition("?")
    headers = [] if host is None else [("host", host)]
    for given in more:
        headers += [given] if isinstance(given, tuple) else list(given.items())
    scope: dict[str, Any] = {
        "type": kind,
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in headers],
        "scheme": "http",
        "extensions": {"websocket.http.response": {}},
    }
    if kind == "http":
        scope["method"] = method
    app, sent = Dagster(), list[Message]()

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    asyncio.run(Access(app, rules)(scope, receive, send))
    return Answer(sent, app.reached)


def refused(answer: Answer, status: int, reason: str) -> None:
    assert not answer.reached
    assert answer.status == status
    assert reason in answer.body


# -- what passes ------------------------------------------------------------------------------------------------------


@each_case("who", [COOKIE, BEARER, {"authorization": f"bearer  {TOKEN}"}])
def test_the_token_opens_pages_and_graphql(who: dict[str, str]) -> None:
    assert ask("/assets", "GET", who).body == "here"
    same = {"origin": "http://127.0.0.1:3000", "sec-fetch-site": "same-origin"}
    assert ask("/graphql", "POST", who, JSON, same).body == "here"
    assert ask("/graphql", "POST", who, {"content-type": "Application/JSON; charset=utf-8"}).body == "here"
    assert ask("/report_asset_materialization/orders", "POST", who, JSON).body == "here"
    assert ask("/graphql", "GET", who, same, kind="websocket").kind == "websocket.accept"


def test_no_other_page_may_embed_an_answer() -> None:
    headers = ask("/", "GET", COOKIE).headers
    assert headers["x-frame-options"] == "DENY"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert headers["cross-origin-opener-policy"] == "same-origin"


def test_the_page_of_graphiql_comes_without_a_query() -> None:
    answer = ask("/graphql?query=mutation{x}", "GET", COOKIE, {"accept": "text/html"})
    assert [scope["query_string"] for scope in answer.reached] == [b""]


def test_what_concerns_the_server_itself_passes() -> None:
    app = Dagster()

    async def nothing(*_: Any) -> Any:
        raise AssertionError

    asyncio.run(Access(app, LOCAL)({"type": "lifespan"}, nothing, nothing))
    assert [scope["type"] for scope in app.reached] == ["lifespan"]


# -- other pages ------------------------------------------------------------------------------------------------------


@each_case("kind", ["http", "websocket"])
@each_case(
    "host",
    [
        *("evil.example", "evil.example:3000", "127.0.0.1.evil.example", "localhost.evil.example:3000", "0.0.0.0:3000"),
        *("192.0.2.1:3000", "[2001:db8::1]:3000", "127.0.0.1@evil.example", "127.0.0.1:3000/x", "", "127.1 ", "a b", "[::1"),
    ],
)
def test_a_name_that_is_none_of_the_servers(host: str, kind: str) -> None:
    answer = ask("/", "GET", COOKIE, BEARER, host=host, kind=kind)
    refused(answer, answer.status, "Host: ")
    assert answer.status in (400, 403)


def test_two_hosts_or_none() -> None:
    refused(ask("/", "GET", COOKIE, ("host", "evil.example")), 400, "Host: invalid header")
    refused(ask("/", "GET", COOKIE, host=None), 400, "Host: invalid header: expected one name, found none")


@each_case("host", ["localhost:3000", "LOCALHOST", "127.0.0.1", "127.0.0.2:8080", "[::1]:3000"])
def test_names_of_this_machine(host: str) -> None:
    assert ask("/", "GET", COOKIE, host=host).reached


def test_a_server_that_listens_for_others_is_reached_by_addresses_and_by_names_that_were_allowed() -> None:
    everywhere = Rules("0.0.0.0", 3000, ("box", "Kpipe.Example.com"), TOKEN)
    for host in ("192.0.2.1:3000", "[2001:db8::1]:3000", "box:3000", "kpipe.example.com", "127.0.0.1:3000"):
        assert ask("/", "GET", COOKIE, rules=everywhere, host=host).reached
    refused(ask("/", "GET", COOKIE, rules=everywhere, host="evil.example"), 403, "kpipe ui --allow-host evil.example")


@each_case("kind", ["http", "websocket"])
@each_case(
    "origin",
    [
        *("https://evil.example", "null", "http://127.0.0.1", "http://127.0.0.1:8000", "http://localhost:3000", "file://", ""),
        *("http://127.0.0.1:3000.evil.example", "chrome-extension://abc", "http://127.0.0.1:x", "127.0.0.1:3000"),
    ],
)
def test_an_origin_that_is_another(origin: str, kind: str) -> None:
    refused(ask("/graphql", "POST", COOKIE, JSON, {"origin": origin}, kind=kind), 403, "Origin: request of another page")


def test_one_of_two_origins_is_another() -> None:
    two = ({"origin": "http://127.0.0.1:3000"}, ("origin", "http://evil.example"))
    refused(ask("/graphql", "POST", COOKIE, JSON, *two), 403, "Origin")


def test_an_origin_behind_a_proxy_that_passes_the_host_on() -> None:
    rules = Rules("127.0.0.1", 3000, ("kpipe.example.com",), None)
    for host in ("kpipe.example.com", "kpipe.example.com:443"):
        assert ask("/graphql", "POST", JSON, {"origin": "https://kpipe.example.com"}, rules=rules, host=host).reached
    answer = ask("/graphql", "POST", JSON, {"origin": "https://kpipe.example.com"}, rules=rules)
    refused(answer, 403, "a proxy in front must pass the Host header on")


@each_case("kind", ["http", "websocket"])
@each_case("site", ["cross-site", "same-site", "anything"])
def test_fetch_metadata_of_another_page(site: str, kind: str) -> None:
    for path, method in (("/", "GET"), ("/graphql", "POST"), (f"/?token={TOKEN}", "GET")):
        refused(ask(path, method, COOKIE, JSON, {"sec-fetch-site": site}, kind=kind), 403, "Sec-Fetch-Site")


def test_an_address_that_was_typed() -> None:
    assert ask("/", "GET", COOKIE, {"sec-fetch-site": "none"}).reached


# -- methods and types ------------------------------------------------------------------------------------------------


@each_case("path", ["/graphql", "/graphql/", "//graphql", "/prefix/graphql"])
@each_case("method", ["GET", "HEAD"])
def test_graphql_by_get(path: str, method: str) -> None:
    refused(ask(f"{path}?query=mutation{{x}}", method, COOKIE), 405, "expected POST")


@each_case("given", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/graphql", ""])
@each_case("path", ["/graphql?query=mutation{x}", "/report_asset_check/orders", "/anything"])
def test_what_a_form_can_send(path: str, given: str) -> None:
    refused(ask(path, "POST", COOKIE, {"content-type": given}), 415, "expected application/json")


def test_a_post_without_a_type_or_with_two() -> None:
    refused(ask("/graphql", "POST", COOKIE), 415, "found none")
    refused(ask("/graphql", "POST", COOKIE, ("content-type", "text/plain"), ("content-type", "application/json")), 415, "found")
    refused(ask("/graphql", "POST", COOKIE, {"content-type": "text/plain; application/json"}), 415, "found")


@each_case("method", ["OPTIONS", "PUT", "DELETE", "TRACE"])
def test_other_methods(method: str) -> None:
    refused(ask("/graphql", method, COOKIE, JSON), 405, "expected GET or POST")


# -- the token --------------------------------------------------------------------------------------------------------


@each_case(
    "who",
    [
        {},
        {"cookie": "kpipe-3000="},
        {"cookie": f"kpipe-3001={TOKEN}"},
        {"cookie": f"kpipe-3000={TOKEN}x"},
        {"cookie": "kpipe-3000=tÖken"},
        {"authorization": "Bearer wrong"},
        {"authorization": f"Basic {TOKEN}"},
        {"authorization": "Bearer "},
    ],
)
def test_without_the_token_nothing_is_reached(who: dict[str, str]) -> None:
    routes = ["/", "/graphql", "/server_info", "/dagit_info", "/logs/a/b.err", "/notebook?path=x.ipynb", "/dagit/notebook"]
    for path in [*routes, "/download_debug/1", "/vendor/x.js", "/?token=wrong", "/?token="]:
        answer = ask(path, "GET", who, {"accept": "text/html"})
        refused(answer, 401, "open the address that `kpipe ui` printed")
        assert TOKEN not in answer.body
    for path in ("graphql", "report_asset_materialization/x", "report_asset_check/x", "report_asset_observation/x"):
        answer = ask(f"/{path}", "POST", who, JSON)
        refused(answer, 401, "Authorization: Bearer TOKEN")
        assert json.loads(answer.body)["errors"][0]["message"].startswith("token: missing or invalid")
    answer = ask("/graphql", "GET", who, kind="websocket")
    assert answer.kind == "websocket.http.response.start"
    refused(answer, 401, "token")


def test_the_printed_address_is_exchanged_for_a_cookie() -> None:
    answer = ask(f"/assets/orders?view=checks&token={TOKEN}&x=%26", "GET", {"sec-fetch-site": "none"})
    assert not answer.reached
    assert (answer.status, answer.headers["location"]) == (303, "/assets/orders?view=checks&x=%26")
    assert answer.headers["set-cookie"].split("; ") == [f"kpipe-3000={TOKEN}", "HttpOnly", "Path=/", "SameSite=strict"]
    assert answer.headers["cache-control"] == "no-store"
    assert ask("/assets", "GET", {"cookie": answer.headers["set-cookie"].partition(";")[0]}).reached


def test_logging_in_leads_to_no_other_host() -> None:
    assert ask(f"/?token={TOKEN}").headers["location"] == "/"
    for path in ("//evil.example/x", "///evil.example/x"):
        assert ask(f"{path}?token={TOKEN}").headers["location"] == "/evil.example/x"


def test_the_token_leaves_the_log_of_requests() -> None:
    """uvicorn writes its log from the same scope, when the answer begins."""
    scope: Scope = {
        "type": "http",
        "method": "GET",
        "path": "/",
        "raw_path": b"/",
        "query_string": f"token={TOKEN}".encode(),
        "headers": [(b"host", b"localhost")],
    }

    async def send(_: Message) -> None: ...
    async def receive() -> Message:
        raise AssertionError

    asyncio.run(Access(Dagster(), LOCAL)(scope, receive, send))
    assert scope["query_string"] == b""


def test_without_a_token_the_other_rules_stay() -> None:
    rules = Rules("127.0.0.1", 3000, (), None)
    assert ask("/", rules=rules).reached
    assert ask("/?token=x", rules=rules).reached
    refused(ask("/", rules=rules, host="evil.example"), 403, "Host")
    refused(ask("/graphql?query=mutation{x}", rules=rules), 405, "POST")


def test_refusals_show_what_came_as_text() -> None:
    answer = ask("/", "GET", {"origin": "<script>alert(1)</script>", "accept": "text/html"})
    refused(answer, 403, "&lt;script&gt;")
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")


def test_rules_pass_through_a_file(tmp_path: Path) -> None:
    rules = Rules("0.0.0.0", 3001, ("a", "b"), TOKEN)
    rules.write(tmp_path / "rules.json")
    assert Rules.read(tmp_path / "rules.json") == rules
