"""The registry's client: what it asks, what it remembers, and whose fault it is when there is no schema."""

from __future__ import annotations

import json
import uuid
from base64 import b64encode
from pathlib import Path

import pytest

from kpipe.errors import CredentialsRefused, InvalidPipeline, RegistryFailed
from kpipe.formats import Format
from kpipe.pipeline import Source
from resources.kafka.config import client_config, registry_access, secrets
from resources.registry.access import Access, address, check_registry
from resources.registry.client import Registry, UnknownSchema
from tests.registry import LocalRegistry, register

RECORD = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}


def named() -> str:
    return f"s{uuid.uuid4().hex[:8]}"


def test_a_schema_comes_with_all_that_it_refers_to_and_what_is_needed_first_comes_first(registry_url: str) -> None:
    inner, middle = named(), named()
    register(registry_url, inner, {"type": "enum", "name": "Kind", "symbols": ["A"]})
    part = {"type": "record", "name": "Part", "fields": [{"name": "kind", "type": "Kind"}]}
    register(registry_url, middle, part, references=[{"name": "Kind", "subject": inner, "version": 1}])
    whole = {"type": "record", "name": "W", "fields": [{"name": "part", "type": "Part"}]}
    refers = [{"name": "Part", "subject": middle, "version": 1}]
    found = Registry(registry_url).schema(register(registry_url, named(), whole, references=refers))
    assert (found.kind, json.loads(found.text)["name"]) == ("AVRO", "W")
    assert [(name, json.loads(text)["name"]) for name, text in found.references] == [("Kind", "Kind"), ("Part", "Part")]


def test_a_known_id_is_asked_for_once_and_an_unknown_one_again_later(local_registry: LocalRegistry) -> None:
    now = 100.0
    client = Registry(local_registry.url, clock=lambda: now)
    for _ in range(3):
        with pytest.raises(UnknownSchema, match="schema 1 is not known to the registry"):
            client.schema(1)
    register(local_registry.url, "s", RECORD)
    with pytest.raises(UnknownSchema):
        client.schema(1)
    assert local_registry.asked == ["/schemas/ids/1"]
    now += 11
    for _ in range(3):
        assert client.schema(1).kind == "AVRO"
    local_registry.fault = "500"
    now += 1e9
    client.schema(1)
    assert local_registry.asked == ["/schemas/ids/1"] * 2


def test_an_unknown_id_is_the_records_fault(registry_url: str) -> None:
    with pytest.raises(UnknownSchema):
        Registry(registry_url).schema(2**31 - 1)


def test_a_reference_that_is_gone_and_one_to_itself_are_the_schemas_fault(local_registry: LocalRegistry) -> None:
    gone = [{"name": "X", "subject": "nowhere/else", "version": 3}]
    number = register(local_registry.url, "a", RECORD, references=gone)
    with pytest.raises(UnknownSchema, match="refers to 'nowhere/else' version 3, which is not known"):
        Registry(local_registry.url).schema(number)
    assert local_registry.asked[-1] == "/subjects/nowhere%2Felse/versions/3"
    loop = [{"name": "L", "subject": "loop", "version": 1}]
    number = register(local_registry.url, "loop", {**RECORD, "name": "L"}, references=loop)
    with pytest.raises(UnknownSchema, match="refers to itself"):
        Registry(local_registry.url).schema(number)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("500", "answers HTTP 500"),
        ("page", "answers HTTP 404, and not as a registry does"),
        ("redirect", "redirects elsewhere, which is not followed"),
        ("slow", "did not answer within 2 s"),
    ],
)
def test_no_answer_is_the_batchs_fault(local_registry: LocalRegistry, fault: str, words: str) -> None:
    number = register(local_registry.url, "s", RECORD)
    client = Registry(local_registry.url, Access(timeout_s=2 if fault == "slow" else 30))
    local_registry.fault = fault
    with pytest.raises(RegistryFailed, match=words) as failed:
        client.schema(number)
    assert failed.value.retriable
    local_registry.fault = ""
    assert client.schema(number).kind == "AVRO", "it is asked again at once"


def test_a_schema_beyond_all_measure_is_not_read_to_its_end(local_registry: LocalRegistry) -> None:
    local_registry.fault = "huge"
    with pytest.raises(UnknownSchema, match="more than 8,388,608 bytes"):
        Registry(local_registry.url).schema(1)


def test_nobody_listens(free_port: object) -> None:
    with pytest.raises(RegistryFailed, match="cannot be reached") as failed:
        Registry("127.0.0.1:1", Access(password="hunter2", username="u")).schema(1)
    assert "hunter2" not in str(failed.value) and failed.value.retriable


def test_credentials_are_sent_and_refused_and_never_shown(local_registry: LocalRegistry) -> None:
    number = register(local_registry.url, "s", RECORD)
    basic, bearer = Access(username="u", password="p:w"), Access(token="t0ken")
    for access, header in ((basic, "Basic " + b64encode(b"u:p:w").decode()), (bearer, "Bearer t0ken")):
        local_registry.wanted = header
        assert Registry(local_registry.url, access).schema(number)
    with pytest.raises(CredentialsRefused, match="HTTP 401") as refused:
        Registry(local_registry.url, basic).schema(number)
    assert "p:w" not in str(refused.value)


def test_settings_of_the_source_that_are_the_registrys() -> None:
    source = Source(
        brokers="b:1",
        topic="t",
        config={"schema.registry.timeout.ms": 500, "schema.registry.ssl.ca.location": "/ca.pem"},
        credentials={"schema.registry.username": "u", "schema.registry.password": "{{ env('PW') }}"},
    )
    found = registry_access(source, {"PW": "hunter2"})
    assert (found.username, found.password, found.ca, found.timeout_s) == ("u", "hunter2", "/ca.pem", 0.5)
    assert "hunter2" not in repr(found)
    assert secrets(source, {"PW": "hunter2"}) == ("hunter2",)
    assert not [key for key in client_config(source, {"PW": "x"}) if key.startswith("schema.registry")]


@pytest.mark.parametrize(
    ("config", "credentials", "words"),
    [
        ({"schema.registry.timeout.ms": "soon"}, {}, "write milliseconds"),
        ({"schema.registry.url": "x"}, {}, "not a setting"),
        ({"schema.registry.password": "x"}, {}, "is a secret"),
        ({}, {"schema.registry.ssl.ca.location": "x"}, "move it to source.config"),
        ({}, {"schema.registry.username": "u"}, "go together"),
        ({}, {"schema.registry.username": "u", "schema.registry.password": "p", "schema.registry.token": "t"}, "two ways"),
    ],
)
def test_wrong_settings_are_refused_by_name(config: dict[str, str], credentials: dict[str, str], words: str) -> None:
    source = Source(brokers="b:1", topic="t", config=config, credentials=credentials)
    with pytest.raises(InvalidPipeline, match=words):
        client_config(source), registry_access(source)


def test_addresses() -> None:
    assert address("registry:8081") == "http://registry:8081"
    assert address("https://r/apis/v7/") == "https://r/apis/v7"
    for wrong in ("", "ftp://r", "http://r:port", "http://r/?x=1", "http://user:hunter2@r"):
        with pytest.raises(InvalidPipeline) as refused:
            address(wrong)
        assert "hunter2" not in str(refused.value)


def test_credentials_leave_this_machine_over_tls_only() -> None:
    access = Access(token="t")
    for fine in ("https://r", "localhost:8081", "127.0.0.1:1", "http://[::1]:8081"):
        check_registry(Format(registry=fine), access)
    check_registry(Format(registry="r:8081"), Access())
    check_registry(Format(registry="r:8081"), Access(token="t", clear=True))
    with pytest.raises(InvalidPipeline, match="unencrypted"):
        check_registry(Format(registry="r:8081"), access)


def test_files_of_tls_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(RegistryFailed, match="cannot be read"):
        Registry("https://r", Access(ca=str(tmp_path / "none.pem")))
