"""Lookups from an address: a server that does as it should, and all the ways in which it does not."""

from __future__ import annotations

import json
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from kpipe.definition.pipeline import Pipeline
from kpipe.definition.yaml_codec import COMPONENT, from_yaml
from kpipe.errors import CredentialsRefused, InvalidPipeline, LookupFailed
from kpipe.sql.renderer import to_sql
from resources.destinations import summary
from resources.lookups.reference_table import Reference
from tests.certificates import certificates
from tests.fileserver import FileServer

Read = Callable[..., Reference]
ROWS = [{"code": "DE", "name": "Germany"}, {"code": "FR", "name": "France"}]


def test_a_file_is_fetched_with_one_get(read: Read, server: FileServer) -> None:
    found = read("name", url=f"{server.url}?day=1", key="code")
    assert found.table.to_pylist() == ROWS
    (asked,) = server.asked
    assert (asked["path"], asked["host"]) == ("/countries.csv?day=1", f"127.0.0.1:{server.port}")
    assert asked["accept-encoding"] == "identity" and "authorization" not in asked


def test_what_it_is_is_said_by_the_definition_the_answer_or_the_name(read: Read, server: FileServer) -> None:
    server.body, server.kind = b'[{"code": "DE", "name": "Germany"}]', "application/json; charset=utf-8"
    assert read("name", url=server.url, key="code").table.to_pylist() == ROWS[:1]
    server.kind = "text/plain"
    assert read("name", url=server.url, key="code", format="json").table.to_pylist() == ROWS[:1]
    with pytest.raises(InvalidPipeline, match="unknown format"):
        read("name", url=server.url.replace(".csv", ""), key="code")


@pytest.mark.parametrize(
    ("credentials", "sent"),
    [({"token": "{{ env('T') }}"}, "Bearer canary"), ({"username": "u", "password": "{{ env('T') }}"}, "Basic dTpjYW5hcnk=")],
)
def test_credentials_are_sent_and_never_shown(read: Read, server: FileServer, credentials: dict[str, str], sent: str) -> None:
    server.wanted = sent
    assert read("name", url=server.url, key="code", credentials=credentials, environ={"T": "canary"}).version.rows == 2
    with pytest.raises(CredentialsRefused) as raised:
        read("name", url=server.url, key="code", credentials=credentials, environ={"T": "canary2"})
    assert "canary" not in str(raised.value)
    with pytest.raises(InvalidPipeline, match=r"credentials: .* T is not set"):
        read("name", url=server.url, key="code", credentials=credentials, environ={})


PASSING = [
    ("slow", "within 5 s"), ("silent", "within 5 s"), ("truncated", "cannot be read"), ("chunks_cut", "cannot be read"),
    ("500", "HTTP 500"), ("429", "HTTP 429"),
]  # fmt: skip
FINAL = [
    ("huge", "larger than 1 MiB"), ("redirect", "redirects elsewhere"), ("endless", "without a length"), ("gzip", "compressed"),
    ("404", "HTTP 404"), ("204", "HTTP 204"),
]  # fmt: skip


@pytest.mark.parametrize(("fault", "words"), PASSING)
def test_what_may_pass_is_worth_another_try(read: Read, server: FileServer, fault: str, words: str) -> None:
    server.fault = fault
    with pytest.raises(LookupFailed, match=words) as raised:
        read("name", url=server.url, key="code", timeout_s=5 if fault in ("slow", "silent") else 30)
    assert raised.value.retriable and "lookups.l" in raised.value.what and len(server.asked) == 1
    server.fault = ""
    assert read("name", url=server.url, key="code").table.to_pylist() == ROWS


@pytest.mark.parametrize(("fault", "words"), FINAL)
def test_what_will_not_pass_is_not_tried_again(read: Read, server: FileServer, fault: str, words: str) -> None:
    server.fault = fault
    with pytest.raises(InvalidPipeline, match=words):
        read("name", url=server.url, key="code", max_mb=1)
    assert len(server.asked) == 1


def test_chunks_are_as_good_as_a_length(read: Read, server: FileServer) -> None:
    server.fault = "chunked"
    assert read("name", url=server.url, key="code").table.to_pylist() == ROWS


def test_nobody_there(read: Read, free_port: Callable[[], int]) -> None:
    with pytest.raises(LookupFailed, match="cannot be read"):
        read("name", url=f"http://localhost:{free_port()}/x.csv", key="code")


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://example.com/x.csv", "use https"), ("ftp://example.com/x.csv", "not a URL"),
        ("file:///etc/passwd", "not a URL"),
        ("https://u:p@example.com/x.csv", "contains credentials"), ("https://example.com/x.csv#a", "not a URL"),
        ("https://example.com/\r\nX: y", "not a URL"), ("https:///x", "not a URL"), ("https://h:99999/x", "not a URL"),
    ],
)  # fmt: skip
def test_addresses_that_are_refused_before_anything_is_asked(read: Read, url: str, words: str) -> None:
    with pytest.raises(InvalidPipeline, match=words):
        read("name", url=url, key="code")


@pytest.mark.parametrize(
    "address",
    ["169.254.169.254", "127.0.0.1", "::1", "::ffff:169.254.169.254", "fe80::1", "fd00:ec2::254", "0.0.0.0", "224.0.0.1"],
)
def test_a_name_that_leads_to_a_forbidden_address_is_not_asked(read: Read, monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    def resolved(host: str, port: int, **_: Any) -> list[Any]:
        assert host == "reference.example"
        good = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("93.184.215.14", port))
        return [good, (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    with pytest.raises(InvalidPipeline, match=r"reference\.example is "):
        read("name", url="https://reference.example/x.csv", key="code")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_a_server_with_a_private_authority(read: Read, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificates(tmp_path)
    server = FileServer(tmp_path / "keys.pem")
    server.body, server.wanted = b"code,name\nDE,Germany\nFR,France\n", "Bearer canary"
    fields: dict[str, Any] = {"key": "code", "credentials": {"token": "{{ env('T') }}"}, "environ": {"T": "canary"}}
    try:
        for ca, url, words in (
            (None, server.url, r"certificate is not trusted: .*-> name a file .*: lookups\.l\.ca"),
            ("other.pem", server.url, "certificate is not trusted"),
            ("ca.pem", server.url.replace("127.0.0.1", "localhost"), "certificate is not trusted: .*localhost"),
            ("gone.pem", server.url, r"lookups\.l\.ca: gone\.pem cannot be read: No such file"),
            ("names", server.url, r"lookups\.l\.ca: names cannot be read"),
        ):
            with pytest.raises(InvalidPipeline, match=words) as raised:
                read("name", url=url, ca=ca, **fields)
            assert "canary" not in str(raised.value)
        assert not server.asked, "nothing is sent to a server that is not trusted"
        assert read("name", url=server.url, ca="ca.pem", **fields).table.to_pylist() == ROWS
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
        assert read("name", url=server.url, **fields).table.to_pylist() == ROWS
        server.fault = "truncated"
        with pytest.raises(LookupFailed, match="cannot be read"):
            read("name", url=server.url, **fields)
    finally:
        server.stop()


def test_credentials_that_are_not_taken(read: Read) -> None:
    for credentials in ({"secret": "x"}, {"username": "u"}, {"token": "t", "username": "u", "password": "p"}, {"token": "a\nb"}):
        with pytest.raises(InvalidPipeline, match=r"lookups\.l\.credentials"):
            read("name", url="https://example.com/x.csv", key="code", credentials=credentials)


def test_a_secret_that_is_written_out_is_masked_wherever_the_definition_is_shown() -> None:
    fields = {"url": "https://example.com/x.csv?key=k", "key": "code", "credentials": {"token": "canary"}}
    attributes = {"name": "p", "source": {"brokers": "b", "topic": "t"}, "into": {"table": "t"}, "lookups": {"l": fields}}
    pipeline = Pipeline.model_validate(attributes)
    assert "canary" not in json.dumps(summary(pipeline)) + to_sql(pipeline)
    assert pipeline.lookups["l"].describe() == "url https://example.com/x.csv"
    for wrong in (
        {"credentials": {"token": ["canary"]}},
        {"url": "canary", "path": "x.csv"},
        {"query": "canary", "timeout_s": -1},
    ):
        text = yaml.safe_dump({"type": COMPONENT, "attributes": {**attributes, "lookups": {"l": {**fields, **wrong}}}})
        with pytest.raises(InvalidPipeline, match=r"x\.yaml:\d+: lookups") as raised:
            from_yaml(text, "x.yaml", {})
        assert "canary" not in str(raised.value)
