"""Settings of the client: what is let through, what is not, and that no secret shows."""

from __future__ import annotations

import pickle
import traceback
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient
from hypothesis import given
from hypothesis import strategies as st

from kpipe.definition.pipeline import Source
from kpipe.errors import InvalidPipeline
from resources.kafka.allowed_settings import ALLOWED, DEFAULTS, FIXED, SECRETS
from resources.kafka.client_config import admin_config, client_config, secrets
from resources.secrets import MASK, Secret, redact, secrets_in
from tests.cases import each_case

SASL = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}
PASSWORD = {"sasl.username": "me", "sasl.password": "{{ env('PASSWORD') }}"}


def source(config: dict[str, Any] | None = None, credentials: dict[str, str] | None = None) -> Source:
    return Source(brokers="localhost", topic="t", config=config or {}, credentials=credentials or {})


def said(error: BaseException) -> str:
    """What a traceback would print of an error and of those chained to it, without the lines of source."""
    told = traceback.TracebackException.from_exception(error)
    chain = [told]
    while (told := told.__cause__ or (None if told.__suppress_context__ else told.__context__)) is not None:  # type: ignore[assignment]
        chain.append(told)
    return f"{error!r}" + "".join(line for each in chain for line in each.format_exception_only())


def refused(config: dict[str, Any] | None = None, credentials: dict[str, str] | None = None) -> InvalidPipeline:
    with pytest.raises(InvalidPipeline) as error:
        client_config(source(config, credentials), {"PASSWORD": "hunter2-hunter2"})
    assert "hunter2" not in said(error.value)
    return error.value


def test_nothing_given() -> None:
    assert client_config(source(), {}) == {**DEFAULTS, **FIXED, "bootstrap.servers": "localhost:9092"}


def test_what_is_given_replaces_defaults_and_never_what_is_fixed() -> None:
    config = client_config(source({"fetch.wait.max.ms": 100, "client.id": "me", "socket.keepalive.enable": True}), {})
    assert config["fetch.wait.max.ms"] == "100"
    assert config["client.id"] == "me"
    assert config["socket.keepalive.enable"] == "true"
    assert {key: config[key] for key in FIXED} == FIXED
    assert (config["auto.offset.reset"], config["isolation.level"]) == ("error", "read_committed")
    assert (config["enable.auto.commit"], config["check.crcs"]) == (False, True)


@each_case("key", sorted(FIXED))
def test_what_is_fixed_cannot_be_given(key: str) -> None:
    assert key in refused({key: "anything"}).what


@each_case(
    ("key", "reason"),
    [
        ("plugin.library.paths", "load or run code"),
        ("sasl.kerberos.kinit.cmd", "load or run code"),
        ("ssl.engine.location", "load or run code"),
        ("ssl.providers", "load or run code"),
        ("error_cb", "load or run code"),
        ("sasl.oauthbearer.assertion.file", "client credentials only"),
        ("sasl.oauthbearer.config", "sasl.oauthbearer.token"),
        ("oauth_cb", "load or run code"),
        ("enable.sasl.oauthbearer.unsecure.jwt", "unsigned tokens"),
        ("enable.ssl.certificate.verification", "ssl.ca.location"),
        ("ssl.endpoint.identification.algorithm", "ssl.ca.location"),
        ("group.id", "ledger"),
        ("enable.auto.commit", "ledger"),
        ("isolation.level", "committed records only"),
        ("auto.offset.reset", "source.start"),
        ("debug", "confidential data"),
        ("bootstrap.servers", "source.brokers"),
        ("test.mock.num.brokers", "mock"),
    ],
)
def test_dangerous_settings_are_refused_with_the_reason(key: str, reason: str) -> None:
    error = refused({key: "hunter2"})
    assert key in error.what
    assert reason in error.what
    assert refused(None, {key: "hunter2"}).what.count(key) == 1


def test_unknown_settings_are_refused_with_what_is_like_them() -> None:
    error = refused({"fetch.max.byte": 1})
    assert "fetch.max.byte is not a setting" in error.what
    assert "fetch.max.bytes" in error.hint


@each_case("key", sorted(SECRETS))
def test_secrets_belong_under_credentials(key: str) -> None:
    error = refused({**SASL, key: "hunter2"})
    assert key in error.what
    assert "source.credentials" in error.hint


def test_a_plain_setting_does_not_belong_under_credentials() -> None:
    error = refused(SASL, {"client.id": "hunter2"})
    assert "client.id is not a credential" in error.what
    assert "move it to source.config" in error.hint


def test_given_twice() -> None:
    assert "sasl.username" in refused({**SASL, "sasl.username": "me"}, PASSWORD).what


@each_case("protocol", ["sasl_plaintext", "SASL_PLAINTEXT"])
def test_credentials_in_the_clear_need_a_word(protocol: str) -> None:
    error = refused({"security.protocol": protocol, "sasl.mechanism": "PLAIN"}, PASSWORD)
    assert "allow.plaintext.credentials: true" in error.hint
    asked = {"security.protocol": protocol, "sasl.mechanism": "PLAIN", "allow.plaintext.credentials": True}
    config = client_config(source(asked, PASSWORD), {"PASSWORD": "x"})
    assert "allow.plaintext.credentials" not in config
    assert "allow.plaintext.credentials" in refused({**asked, "allow.plaintext.credentials": "maybe"}, PASSWORD).what


@each_case("config", [{}, {"security.protocol": "PLAINTEXT"}, {"security.protocol": "SSL"}])
def test_credentials_that_would_silently_not_be_used(config: dict[str, Any]) -> None:
    assert "sasl.password, sasl.username would not be used" in refused(config, PASSWORD).what


def test_values_that_kafka_does_not_have() -> None:
    assert "security.protocol" in refused({"security.protocol": "tls"}).what
    assert "sasl.mechanism" in refused({**SASL, "sasl.mechanism": "DIGEST-MD5"}, PASSWORD).what
    assert "{{ env('NAME') }}" in refused(SASL, {**PASSWORD, "sasl.password": "{{ vault('hunter2') }}"}).hint


def test_missing_and_empty_variables_are_named() -> None:
    for environ, text in ({}, "PASSWORD is not set"), ({"PASSWORD": " "}, "sasl.password is empty"):
        with pytest.raises(InvalidPipeline, match=text):
            client_config(source(SASL, PASSWORD), environ)


def test_a_small_largest_response_takes_the_fetch_with_it() -> None:
    config = client_config(source({"receive.message.max.bytes": 5000}), {})
    Consumer(config).close()
    assert config["fetch.max.bytes"] == 5000 - 512


def test_the_client_takes_every_setting_that_is_allowed(tmp_path: Any) -> None:
    numbers = {key: 1000 for key in ALLOWED if key.split(".")[-1] in ("ms", "bytes", "kbytes", "messages", "ttl")}
    config = {
        **numbers,
        **dict.fromkeys(("max.in.flight", "socket.max.fails"), 1),
        **dict.fromkeys(("socket.keepalive.enable", "socket.nagle.disable"), True),
        "receive.message.max.bytes": 2000,
        "broker.address.family": "v4",
        "client.dns.lookup": "use_all_dns_ips",
        "client.id": "x",
        "client.rack": "x",
        "metadata.recovery.strategy": "rebootstrap",
        "sasl.username": "me",
        **SASL,
    }
    for made in (client_config(source(config, {"sasl.password": "x"}), {}),):
        Consumer(made).close()
        AdminClient(admin_config(made))


def test_an_admin_client_has_nothing_to_warn_about(capfd: pytest.CaptureFixture[str]) -> None:
    AdminClient(admin_config(client_config(source({"fetch.min.bytes": 5}), {})))
    assert "CONFWARN" not in capfd.readouterr().err


#: Printable, and long enough not to be a part of a setting's name by chance.
passwords = st.text(st.characters(categories=("L", "N", "P", "S")), min_size=12, max_size=40).filter(lambda x: "{{" not in x)


@given(passwords)
def test_no_secret_in_any_repr(password: str) -> None:
    password = f"§{password}§"
    given = source(SASL, PASSWORD)
    config = client_config(given, {"PASSWORD": password})
    assert config["sasl.password"] == password
    again = pickle.loads(pickle.dumps(config))
    assert again == config
    shown = (config, {**config}, dict(config), list(config.items()), again, ValueError(config), (config["sasl.password"],))
    for thing in shown:
        assert password not in repr(thing)
        assert password not in str(thing)
    assert MASK in repr(config)
    assert set(secrets(given, {"PASSWORD": password})) == {"me", password} == set(secrets_in(again))


@given(passwords, st.text(), st.text())
def test_no_secret_in_a_redacted_text(password: str, before: str, after: str) -> None:
    password = f"§{password}§"
    text = redact(f"{before}{password}{after}", [password, ""])
    assert password not in text
    assert text.isprintable()


@given(passwords)
def test_no_secret_in_an_error(password: str) -> None:
    password = f"§{password}§"
    for config, credentials in (
        (SASL, {"sasl.password": f"{{{{ {password} }}}}"}),
        ({**SASL, "sasl.password": password}, {}),
        ({**SASL, "nonsense": password}, {}),
        ({"security.protocol": password}, PASSWORD),
        (SASL, {"nonsense": password}),
        ({}, {"sasl.password": password}),
    ):
        with pytest.raises(InvalidPipeline) as error:
            client_config(source(config, credentials), {"PASSWORD": password})
        assert password not in said(error.value)


def test_redaction_takes_the_longest_first_and_escapes() -> None:
    assert redact("ab abc", ["ab", "abc"]) == f"{MASK} {MASK}"
    assert redact("a\nb\x1b[31m\u202e", []) == "a\\nb\\x1b[31m\\u202e"
    assert redact("key", ["key\n"]) == MASK
    assert (str(Secret("x")), repr(Secret("x")), f"{Secret('x')}") == ("x", f"'{MASK}'", "x")
