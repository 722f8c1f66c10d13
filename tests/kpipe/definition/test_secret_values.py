"""The rule for secrets in definitions: what a credential may be, which other values may hide a secret, and their masks."""

from __future__ import annotations

from typing import Any

import pytest

from kpipe.definition.references import from_statement, is_reference
from kpipe.definition.secret_values import is_secret_name, masked, problem, shown, suggests_secret
from tests.cases import each_case

PASSWORD = ("source", "credentials", "sasl.password")


@each_case(
    "text",
    [
        "{{ env('A') }}", '{{env("A")}}', "{{ file('/run/a b') }}", "{{ command('/bin/get -x') }}",
        '{{ command("/bin/get \'a\'") }}',
        "Bearer {{ env('A') }}", "basic {{ env('A') }}", "Token {{ file('/a') }}", "{{ env('A') }} {{ env('B') }}",
        "{{ env('U') }}:{{ file('/p') }}", "{{ env('A') }}{{ env('B') }}", "${env:A}", "${file:/a}", "${command:/bin/get x}",
    ],
)  # fmt: skip
def test_references_are_no_literals(text: str) -> None:
    assert is_reference(from_statement(text))
    assert problem(PASSWORD, from_statement(text)) is None
    assert shown(PASSWORD, from_statement(text)) == from_statement(text)


@each_case(
    "text",
    [
        "SEKRET", "", " ", "***", "abc${env:X}", "${env:X}abc", "sid=SEKRET;b=${env:HOME}", "${env:A}SEKRET${env:B}",
        "{{ env('NOPE', 'SEKRET') }}", "{{ env('NOPE','') }}", "${env:NOPE:-SEKRET}", "${env:NOPE:SEKRET}", "${env:A",
        "{{ env('A') }", "{{ secret('A') }}", "{{SEKRET}}", "${SEKRET}", "$${env:A}", "Bearer SEKRET",
        "Basic SEKRET {{ env('A') }}",
        "{{ env('A') }}\n", "\0", "Bearer \0", "{{ env('A') }}::{{ env('B') }}", "https://h/{{ env('A') }}",
    ],
)  # fmt: skip
def test_all_else_in_a_credential_is_a_literal(text: str) -> None:
    kept = from_statement(text)
    assert not is_reference(kept)
    for path in (PASSWORD, ("into", "credentials", "header.X-A"), ("lookups", "l", "credentials", "token")):
        what, hint = problem(path, kept) or ("", "")
        assert "would be stored" in what and "SEKRET" not in what + hint
        assert shown(path, kept) == "***"


@each_case(
    ("name", "text", "stored", "visible"),
    [
        ("sasl.username", "loader", True, True), ("sasl.username", "{{ env('U', 'loader') }}", True, True),
        ("sasl.username", "a{{ env('U') }}", True, True), ("sasl.username", "${env:U:x}", False, True),
        ("username", "loader", True, False), ("schema.registry.username", "loader", True, False),
        ("username", "{{ env('U', 'loader') }}", True, False), ("username", "{{ env('U') }}", True, True),
        ("header.username", "loader", False, False), ("header.X-Token.username", "loader", False, False),
        ("account.name", "loader", False, False),
    ],
)  # fmt: skip
def test_a_users_name_may_be_a_literal(name: str, text: str, stored: bool, visible: bool) -> None:
    path = ("into", "credentials", name)
    assert ((problem(path, text) is None), shown(path, text) == text) == (stored, visible)
    divided = ("into", "credentials", *name.split("."))
    assert (problem(divided, text), shown(divided, text)) == (problem(path, text), shown(path, text))


SECRET_NAMES = (
    "X-Api-Key", "apikey", "X-Auth-Token", "Cookie", "X-Session-Id", "Proxy-Authorization", "X-Auth", "X-Pass", "X-Pwd", "X-Sig",
    "X-Bearer", "x_pw", "xApiKey", "UserPass", "X-Creds", "X-Jwt", "X-OTP", "sid", "X-Hmac", "X-Sign", "access_token", "sig",
    "X-Amz-Signature", "Ocp-Apim-Subscription-Key", "client_secret", "passphrase",
)  # fmt: skip
HARMLESS_NAMES = (
    "Content-Type", "X-Author", "Keyboard-Layout", "X-Tenant", "X-Request-Id", "Accept", "X-Compass", "X-Signal", "X-Bypass",
    "X-Spinner", "traceparent", "X-Monkey", "api-version", "X-Design",
)  # fmt: skip


@pytest.mark.parametrize(("name", "secret"), [*((n, True) for n in SECRET_NAMES), *((n, False) for n in HARMLESS_NAMES)])
def test_names_of_headers_and_parameters(name: str, secret: bool) -> None:
    assert is_secret_name(name) is secret
    assert (problem(("into", "headers", name), "1") is not None) is secret
    assert (problem(("into", "url"), f"https://h/x?a=1&{name}=SEKRET") is not None) is secret


@each_case(
    ("text", "secret"),
    [
        ("Bearer SEKRET", True), ("bearer eyJhbGciOiJIUzI1NiJ9.e30.x", True), ("Basic dTpTRUtSRVQ=", True), ("Token 12ab", True),
        ("ApiKey SEKRET", True), ("x eyJhbGciOiJIUzI1NiJ9.e30.x", True), ("1,Authorization:SEKRET", True),
        ("a=1; session=SEKRET", True), ('{"token": "SEKRET"}', True), ("https://u:SEKRET@h/", True),
        ("https://h/x?sig=SEKRET", True), ("${env:NOPE:SEKRET}", True), ("${env:A}", True), ("{{ env('A') }}", True),
        ("Basic plan", False), ("text/plain; charset=utf-8", False), ("Token ring", False), ("https://h/x?a=1", False),
        ("gzip;q=1.0, *;q=0", False), ("2:3", False), ("respond-async", False), ("$5", False),
    ],
)  # fmt: skip
def test_values_of_headers_with_harmless_names(text: str, secret: bool) -> None:
    path = ("into", "headers", "X-A")
    assert (problem(path, text) is not None) is secret
    assert shown(path, text) == ("***" if secret else text)


ADDRESSES = [
    (("into", "url"), "https://h/x?token=SEKRET&a=1", "https://h/x?token=***&a=1"),
    (("into", "url"), "https://h/x?a=1&sig=SEKRET%2B", "https://h/x?a=1&sig=***"),
    (("into", "url"), "https://h/x?%74oken=SEKRET", "https://h/x?%74oken=***"),
    (("into", "url"), "https://h/api?code=SEKRET", "https://h/api?code=***"),
    (("into", "url"), "https://h/x#access_token=SEKRET", "https://h/x#access_token=***"),
    (("into", "url"), "https://SEKRET@h/x", "https://***@h/x"),
    (("lookups", "l", "url"), "https://h/x.csv?api_key=SEKRET", "https://h/x.csv?api_key=***"),
    (("format", "registry"), "https://u:SEKRET@r:8081", "https://***@r:8081"),
    (("key_format", "registry"), "u:SEKRET@r:8081", "u:***@r:8081"),
    (("into", "database"), "postgresql://u:SEKRET@h:5432/d", "postgresql://u:***@h:5432/d"),
    (("into", "database"), "postgresql://u:SEK@RET/x@h/d", "postgresql://u:***@h/d"),
    (("into", "database"), "postgresql://u@h/d?sslpassword=SEKRET", "postgresql://u@h/d?sslpassword=***"),
    (("into", "database"), "host=h user=u password = 'SEK RET' dbname=d", "host=h user=u password = *** dbname=d"),
    (("into", "catalog"), "postgresql://u:SEKRET@h/d", "postgresql://u:***@h/d"),
    *((path, *texts) for path in (("source", "files"), ("source", "files", "path"), ("source", "lake", "database")) for texts in (
        ("s3://AKIAX:SEKRET@bucket/in/*.jsonl", "s3://AKIAX:***@bucket/in/*.jsonl"),
        ("AKIAX:SEKRET@bucket/in", "AKIAX:***@bucket/in"),
        ("az://c/in/*.jsonl?sv=1&sig=SEKRET", "az://c/in/*.jsonl?sv=1&sig=***"),
        ("s3://b/a.jsonl?X-Amz-Signature=SEKRET", "s3://b/a.jsonl?X-Amz-Signature=***"),
    )),
    (("source", "config", "sasl.oauthbearer.token.endpoint.url"), "https://i/t?client_secret=SEKRET",
     "https://i/t?client_secret=***"),
    (("source", "config", "sasl.password"), "SEKRET", "***"),
    (("into", "config", "ssl.key.pem"), "SEKRET", "***"),
    (("source", "config", "sasl.password"), 1234, "***"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "value", "visible"), ADDRESSES)
def test_secrets_in_addresses_and_settings_are_masked_in_place(path: tuple[str, ...], value: Any, visible: str) -> None:
    assert shown(path, value) == visible
    what, hint = problem(path, value) or ("", "")
    assert what and hint and "SEKRET" not in what + hint
    assert problem(path, visible) is not None, "a mask is not stored as a value"


def test_a_secret_inside_another_one_is_masked_with_it() -> None:
    assert shown(("into", "database"), "mysql://u:SEKRET?token=SEKRET@h/d") == "mysql://u:***"


@each_case(
    ("path", "value"),
    [
        (("into", "url"), "https://h:8443/@me/x?a=1&sort=key"), (("into", "database"), "postgresql://u@h:5432/d?options=-csearch_path%3Da"),
        (("into", "database"), "postgresql://u@h1:1,h2:2/d?sslkey=/k.pem&sslcert=/c.pem&passfile=/p"), (("into", "url"), "https://h/x?"),
        (("into", "database"), "mysql://u@h/d?ssl-key=/k.pem&ssl-mode=VERIFY_CA"), (("into", "database"), "data/x@y.duckdb"),
        (("into", "database"), "abfss://c@account.dfs.core.windows.net/key"), (("into", "database"), "s3://bucket/key=a/token=b"),
        (("source", "files", "path"), "/data/a:b/x@y-?.jsonl"),
        (("source", "files", "path"), "s3://bucket/key=a/token=b/?[!a]*.jsonl"),
        (("source", "files", "path"), "abfss://c@account.dfs.core.windows.net/in/**/*.jsonl"),
        (("source", "lake", "database"), "/a:b@c"),
        (("into", "catalog"), "https://host:8181/path"), (("format", "registry"), "r:8081"), (("format", "registry"), "https://r/x?a='b'"),
        (("source", "config", "ssl.key.location"), "/k"), (("source", "config", "allow.plaintext.credentials"), True),
        (("source", "config", "sasl.oauthbearer.token.endpoint.url"), "https://idp.example.com/oauth/token"),
        (("source", "config", "ssl.ca.pem"), "-----BEGIN CERTIFICATE-----"),
        (("source", "config", "schema.registry.username"), "u"),
        (("where",), "url LIKE '%?token=x%'"), (("into", "table"), "tokens"), (("columns", "password"), "VARCHAR"),
        (("into", "url"), None),
    ],
)  # fmt: skip
def test_harmless_values_stay(path: tuple[str, ...], value: Any) -> None:
    assert problem(path, value) is None
    assert shown(path, value) == value


def test_a_whole_definition_is_masked() -> None:
    fields = {
        "source": {"topics": ["a", "b"], "credentials": {"sasl.password": "SEKRET"}, "config": {"client.id": "x", "batch": 3}},
        "lookups": {"l": {"url": "https://h/x", "credentials": {"token": "{{ env('A') }}"}}},
        "set": {"token": "a"},
    }
    expected = {**fields, "source": {**fields["source"], "credentials": {"sasl.password": "***"}}}
    assert masked(fields) == expected


@pytest.mark.parametrize("part", ["://a:", "-eyJ", "{{ env('a','", "?a=' ", "Basic ", '"a:', "x:y,", "http://a"])
def test_a_long_text_takes_time_in_proportion(part: str) -> None:
    """With backtracking over the whole text, this would take minutes."""
    text = part * (50_000 // len(part))
    suggests_secret(text)
    for path in (("into", "headers", "X-A"), ("into", "url"), ("into", "database"), ("source", "config", "client.id")):
        shown(path, text)
    assert shown(PASSWORD, text) == "***"


@each_case(
    ("statement", "suggests"),
    [
        ("CREDENTIALS '{}'", True), ("IN postgres 'postgresql://u:SEKRET@h/d'", True), ("URL 'https://h/?sig=SEKRET'", True),
        ("""'{"headers": {"X": "SEKRET"}}'""", True), ("'Bearer SEKRET'", True), ("'eyJhbGciOiJIUzI1NiJ9.e30.x'", True),
        ("SELECT key FROM t WHERE key = 'a'", False), ("KAFKA 'h:9092/t' INTO TABLE t IN mysql 'mysql://u@h:3306/d'", False),
    ],
)  # fmt: skip
def test_statements_that_are_masked(statement: str, suggests: bool) -> None:
    assert suggests_secret(statement) is suggests
