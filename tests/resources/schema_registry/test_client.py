"""The registry's client: what it asks, what it remembers, and whose fault it is when there is no schema."""

from __future__ import annotations

import json
import threading
import uuid
from base64 import b64encode
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from kpipe.definition.formats import Format
from kpipe.definition.pipeline import Source
from kpipe.errors import CredentialsRefused, InvalidPipeline, RegistryFailed
from kpipe.schema.columns import Columns
from resources.decode.block import Payloads
from resources.decode.factory import decoder
from resources.kafka.client_config import client_config, registry_access, secrets
from resources.schema_registry import client, schemas
from resources.schema_registry.client import Registry, UnknownSchema
from resources.schema_registry.config import Access, address, check_registry
from tests.registry import LocalRegistry, framed, register

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
    ours = Registry(local_registry.url, clock=lambda: now)
    for _ in range(3):
        with pytest.raises(UnknownSchema, match="schema 1 is not in the registry"):
            ours.schema(1)
    register(local_registry.url, "s", RECORD)
    with pytest.raises(UnknownSchema):
        ours.schema(1)
    assert local_registry.asked == ["/schemas/ids/1"]
    now += 11
    for _ in range(3):
        assert ours.schema(1).kind == "AVRO"
    local_registry.fault = "500"
    now += 1e9
    ours.schema(1)
    assert local_registry.asked == ["/schemas/ids/1"] * 2


def test_an_unknown_id_is_the_records_fault(registry_url: str) -> None:
    with pytest.raises(UnknownSchema):
        Registry(registry_url).schema(2**31 - 1)


def test_a_reference_that_is_gone_and_one_to_itself_are_the_schemas_fault(local_registry: LocalRegistry) -> None:
    gone = [{"name": "X", "subject": "nowhere/else", "version": 3}]
    number = register(local_registry.url, "a", RECORD, references=gone)
    with pytest.raises(UnknownSchema, match="refers to 'nowhere/else' version 3, which is not in the registry"):
        Registry(local_registry.url).schema(number)
    assert local_registry.asked[-1] == "/subjects/nowhere%2Felse/versions/3"
    loop = [{"name": "L", "subject": "loop", "version": 1}]
    number = register(local_registry.url, "loop", {**RECORD, "name": "L"}, references=loop)
    with pytest.raises(UnknownSchema, match="refers to itself"):
        Registry(local_registry.url).schema(number)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("500", "expected a schema, found HTTP 500"),
        ("page", "expected a schema, found HTTP 404 without a JSON object"),
        ("redirect", r"a redirect \(HTTP 302\), which kpipe does not follow"),
        ("slow", "did not answer within 2 s"),
    ],
)
def test_no_answer_is_the_batchs_fault(local_registry: LocalRegistry, fault: str, words: str) -> None:
    number = register(local_registry.url, "s", RECORD)
    ours = Registry(local_registry.url, Access(timeout_s=2 if fault == "slow" else 30))
    local_registry.fault = fault
    with pytest.raises(RegistryFailed, match=words) as failed:
        ours.schema(number)
    assert failed.value.retriable
    local_registry.fault = ""
    assert ours.schema(number).kind == "AVRO", "it is asked again at once"


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
    moved = {"config": {**source.config, "schema.registry.username": "n"}, "credentials": {"schema.registry.password": "p"}}
    assert registry_access(source.model_copy(update=moved)).username == "n"


@pytest.mark.parametrize(
    ("config", "credentials", "words"),
    [
        ({"schema.registry.timeout.ms": "soon"}, {}, "write milliseconds"),
        ({"schema.registry.url": "x"}, {}, "not a setting"),
        ({"schema.registry.password": "x"}, {}, "is a secret"),
        ({}, {"schema.registry.ssl.ca.location": "x"}, "move it to source.config"),
        ({}, {"schema.registry.username": "u"}, "together, found one"),
        ({"schema.registry.username": "u"}, {}, "together, found one"),
        ({}, {"schema.registry.username": "u", "schema.registry.password": "p", "schema.registry.token": "t"}, "found both"),
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


# -- what hostile records and hostile schemas cost


def test_schemas_that_refer_to_others_have_one_limit_of_bytes(
    local_registry: LocalRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schemas, "LARGEST", 10_000)
    refers = []
    for n in range(20):
        register(local_registry.url, f"s{n}", {"type": "enum", "name": f"E{n}", "symbols": ["A"], "doc": "x" * 3000})
        refers.append({"name": f"E{n}", "subject": f"s{n}", "version": 1})
    number = register(local_registry.url, "whole", RECORD, references=refers)
    with pytest.raises(UnknownSchema, match="the schema and its references have more than 10,000 bytes"):
        Registry(local_registry.url).schema(number)
    assert len(local_registry.asked) <= 5
    number = register(local_registry.url, "part", RECORD, references=refers[:2])
    assert len(Registry(local_registry.url).schema(number).references) == 2


@pytest.mark.parametrize(
    "references", [5, "x", {"a": 1}, [5], [{"name": "a"}], [{"name": "a", "subject": "b", "version": 1e999}]]
)
def test_references_that_are_none_are_the_schemas_fault(local_registry: LocalRegistry, references: object) -> None:
    local_registry.schemas[1] = {"schema": json.dumps(RECORD), "references": references}
    with pytest.raises(UnknownSchema, match="invalid references: expected name, subject and version"):
        Registry(local_registry.url).schema(1)


def test_all_requests_for_one_schema_have_one_deadline(local_registry: LocalRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_PATIENCE", 0)
    number = register(local_registry.url, "s", RECORD)
    with pytest.raises(RegistryFailed, match="did not answer within") as failed:
        Registry(local_registry.url).schema(number)
    assert failed.value.retriable


def test_caches_are_bounded_and_drop_what_was_not_used_for_longest(
    local_registry: LocalRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_MOST_KNOWN", 3)
    monkeypatch.setattr(client, "_MOST_UNKNOWN", 3)
    for n in range(5):
        register(local_registry.url, f"s{n}", {**RECORD, "name": f"R{n}"})
    ours = Registry(local_registry.url, clock=lambda: 1.0)
    for number in (1, 2, 3, 1, 4, 1, 5, 1):
        ours.schema(number)
    assert local_registry.asked == [f"/schemas/ids/{n}" for n in (1, 2, 3, 4, 5)], "1 is used all the time"
    ours.schema(2)
    assert len(local_registry.asked) == 6 and len(ours._known) == 3
    for number in range(100, 110):
        with pytest.raises(UnknownSchema):
            ours.schema(number)
    assert len(ours._unknown) == 3
    monkeypatch.setattr(client, "_MOST_KNOWN_BYTES", 10)
    ours.schema(3)
    assert len(ours._known) == 1 and ours._known_bytes == ours.schema(3).size


def test_threads_share_a_request_and_wait_for_no_other(local_registry: LocalRegistry) -> None:
    """No lock is held during a request: an id that is slow holds up its own readers only."""
    register(local_registry.url, "s", RECORD)
    register(local_registry.url, "t", {**RECORD, "name": "T"})
    ours, gate, entered = Registry(local_registry.url), threading.Event(), threading.Event()
    real = ours._get

    def get(path: str, *more: Any) -> Any:
        if path.endswith("/1"):
            entered.set()
            assert gate.wait(300)
        return real(path, *more)

    ours._get = get  # type: ignore[method-assign]
    with ThreadPoolExecutor(4) as threads:
        slow = [threads.submit(ours.schema, 1) for _ in range(3)]
        assert entered.wait(300)
        assert threads.submit(ours.schema, 2).result(300).kind == "AVRO"
        gate.set()
        assert {one.result(300).text for one in slow} == {ours.schema(1).text}
    assert sorted(local_registry.asked) == ["/schemas/ids/1", "/schemas/ids/2"]


def test_threads_share_a_failure_and_the_next_one_asks_again(local_registry: LocalRegistry) -> None:
    register(local_registry.url, "s", RECORD)
    local_registry.fault = "500"
    ours = Registry(local_registry.url)
    with ThreadPoolExecutor(4) as threads:
        failed = [one.exception(60) for one in [threads.submit(ours.schema, 1) for _ in range(4)]]
    assert all(isinstance(error, RegistryFailed) for error in failed)
    local_registry.fault = ""
    assert ours.schema(1).kind == "AVRO"


def test_a_block_of_made_up_ids_costs_few_requests(local_registry: LocalRegistry) -> None:
    """Each record is a dead letter with its own reason, and those with a schema are rows, however many others there are."""
    old = register(local_registry.url, "s", RECORD)
    new = register(local_registry.url, "t", {**RECORD, "name": "T"})
    reads = decoder(Format(type="avro", registry=local_registry.url), Columns.of({"id": "BIGINT"}))
    made_up = [framed(1_000_000 + n, b"") for n in range(3000)]
    good = [framed(old, b"\x02"), framed(new, b"\x04"), framed(new, b"\x06")]
    for _ in range(2):
        found = reads.decode(Payloads.of([good[0], *made_up, *good[1:]]))
        assert found.table.to_pylist() == [{"id": 1}, {"id": 2}, {"id": 3}] and len(found.rejects) == 3000
    reasons = [why for _, why in found.rejects]
    assert sum(why.endswith("is not in the registry") for why in reasons) == 16
    assert (
        sum(f"schema {1_002_999} was not looked up: 16 other ids of this block are not in the registry" in why for why in reasons)
        == 1
    )
    assert len(local_registry.asked) <= 2 + 16, "and the second block none: they are remembered for some seconds"


def test_the_newest_version_of_a_subject_is_asked_for_each_time(local_registry: LocalRegistry) -> None:
    ours, name = Registry(local_registry.url), named()
    assert ours.latest(name) is None
    for number in (1, 2):
        first = register(local_registry.url, name, {**RECORD, "doc": str(number)})
        found = ours.latest(name)
        assert found is not None and (found[0], found[1].kind, json.loads(found[1].text)["doc"]) == (first, "AVRO", str(number))
    local_registry.fault = "500"
    with pytest.raises(RegistryFailed, match="expected a schema, found HTTP 500"):
        ours.latest(name)
