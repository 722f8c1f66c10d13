"""The client of Azure Blob Storage beyond the suite of Delta: keys and tokens, large objects, lost answers, errors."""

from __future__ import annotations

import io
import logging
import os
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from kpipe.definition.pipeline import Pipeline
from kpipe.errors import DestinationError, InvalidPipeline
from resources.destinations import open_destination
from resources.home import Home
from resources.object_store.clients import client, forget, store, use
from resources.object_store.config import StoreAccess
from resources.object_store.store import Store, StoreFailed
from resources.secrets import Secret
from resources.testing.place import batch
from resources.testing.state import begun, proof
from tests.faults.proxy import cut_after, drop_response, pass_, rst
from tests.resources.destinations.lake_place import DeltaStorePlace
from tests.servers.azure import ACCOUNT, KEY, AzureServer


@pytest.fixture
def base(azure: AzureServer, tmp_path: Path) -> Iterator[str]:
    azure.proxy.now(pass_())
    yield f"{azure.base}/{tmp_path.name}"
    azure.proxy.now(pass_())
    forget()


@pytest.fixture
def held(azure: AzureServer) -> Store:
    return client(azure.access())


def token(**more: Any) -> Secret:
    from azure.storage.blob import AccountSasPermissions, ResourceTypes, generate_account_sas

    allowed = {"read": True, "write": True, "delete": True, "list": True, "create": True, "add": True}
    ends = datetime.now(timezone.utc) + timedelta(days=1)
    types = ResourceTypes(service=True, container=True, object=True)
    return Secret(generate_account_sas(ACCOUNT, KEY, types, AccountSasPermissions(**(allowed | more)), ends))


def signature(sas: str) -> str:
    return parse_qs(sas)["sig"][0]


def signed(azure: AzureServer, sas: Secret) -> StoreAccess:
    return StoreAccess(azure.endpoint, "", (("account.name", Secret(ACCOUNT)), ("sas.token", sas)), "azure")


def definition(database: str, **credentials: str) -> Pipeline:
    source = {"brokers": "localhost:9092", "topic": "tweets"}
    into = {"type": "delta", "table": "tweets", "database": database, "credentials": credentials}
    return Pipeline.model_validate({"name": "tweets", "source": source, "into": into})


def test_large_objects_arrive_in_blocks(held: Store, base: str) -> None:
    data = os.urandom(20 << 20)
    held.put(f"{base}/large", io.BytesIO(data))
    found = held.head(f"{base}/large")
    assert found is not None and found.size == len(data) and found.sha256
    assert held.get(f"{base}/large") == data
    assert held.get(f"{base}/large", 9 << 20, (9 << 20) + 5) == data[9 << 20 : (9 << 20) + 5]
    assert held.get(f"{base}/large", len(data) - 3) == data[-3:]
    held.put(f"{base}/empty", b"")
    assert held.get(f"{base}/empty") == b""


def test_large_objects_are_claimed_once(held: Store, base: str) -> None:
    """The condition holds for the list of blocks, too."""
    first, second = os.urandom(9 << 20), os.urandom(9 << 20)
    assert held.put_new(f"{base}/x", first) and not held.put_new(f"{base}/x", second) and held.put_new(f"{base}/x", first)
    assert held.get(f"{base}/x") == first


def test_lost_answers(azure: AzureServer, held: Store, base: str) -> None:
    azure.proxy.now(drop_response(azure.put))
    held.put(f"{base}/a", b"x")
    assert azure.proxy.struck == 1
    azure.proxy.now(drop_response(b"DELETE "))
    held.remove(f"{base}/a")
    assert azure.proxy.struck == 1 and held.get(f"{base}/a") is None and held.head(f"{base}/a") is None
    held.remove(f"{base}/a")
    held.put(f"{base}/b", b"y" * 100_000)
    azure.proxy.now(cut_after(50_000, times=1))
    assert held.get(f"{base}/b") == b"y" * 100_000


def test_each_put_has_another_tag(held: Store, base: str) -> None:
    """The same bytes, too: the log of a table that was replaced is not taken for the old one."""
    tags = set()
    for _ in range(2):
        held.put(f"{base}/a", b"x")
        found = held.head(f"{base}/a")
        assert found is not None
        tags.add(found.tag)
    assert len(tags) == 2


def test_lists(held: Store, base: str) -> None:
    for name in ("a", "b/c", "b/d", "b/e/f"):
        held.put(f"{base}/{name}", b"x")
    assert [found.uri.removeprefix(base) for found in held.listed(f"{base}/")] == ["/a", "/b/c", "/b/d", "/b/e/f"]
    assert (list(held.names(f"{base}/")), list(held.folders(f"{base}/"))) == (["a"], ["b"])
    assert (list(held.names(f"{base}/b/")), list(held.folders(f"{base}/b/"))) == (["c", "d"], ["e"])
    assert (list(held.names(f"{base}/none/")), list(held.folders(f"{base}/none/"))) == ([], [])


def test_a_container_that_does_not_exist(held: Store) -> None:
    assert held.get("az://nowhere/x") is None
    with pytest.raises(StoreFailed, match="ContainerNotFound") as caught:
        held.put("az://nowhere/x", b"x")
    assert caught.value.status == 404 and not caught.value.passes


def test_a_store_that_is_gone(azure: AzureServer, held: Store, base: str) -> None:
    azure.proxy.now(rst())
    with pytest.raises(StoreFailed) as caught:
        held.get(f"{base}/x")
    assert caught.value.passes and caught.value.status == 0


def test_names_with_their_account(held: Store, base: str, azure: AzureServer) -> None:
    """`abfss://` and `az://` name the same object."""
    held.put(f"{base}/a", b"x")
    other = base.replace("az://lake", f"abfss://lake@{ACCOUNT}.dfs.core.windows.net")
    assert held.get(f"{other}/a") == b"x"
    assert [found.uri for found in held.listed(f"{other}/")] == [f"{other}/a"]
    held.copy(f"{base}/a", f"{other}/b")
    assert held.get(f"{base}/b") == b"x"
    with pytest.raises(StoreFailed, match=f"expected an object of account {ACCOUNT}, found one of acme"):
        held.get("abfss://lake@acme.dfs.core.windows.net/x")


def test_a_table_by_its_accounts_name(azure: AzureServer, tmp_path: Path, base: str) -> None:
    place = DeltaStorePlace(tmp_path, azure)
    place.place = base.replace("az://lake", f"abfss://lake@{ACCOUNT}.dfs.core.windows.net")
    destination = begun(place)
    assert destination.commit(batch(place, destination.ledger()[1], {0: 10})).seq == 2
    assert len(place.rows()) == 10 and proof(place.open()).ok


# -- tokens


def test_a_table_by_a_token(azure: AzureServer, tmp_path: Path, base: str) -> None:
    """kpipe's client and delta-rs read and write with it, and objects are copied."""
    place = DeltaStorePlace(tmp_path, azure)
    place.access = signed(azure, token())
    destination = begun(place)
    for end in range(1, 22):  # beyond a checkpoint
        destination.commit(batch(place, destination.ledger()[1], {0: end}))
    assert len(place.rows()) == 21 and proof(place.open()).ok
    store_ = client(place.access)
    assert [name for name in store_.names(f"{place.place}/tweets/_delta_log/") if "checkpoint" in name]
    store_.copy(f"{place.place}/tweets/_delta_log/_last_checkpoint", f"{place.place}/copy")
    assert store_.get(f"{place.place}/copy")


def test_a_token_is_in_no_error_and_no_log(
    azure: AzureServer, tmp_path: Path, base: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It is part of each URL."""
    sas = token(write=False, create=False, add=False)
    held = client(signed(azure, sas))
    texts = [repr(held.options()), repr(held.access()), repr(vars(held))]
    with caplog.at_level(logging.DEBUG):
        with pytest.raises(StoreFailed) as caught:
            held.put(f"{base}/x", b"x")
        assert caught.value.status == 403
        texts.append(str(caught.value))
        azure.proxy.now(rst())
        with pytest.raises(StoreFailed) as caught:
            held.get(f"{base}/x")
        texts += [str(caught.value), held.hide(f"GET /lake/x?{sas} failed: {signature(sas)}")]
        place = DeltaStorePlace(tmp_path, azure)
        place.access = signed(azure, sas)
        with pytest.raises(DestinationError) as failed:
            place.open().ledger()
        texts.append(str(failed.value))
        azure.proxy.now(pass_())
    assert "urllib3.connectionpool" in {record.name for record in caplog.records}
    for text in (*texts, caplog.text):
        for part in (sas, signature(sas), sas.partition("sig=")[2].partition("&")[0]):
            assert part not in text


def test_tasks_get_what_the_driver_has(azure: AzureServer, base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in azure.environment.items():
        monkeypatch.setenv(name, value)
    forget()
    access = store(base).access()
    for name in azure.environment:
        monkeypatch.delenv(name)
    use(access)
    store(base).put(f"{base}/x", b"x")
    assert store(base).get(f"{base}/x") == b"x" and KEY not in repr(access)
    use(None)


# -- the definition


@pytest.mark.parametrize(
    ("database", "credentials", "problem"),
    [
        ("az://lake/x", {}, "account.name is missing"),
        ("az://lake/x", {"account.name": "acme"}, "account.key and sas.token are missing"),
        ("az://lake/x", {"account.name": "acme", "account.key": "eA==", "sas.token": "x"}, "found both"),
        ("abfss://lake@acme.dfs.core.windows.net/x", {"account.name": "other", "account.key": "eA=="}, "expected acme"),
        ("az://lake/x", {"access.key.id": "x"}, "access.key.id is not a credential"),
    ],
)
def test_credentials_that_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, database: str, credentials: dict[str, str], problem: str
) -> None:
    pytest.importorskip("azure.storage.blob")
    for name in ("ACCOUNT_NAME", "ACCOUNT_KEY", "SAS_TOKEN", "SAS_KEY"):
        monkeypatch.delenv(f"AZURE_STORAGE_{name}", raising=False)
    with pytest.raises(InvalidPipeline, match=problem):
        open_destination(definition(database, **credentials), Home.at(tmp_path))


def test_the_variables_of_another_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("azure.storage.blob")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "other")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", KEY)
    with pytest.raises(InvalidPipeline, match="AZURE_STORAGE_ACCOUNT_NAME is other, not acme"):
        open_destination(definition("abfss://lake@acme.dfs.core.windows.net/x"), Home.at(tmp_path))


def test_credentials_of_the_definition(azure: AzureServer, tmp_path: Path, base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", azure.endpoint)
    monkeypatch.setenv("THE_KEY", KEY)
    given = {"account.name": ACCOUNT, "account.key": "{{ env('THE_KEY') }}"}
    made = open_destination(definition(base, **given), Home.at(tmp_path))
    assert made.ledger()[0] == "" and base in made.describe() and KEY not in made.describe() + repr(vars(made))
    for wrong, shown in (("d3Jvbmc=", "AuthorizationFailure"), ("not-base64", "account.key")):
        monkeypatch.setenv("THE_KEY", wrong)
        with pytest.raises((DestinationError, InvalidPipeline), match=shown) as caught:
            open_destination(definition(base, **given), Home.at(tmp_path)).ledger()
        assert wrong not in str(caught.value)
