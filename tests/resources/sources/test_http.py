"""Lists of an HTTP API as a source, over a real server: each way to page, kills, changes, and servers that misbehave."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from kpipe.definition.pipeline import Pipeline
from kpipe.errors import (
    CredentialsRefused,
    InvalidPipeline,
    LogTruncated,
    OffsetsBeyondEnd,
    ReadFailed,
    ReadStalled,
    SourceIdentityChanged,
)
from kpipe.failpoints import POINTS
from kpipe.sql.parser import read
from kpipe.sql.renderer import to_sql
from resources.destinations import summary
from resources.sources.http.json_list import items, member
from resources.sources.open_source import check_connector, connector_of
from resources.spark.service.data_pickle import dumps, loads
from tests.resources.sources.runs import Bench, kill
from tests.resources.sources.test_tables import rows

_REACHED = [point for point in POINTS if point.startswith(("commit.", "collect.all", "read.", "readback", "publish."))]
_SIZE = 3
SECRET = "canary-of-the-api"
Named = Callable[[str | None], dict[str, Any]]


class Api:
    """An API with one list.

    Attributes:
        records: the list.
        asked: paths of all requests.
        fault: in place of the page: a status, or `redirect`, `huge`, `text`, `nested`, `elsewhere`, `circle`, `ignores`;
            `newest`, `newest first`: the last page, for a request without a position.
        wanted: what a header must be, as `(name, value)`.
        named: returns more members of a page for the URL of the next one.
    """

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []
        self.asked: list[str] = []
        self.fault, self.wanted = "", ("", "")
        self.named: Named = lambda _: {}
        api = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: Any) -> None:
                pass

            def do_GET(self) -> None:
                api.asked.append(self.path)
                status, body, headers = api.answer(self.path, self.headers)
                self.send_response(status)
                for name, value in {"Content-Length": str(len(body)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/orders"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, path: str, headers: Any) -> tuple[int, bytes, dict[str, str]]:
        given = {name: values[0] for name, values in parse_qs(urlsplit(path).query).items()}
        if self.wanted[0] and headers.get(self.wanted[0]) != self.wanted[1]:
            return 401, b"who are you", {}
        if self.fault.isdecimal():
            return int(self.fault), b"{}", {}
        if self.fault == "redirect":
            return 302, b"", {"Location": "http://169.254.169.254/"}
        if self.fault == "huge":
            return 200, b'[{"id": "' + b"x" * (2 << 20) + b'"}]', {}
        if self.fault == "text":
            return 200, b"<html>no</html>", {}
        if self.fault == "nested":
            return 200, b"[" * 200_000, {}
        chosen, following = self.page(given)
        members = {"next": following.get("next"), "cursor": following.get("cursor"), **self.named(following.get("next"))}
        body = json.dumps({"data": {"items": chosen}, **members}, indent=1)
        return 200, body.encode(), {"Link": f'<{following["next"]}>; rel="next"'} if following.get("next") else {}

    def page(self, given: dict[str, str]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        if self.fault == "ignores":
            return self.records[:_SIZE], {}
        if self.fault.startswith("newest") and not {"after", "from"} & given.keys():
            return self.records[-_SIZE:][:: -1 if self.fault == "newest first" else 1], {}
        if "after" in given or "from" in given:
            least = int(given["from"]) if "from" in given else int(given["after"]) + 1
            return [record for record in self.records if record["id"] >= least][:_SIZE], {}
        number = int(given.get("page", 1)) - 1 if "page" in given else 0
        start = int(given.get("offset", given.get("cursor", number * _SIZE)))
        chosen, end = self.records[start : start + _SIZE], start + _SIZE
        if self.fault == "circle":
            return chosen, {"next": "/orders?offset=0", "cursor": 0}
        if self.fault == "broken":
            return chosen, {"next": "http://[broken"}
        if self.fault == "relative":
            return chosen, {"next": "javascript:x"}
        if self.fault == "elsewhere":
            return chosen, {"next": "https://elsewhere.example.com/orders?offset=3"}
        return chosen, {"next": f"/orders?offset={end}", "cursor": end} if end < len(self.records) else {}


@pytest.fixture
def api() -> Iterator[Api]:
    made = Api()
    yield made
    made.stop()


WAYS: dict[str, dict[str, Any]] = {
    "after": {"column": "id", "after": "after"},
    "from": {"column": "id", "from": "from"},
    "page": {"page": "page", "page_size": _SIZE},
    "offset": {"offset": "offset", "page_size": _SIZE},
    "next_link": {"next_link": "next"},
    "header": {"next_link": "Link"},
    "cursor": {"cursor": "cursor", "cursor_parameter": "cursor"},
}
_NUMBERED = [way for way in WAYS if way not in ("after", "from")]


def bench(folder: Path, api: Api, way: str, credentials: dict[str, str] | None = None, **more: Any) -> Bench:
    http = {"url": f"{api.url}?sort=id", "records": "data.items", "allow_hosts": ["127.0.0.1"], **WAYS[way], **more}
    return Bench(folder, source={"http": http, "credentials": credentials or {}}, files=None)


def add(api: Api, *ids: int) -> None:
    api.records += [{"id": number, "price": 1.5} for number in ids]


@pytest.mark.parametrize("way", WAYS)
def test_records_of_all_pages_and_those_that_appear_later(api: Api, tmp_path: Path, way: str) -> None:
    made = bench(tmp_path, api, way, max_batch_rows=4)
    assert made.run() == 0
    expected: list[int] = []
    for count in (1, 3, 2, 0, 7, 1):
        new = [2 * number for number in range(len(expected), len(expected) + count)]
        add(api, *new)
        expected += new
        made.run()
        assert rows(made) == expected, count
    assert made.audit().ok, made.audit().problems
    assert all("sort=id" in path or path.startswith("/orders?offset=") for path in api.asked)


@pytest.mark.parametrize("way", ["after", *(pytest.param(way, marks=pytest.mark.chaos) for way in ("page", "next_link"))])
def test_runs_that_are_killed_repeat_and_lose_no_record(api: Api, tmp_path: Path, way: str) -> None:
    made, written = bench(tmp_path, api, way), 0
    for point in _REACHED:
        add(api, written, written + 1)
        written += 2
        assert made.run_until(point, kill), point
    made.run()
    assert rows(made) == list(range(written))
    assert made.audit().ok, made.audit().problems


def test_two_runs_at_once_read_each_record_once(api: Api, tmp_path: Path) -> None:
    made = bench(tmp_path, api, "after")
    add(api, 1, 2, 3, 4)
    with pytest.raises(Exception, match="another run committed first"):
        made.run_until("collect.all", lambda: made.run())
    add(api, 9)
    made.run()
    assert rows(made) == [1, 2, 3, 4, 9]
    assert made.audit().ok


@pytest.mark.parametrize("fault", ["newest", "newest first"])
@pytest.mark.parametrize("way", ["after", "from"])
def test_a_server_that_returns_its_newest_records_without_a_position_is_read_from_the_first_on(
    api: Api, tmp_path: Path, way: str, fault: str
) -> None:
    """Only these were read, and the earlier ones counted as gaps."""
    api.fault = fault
    add(api, *range(1, 11))
    made = bench(tmp_path, api, way, max_batch_rows=4)
    made.run()
    assert rows(made) == list(range(1, 11))
    assert made.audit().ok, made.audit().problems


def test_values_far_apart_take_few_requests(api: Api, tmp_path: Path) -> None:
    made = bench(tmp_path, api, "after", max_batch_rows=1 << 61)
    add(api, 5, 1_700_000_000_000, 1_700_000_000_001, 1_700_000_000_900, 1_800_000_000_000_000)
    made.run()
    assert rows(made)[-1] == 1_800_000_000_000_000
    assert len(rows(made)) == 5
    assert len(api.asked) < 250
    assert made.audit().ok


@pytest.mark.parametrize("way", ["after", "page"])
def test_an_edit_that_makes_another_list_is_named(api: Api, tmp_path: Path, way: str) -> None:
    """Positions of another list are not those that were read. A longer time for responses changes nothing."""
    made = bench(tmp_path, api, way)
    add(api, 1, 2, 3, 4)
    made.run()
    fields = made.pipeline.to_dict()
    http = fields["source"]["http"]
    made.pipeline = Pipeline.model_validate({**fields, "source": {"http": {**http, "timeout_s": 20}}})
    assert made.run() == 0
    made.pipeline = Pipeline.model_validate({**fields, "source": {"http": {**http, "url": f"{api.url}?sort=id&tenant=2"}}})
    with pytest.raises(SourceIdentityChanged, match="was replaced") as caught:
        made.run()
    assert "undo a change of source.http" in caught.value.hint
    made.pipeline = Pipeline.model_validate({**fields, "source": {"http": {**http, "url": f"{api.url}/?sort=id"}}})
    with pytest.raises(SourceIdentityChanged, match=r"source\.http\.url names another source than was read"):
        made.run()
    assert rows(made) == [1, 2, 3, 4]


@pytest.mark.parametrize("way", _NUMBERED)
def test_a_list_that_changed_where_it_was_read_is_refused(api: Api, tmp_path: Path, way: str) -> None:
    made = bench(tmp_path, api, way)
    add(api, *range(8))
    made.run()
    del api.records[3]
    with pytest.raises(OffsetsBeyondEnd, match="expected its end at 8 or later, found 7"):
        made.run()
    add(api, 8, 9)
    with pytest.raises(LogTruncated):
        made.run()
    assert rows(made) == list(range(8))


@pytest.mark.parametrize("way", WAYS)
def test_a_list_that_is_shorter_than_planned_fails_and_its_end_is_no_gap(api: Api, tmp_path: Path, way: str) -> None:
    made = bench(tmp_path, api, way)
    add(api, *range(1, 10))
    records = list(api.records)
    with pytest.raises(ReadFailed, match="it became shorter while it was read: expected "):
        made.run_until("plan.frozen", lambda: api.records.__delitem__(slice(6, None)))  # a replica that lags behind answers
    api.records[:] = records
    add(api, 10)
    made.run()
    assert rows(made) == list(range(1, 11))
    assert made.audit().ok, made.audit().problems


def test_numbers_keep_all_digits_and_records_are_one_line() -> None:
    text = ' {"a": [1], "b" : {"c":\n[ {"x": 0.10000000000000000000001,\r\n "y": [1, "\\n"]} , {"x": 1e400} ] } } '
    assert [raw for raw, _ in items(text, "b.c")] == ['{"x": 0.10000000000000000000001,   "y": [1, "\\n"]}', '{"x": 1e400}']
    assert items("[]", "") == [] and items('{"a": []}', "a") == []
    assert member({"a": {"b": 1}}, "a.b") == 1 and member({"a": []}, "a.b") is None
    for wrong in ('{"a": 1}', '{"b": []}', "[]"):
        with pytest.raises(ValueError, match="expected a list in a"):
            items(wrong, "a")
    with pytest.raises(ValueError, match="expected objects in the list, found int"):
        items("[1]", "")


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("@odata.nextLink", lambda url: {"@odata.nextLink": url} if url else {}),
        ("_links.next", lambda url: {"_links": {"next": {"href": url}} if url else {}}),
        ("links.next", lambda url: {"links": {"next": url and {"href": url}}}),
        ("more", lambda url: {"more": url or False}),
    ],
)
def test_the_next_page_as_apis_name_it(api: Api, tmp_path: Path, path: str, named: Named) -> None:
    """The list seemed to end after its first page."""
    add(api, *range(8))
    api.named = named
    made = connector_of(bench(tmp_path, api, "next_link", next_link=path).pipeline)
    assert made is not None and [split.end for split in made.splits()] == [8]


@pytest.mark.parametrize(
    ("way", "value", "words"),
    [
        ("next_link", 5, "member next: expected a text, found int"),
        ("next_link", {"url": "/x"}, "member next: expected a text, found dict"),
        ("next_link", {"href": ["/x"]}, "member next: expected a text, found list"),
        ("next_link", True, "member next: expected a text, found bool"),
        ("cursor", 1.5, "member cursor: expected a text or an integer, found float"),
        ("cursor", {"a": 1}, "member cursor: expected a text or an integer, found dict"),
    ],
)
def test_a_next_page_that_cannot_be_requested_is_no_end(api: Api, tmp_path: Path, way: str, value: Any, words: str) -> None:
    add(api, *range(8))
    api.named = lambda _: {"next": value, "cursor": value}
    made = connector_of(bench(tmp_path, api, way).pipeline)
    with pytest.raises(ReadFailed, match=words) as caught:
        made is not None and made.splits()
    assert caught.value.hint == f"check source.http.{way}"


@pytest.mark.parametrize(
    ("fault", "way", "error", "words"),
    [
        ("503", "page", ReadStalled, "answers HTTP 503"),
        ("429", "page", ReadStalled, "answers HTTP 429"),
        ("404", "page", ReadFailed, "answers HTTP 404"),
        ("redirect", "page", ReadFailed, r"redirects elsewhere \(HTTP 302\)"),
        ("huge", "page", ReadFailed, "the response has more than 1 MiB"),
        ("text", "page", ReadFailed, "not JSON in UTF-8"),
        ("nested", "page", ReadFailed, "nested too deeply"),
        ("elsewhere", "next_link", ReadFailed, "the next page is on another server: https://elsewhere.example.com"),
        ("broken", "next_link", ReadFailed, "the URL of the next page is invalid"),
        ("relative", "header", ReadFailed, "the URL of the next page is invalid"),
        ("circle", "next_link", ReadFailed, "lead to a page again that was read"),
        ("circle", "cursor", ReadFailed, "lead to a page again that was read"),
        ("ignores", "page", ReadFailed, "it seems to ignore the parameter"),
        ("ignores", "after", ReadFailed, "the server does not return records in the order of id"),
    ],
)
def test_a_server_that_misbehaves_is_named(
    api: Api, tmp_path: Path, fault: str, way: str, error: type[Exception], words: str
) -> None:
    add(api, *range(5))
    api.fault = fault
    made = bench(tmp_path, api, way, max_mb=1)
    with pytest.raises(error, match=words):
        made.run()
    api.fault = ""
    made.run()
    assert rows(made) == list(range(5))


@pytest.mark.parametrize(
    ("record", "more", "words"),
    [
        ({"id": "7"}, {"column": "id"}, "expected an integer from 0, found str"),
        ({"id": True}, {"column": "id"}, "expected an integer from 0, found True"),
        ({"id": -1}, {"column": "id"}, "expected an integer from 0, found -1"),
        ({"id": 1}, {"column": "missing"}, "expected an integer from 0, found nothing"),
    ],
)
def test_a_column_that_is_no_position_is_refused(
    api: Api, tmp_path: Path, record: dict[str, Any], more: dict[str, Any], words: str
) -> None:
    api.records = [record]
    with pytest.raises(ReadFailed, match=words):
        bench(tmp_path, api, "after", **more).run()


def test_pages_that_are_smaller_or_more_than_declared_are_refused(api: Api, tmp_path: Path) -> None:
    add(api, *range(20))
    for way, more, words in (
        ("page", {"page_size": 5}, "expected pages of 5 records"),
        ("page", {"page_size": 2}, "expected pages of 2 records"),
        ("next_link", {"max_pages": 3}, "expected at most 3 pages"),
    ):
        (tmp_path / f"{way}{len(more)}{words[-9]}").mkdir()
        with pytest.raises(ReadFailed, match=words):
            bench(tmp_path / f"{way}{len(more)}{words[-9]}", api, way, **more).run()


def test_credentials_are_sent_and_never_shown(api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_SECRET", SECRET)
    reference = "{{ env('API_SECRET') }}"
    add(api, 1)
    for name, header, sent in (
        ("token", "Authorization", f"Bearer {SECRET}"),
        ("header.X-Api-Key", "X-Api-Key", SECRET),
    ):
        api.wanted = (header, sent)
        folder = tmp_path / name
        folder.mkdir()
        made = bench(folder, api, "after", {name: reference})
        made.run()
        assert rows(made) == [1]
        api.wanted = (header, "another")
        add(api, 2)
        with pytest.raises(CredentialsRefused) as caught:
            made.run()
        api.records.pop()
        assert SECRET not in f"{caught.value}{caught.value.hint}{json.dumps(summary(made.pipeline))}{to_sql(made.pipeline)}"


def test_private_addresses_are_refused_without_permission(api: Api, tmp_path: Path) -> None:
    with pytest.raises(InvalidPipeline, match="which is this machine") as caught:
        bench(tmp_path, api, "after", allow_hosts=[]).run()
    assert "source.http.allow_hosts" in caught.value.hint


_GOOD = {"url": "https://api.example.com/orders", "column": "id", "after": "since"}
_PAGES = {"column": None, "after": None, "page_size": 3}


@pytest.mark.parametrize(
    ("change", "credentials", "words"),
    [
        ({"url": "http://api.example.com/orders"}, {}, r"source\.http\.url: expected https"),
        ({"url": "https://u:p@api.example.com/"}, {}, "contains credentials"),
        ({"url": "https://api.example.com/?api_key=abc"}, {}, "may contain a secret"),
        ({"url": "ftp://api.example.com/"}, {}, "invalid address"),
        ({"url": "https://api.example.com/?a=1&since=500"}, {}, "url: expected no parameter since, found since=500"),
        ({"url": "https://api.example.com/?since="}, {}, "url: expected no parameter since, found since="),
        ({"url": "https://api.example.com/?b%5Ba%5D=5", "after": None, "from": "b[a]"}, {}, r"url: expected no parameter b\[a\]"),
        ({**_PAGES, "url": "https://api.example.com/?p=3", "page": "p"}, {}, "url: expected no parameter p, found p=3"),
        ({**_PAGES, "url": "https://api.example.com/?o=1&o=0", "offset": "o"}, {}, "url: expected no parameter o, found o=1"),
        ({"page": "page", "page_size": 3}, {}, "found after and page"),
        ({"after": None}, {}, "found none"),
        ({"column": None}, {}, "column belongs to after and from"),
        ({"page_size": 4}, {}, "page_size belongs to page and offset"),
        ({"cursor_parameter": "c"}, {}, "cursor and cursor_parameter go together"),
        ({"headers": {"X-Api-Key": "abc"}}, {}, "may be a secret"),
        ({}, {"key": "{{ env('HOME') }}"}, "key is not a credential"),
        ({}, {"token": "{{ env('HOME') }}", "username": "u", "password": "{{ env('HOME') }}"}, "expected token, or username"),
        ({}, {"header.Host": "{{ env('HOME') }}"}, "Host is set by kpipe"),
    ],
)
def test_fields_that_do_not_fit_are_refused(change: dict[str, Any], credentials: dict[str, str], words: str) -> None:
    source = {"http": {**_GOOD, **change}, "credentials": credentials}
    with pytest.raises((InvalidPipeline, ValueError), match=words):
        check_connector(Pipeline.model_validate({"name": "p", "source": source, "into": _INTO}))


_INTO = {"type": "kafka", "brokers": "b:9092", "topic": "t"}


def test_statements_name_the_address() -> None:
    for way in WAYS.values():
        http = {"url": "https://api.example.com/orders", **way}
        pipeline = Pipeline.model_validate({"name": "p", "source": {"http": http}, "into": _INTO})
        assert "AS LOAD DATA HTTP 'https://api.example.com/orders'\n" in to_sql(pipeline)
        assert getattr(read(to_sql(pipeline)), "pipeline") == pipeline  # noqa: B009
        connector = connector_of(pipeline)
        assert connector is not None and loads(dumps(connector)).pattern == connector.pattern  # as `kpipe serve` sends it
