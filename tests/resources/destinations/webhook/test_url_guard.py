"""Where requests may go, and how they are signed."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kpipe.definition.pipeline import Pipeline
from kpipe.definition.yaml_codec import from_yaml
from kpipe.errors import DestinationBusy, DestinationError, InvalidPipeline, NotAvailable
from resources.destinations import open_destination
from resources.destinations.webhook import WebhookDestination
from resources.destinations.webhook.sender import Endpoint, Sender
from resources.destinations.webhook.signature import headers, keys
from resources.destinations.webhook.url_guard import Url
from resources.home import Home
from resources.secrets import redact
from tests.cases import each_case
from tests.receiver import Receiver

GOOD = "93.184.215.14"


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[list[str]]]:
    """What the DNS answers, by name: one list of addresses after the other, and the last one for ever."""
    known: dict[str, list[list[str]]] = {}
    real = socket.getaddrinfo

    def resolved(host: str, port: int, family: int = 0, type: int = 0) -> list[Any]:
        if host[:1].isdigit():  # an address: who connects asks, too
            return real(host, port, family, type)
        answers = known[host]
        found = answers.pop(0) if len(answers) > 1 else answers[0]
        return [(socket.AF_INET6 if ":" in one else socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port)) for one in found]

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    return known


FORBIDDEN = [
    "169.254.169.254", "127.0.0.1", "10.0.0.1", "172.16.3.4", "192.168.1.1", "100.64.0.1", "0.0.0.0", "224.0.0.1",
    "255.255.255.255", "192.0.2.1", "::1", "::", "fe80::1", "fc00::1", "fd00:ec2::254", "fec0::1", "ff02::1", "::ffff:10.0.0.1",
    "::ffff:169.254.169.254", "64:ff9b::a00:1", "64:ff9b::a9fe:a9fe", "2002:a00:1::", "2001:db8::1",
]  # fmt: skip


@pytest.mark.parametrize("address", FORBIDDEN)
def test_a_name_that_leads_inside_is_not_asked(names: dict[str, list[list[str]]], address: str) -> None:
    names["hooks.example"] = [[GOOD, address]]
    with pytest.raises(InvalidPipeline, match=r"hooks\.example is .*which is .*allow_hosts: \[hooks\.example\]"):
        Url.of("https://hooks.example/x").looked_up(["other.example"])


@pytest.mark.parametrize("address", ["10.0.0.1", "169.254.169.254", "127.0.0.1", "fd00:ec2::254", "::ffff:10.0.0.1"])
def test_unless_it_is_allowed_by_its_name(names: dict[str, list[list[str]]], address: str) -> None:
    names["hooks.internal"] = [[address]]
    assert Url.of("https://hooks.internal/x").looked_up(["a", "Hooks.Internal"]) == [address]


@pytest.mark.parametrize("address", ["0.0.0.0", "224.0.0.1", "ff02::1", "::"])
def test_what_is_no_machine_is_never_asked(names: dict[str, list[list[str]]], address: str) -> None:
    names["hooks.internal"] = [[address]]
    with pytest.raises(InvalidPipeline, match="not a host address"):
        Url.of("https://hooks.internal/x").looked_up(["hooks.internal"])


@pytest.mark.parametrize("address", [GOOD, "2606:4700::1111", "::ffff:93.184.215.14", "64:ff9b::5db8:d70e"])
def test_public_addresses_are_asked(names: dict[str, list[list[str]]], address: str) -> None:
    names["hooks.example"] = [[address, address]]
    assert Url.of("https://hooks.example/x").looked_up([]) == [address]


def test_a_name_is_looked_up_once(names: dict[str, list[list[str]]]) -> None:
    """What it means later (DNS rebinding) changes nothing: requests go to what was looked at."""
    receiver = Receiver()
    try:
        names["localhost"] = [["127.0.0.1"], ["127.0.0.2"]]
        url = Url.of(f"http://localhost:{receiver.port}/hook")
        sender = Sender(Endpoint(url, allowed=["localhost"], retry_s=0))
        assert [sender.send(f"k{n}", b"{}", "t/0").status for n in range(3)] == [200] * 3
        assert [one.headers["host"] for one in receiver.got] == [f"localhost:{receiver.port}"] * 3
        sender.close()
    finally:
        receiver.stop()


def test_a_name_that_nobody_knows_may_be_known_later(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: Any, **__: Any) -> list[Any]:
        raise socket.gaierror(-3, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(DestinationBusy, match=r"hooks\.example cannot be resolved"):
        Url.of("https://hooks.example/").looked_up([])


@each_case(
    ("url", "words"),
    [
        ("http://example.com/x", "use https"), ("ftp://example.com/x", "invalid address"),
        ("file:///etc/passwd", "invalid address"),
        ("https://u:s3cret@example.com/x", "contains credentials"), ("https://example.com/x#a", "after #"),
        ("https://example.com/\r\nX: y", "invalid address"), ("https:///x", "invalid address"),
        ("https://h:99999/x", "invalid address"),
        ("https://bücher.example/", "invalid address"), ("gopher://x", "invalid address"), ("", "invalid address"),
    ],
)  # fmt: skip
def test_what_is_no_address_is_refused_and_not_shown(url: str, words: str) -> None:
    with pytest.raises(InvalidPipeline, match=words) as caught:
        Url.of(url)
    assert "s3cret" not in str(caught.value)


# -- TLS


@pytest.fixture
def secure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    """A receiver with a certificate for `hooks.example` that this process trusts."""
    told = [
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=x",
        "-addext",
        "subjectAltName=DNS:hooks.example",
    ]
    files = ["-keyout", str(tmp_path / "key.pem"), "-out", str(tmp_path / "cert.pem")]
    subprocess.run(["openssl", "req", *told, *files], check=True, capture_output=True)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    receiver = Receiver(context)
    yield receiver
    receiver.stop()


@pytest.mark.parametrize("name", ["hooks.example", "other.example"])
def test_the_certificate_must_be_the_names_and_not_the_addresses(
    secure: Receiver, names: dict[str, list[list[str]]], name: str
) -> None:
    names[name] = [["127.0.0.1"]]
    sender = Sender(Endpoint(Url.of(f"https://{name}:{secure.port}/hook"), allowed=[name], retry_s=0))
    try:
        if name == "hooks.example":
            assert sender.send("k", b"{}", "t/0").status == 200
            return
        with pytest.raises(DestinationError, match=r"not trusted.*doesn't match") as caught:
            sender.send("k", b"{}", "t/0")
        assert not secure.got and not caught.value.retriable
    finally:
        sender.close()


# -- signatures


def test_requests_are_signed_as_standard_webhooks_says() -> None:
    """The example of https://docs.svix.com/receiving/verifying-payloads/how-manual: secret, id, time, body and signature."""
    (key,) = keys("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    body = b'{"test": 2432232314}'
    told = headers("msg_p5jXN8AQM9LWM0D4loKWxJek", body, [key], 1614265330)
    assert told["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    assert (told["webhook-id"], told["webhook-timestamp"]) == ("msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330")
    assert told["Idempotency-Key"] == told["webhook-id"]


def test_two_secrets_sign_while_one_takes_the_place_of_the_other() -> None:
    old, new = "an older secret of 24 bytes".replace(" ", "_"), "whsec_" + base64.b64encode(b"n" * 32).decode()
    first, second = headers("k", b"body", keys(f"{new}  {old}"), 7)["webhook-signature"].split(" ")
    for text, secret in ((first, b"n" * 32), (second, old.encode())):
        assert text == "v1," + base64.b64encode(hmac.new(secret, b"k.7.body", hashlib.sha256).digest()).decode()
    assert "webhook-signature" not in headers("k", b"body", [])


@each_case(
    ("secret", "words"), [("whsec_###", "expected base64"), ("whsec_c2hvcnQ=", "found 5"), ("short", "at least 24 bytes, found")]
)
def test_a_secret_that_is_none_is_not_shown(secret: str, words: str) -> None:
    with pytest.raises(InvalidPipeline, match=words) as caught:
        keys(secret)
    assert secret not in str(caught.value)


# -- definitions


def pipeline(into: dict[str, Any], **more: Any) -> Pipeline:
    source = {"brokers": "b:9092", "topic": "t"}
    fields = {"type": "webhook", "url": "https://hooks.example/x", "table": "sent", **into}
    return Pipeline.model_validate(
        {"name": "p", "source": source, "into": {k: v for k, v in fields.items() if v is not None}, **more}
    )


@each_case(
    ("into", "words"),
    [
        ({"url": None}, "needs url"), ({"url": "https://u:p@x/"}, "credentials"), ({"body": '{"a": "${a}"}'}, "quotes"),
        ({"envelope": '{"a": ${id}}'}, "records"), ({"envelope": '{"a": ${records}, "b": ${id}}'}, "records"),
        ({"headers": {"X-A": "a\r\nX-B: b"}}, "control"), ({"headers": {"X A": "a"}}, "header's name"),
        ({"headers": {"Host": "a"}}, "set by kpipe"), ({"headers": {"Webhook-Id": "a"}}, "set by kpipe"),
        ({"headers": {"Authorization": "a"}}, "secret"), ({"headers": {"X-Auth-Token": "a"}}, "header.X-Auth-Token"),
        ({"headers": {"cookie": "a"}}, "header.cookie"), ({"max_records": 0}, "greater"), ({"concurrency": 0}, "greater"),
        ({"type": "duckdb"}, "belongs to type: webhook"), ({"topic": "t"}, "belongs to type: kafka"),
        ({"credentials": {"url": "x"}}, "also set in credentials"),
    ],
)  # fmt: skip
def test_definitions_that_are_wrong_say_what(into: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        pipeline(into)


@pytest.mark.parametrize(
    ("into", "more", "words"),
    [
        ({"key": ["id"]}, {}, "into.key"), ({}, {"errors": {"batch": "skip"}}, "errors.batch"),
        ({}, {"delivery": "at_most_once"}, "at_most_once"), ({}, {"also": [{"table": "b"}]}, "also"),
        ({"credentials": {"tokn": "x"}}, {}, "tokn"), ({"credentials": {"token": "{{ env('NOT_SET_X') }}"}}, {}, "NOT_SET_X"),
        ({"credentials": {"token": "x", "username": "u", "password": "p"}}, {}, "one of the two"),
        ({"credentials": {"header.Host": "x"}}, {}, "set by kpipe"), ({"credentials": {"token": "a\nb"}}, {}, "ASCII"),
        ({"credentials": {"signing_secret": "x"}}, {}, "at least 24 bytes, found"),
        ({"url": "http://example.com/x"}, {}, "use https"),
        ({"url": None, "credentials": {"url": "nothing"}}, {}, "invalid address"), ({"database": ":memory:"}, {}, "forget"),
    ],
)  # fmt: skip
def test_destinations_that_cannot_be_say_why(tmp_path: Path, into: dict[str, Any], more: dict[str, Any], words: str) -> None:
    with pytest.raises((InvalidPipeline, NotAvailable), match=words):
        open_destination(pipeline(into, **more), Home.at(tmp_path))


@each_case(
    "field", [{"url": "https://u:canary@x/"}, {"headers": {"Authorization": "canary"}}, {"headers": {"X-Api-Key": "canary"}}]
)
def test_what_may_be_a_secret_in_the_wrong_place_is_not_shown(field: dict[str, Any]) -> None:
    attributes = pipeline({}).to_dict()
    attributes["into"] |= field
    with pytest.raises(InvalidPipeline, match="credentials") as caught:
        from_yaml(json.dumps({"type": "kpipe_assets.KafkaPipeline", "attributes": attributes}))
    assert "canary" not in str(caught.value)


def test_an_address_that_is_a_secret_is_shown_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK", "https://hooks.example/services/T0/canary")
    made = open_destination(pipeline({"url": None, "credentials": {"url": "{{ env('HOOK') }}"}}), Home.at(tmp_path))
    assert "canary" not in made.describe() + repr(vars(made)) and "https://hooks.example" in made.describe()


@each_case(
    ("url", "echo"),
    [
        ("https://h/a/canary-1234?b=1", '{"path":"/a/canary-1234"}'), ("https://h/a/canary-1234?b=1", "no hook canary-1234"),
        ("https://h/a/canary-1234/", "Cannot POST /a/canary-1234/"), ("https://h/canary%2D1234", "canary-1234 and canary%2D1234"),
        ("https://h/x?code=canary&v=1", '{"error":"key canary is not valid"}'), ("https://h/x?canary-1234", "canary-1234"),
        ("https://h/x?v=1;sig=canary%3D", "canary= and canary%3D"), ("https://h/x?k=canary+1234", "canary 1234 and canary+1234"),
        ("https://h/x?id=canary-1234==", "no canary-1234=="),
    ],
)  # fmt: skip
def test_a_part_of_a_secret_address_is_masked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, echo: str) -> None:
    monkeypatch.setenv("HOOK", url)
    made = open_destination(pipeline({"url": None, "credentials": {"url": "{{ env('HOOK') }}"}}), Home.at(tmp_path))
    assert isinstance(made, WebhookDestination)
    assert "canary" not in redact(echo, made._endpoint.secrets)
    assert redact("POST api hooks v1: invalid", made._endpoint.secrets) == "POST api hooks v1: invalid"
