"""What delta-rs gets is complete: the environment decides neither whose credentials are used nor where they go."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from kpipe.definition.pipeline import Pipeline
from kpipe.errors import InvalidPipeline
from resources.destinations import open_destination
from resources.destinations.iceberg.durable import file_io
from resources.destinations.lakehouse.object_store_folder import BucketFolder
from resources.home import Home
from resources.object_store.clients import client, forget, store
from resources.object_store.config import StoreAccess
from resources.secrets import Secret
from resources.testing.place import batch
from resources.testing.state import begun
from tests.resources.destinations.lake_place import DeltaStorePlace
from tests.servers.s3 import KEY, SECRET, S3Server

DEAD = "http://127.0.0.1:1"
PERMANENT = (("access.key.id", Secret("AKIA")), ("secret.access.key", Secret("canary-key")))
ACCOUNT = (("account.name", Secret("acme")), ("account.key", Secret("eA==")))
SERVICE_ACCOUNT = Secret('{"client_email": "a@b", "private_key": "canary-key"}')


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    forget()
    yield
    forget()


def definition(database: str, **credentials: str) -> Pipeline:
    into = {"type": "delta", "table": "orders", "database": database, "credentials": credentials}
    return Pipeline.model_validate({"name": "orders", "source": {"brokers": "localhost", "topic": "orders"}, "into": into})


def test_other_variables_change_nothing(s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = DeltaStorePlace(tmp_path, s3)
    destination = begun(place)
    for name in ("ENDPOINT", "AWS_ENDPOINT", "endpoint_url", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.setenv(name, DEAD)
    for name in ("SKIP_SIGNATURE", "AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "S3_EXPRESS"):
        monkeypatch.setenv(name, "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "another")
    destination.commit(batch(place, destination.ledger()[1], {0: 10}))
    assert len(place.rows()) == 10


@pytest.mark.parametrize("name", ["AWS_SESSION_TOKEN", "TOKEN", "session_token"])
def test_a_session_token_of_another_identity(s3: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.endpoint)
    monkeypatch.setenv("THE_SECRET", SECRET)
    monkeypatch.setenv(name, "canary-token")
    given = {"access.key.id": KEY, "secret.access.key": "{{ env('THE_SECRET') }}"}
    with pytest.raises(InvalidPipeline, match=f"the variable {name} is set, and delta-rs would use it") as caught:
        open_destination(definition(f"{s3.base}/{tmp_path.name}", **given), Home.at(tmp_path))
    assert f"unset {name}" in caught.value.hint and "canary" not in str(caught.value)
    # Temporary credentials have a token of their own.
    access = StoreAccess(s3.endpoint, "us-east-1", (*PERMANENT, ("session.token", Secret("mine"))))
    assert client(access).options()["aws_session_token"] == "mine"


def test_a_role_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """delta-rs ignores the variable, unless another one makes it look for a role in spite of an endpoint."""
    pytest.importorskip("boto3")
    held = client(StoreAccess(DEAD, "us-east-1", PERMANENT))
    monkeypatch.setenv("AWS_IAM_ROLE_ARN", "arn:aws:iam::1:role/other")
    assert held.options()["aws_endpoint"] == DEAD
    monkeypatch.setenv("AWS_S3_LOCKING_PROVIDER", "dynamodb")
    with pytest.raises(InvalidPipeline, match="AWS_IAM_ROLE_ARN"):
        held.options()


def test_the_endpoint_of_a_profile(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """boto3 follows it, so tasks and delta-rs get it."""
    pytest.importorskip("boto3")
    (tmp_path / "config").write_text(f"[profile minio]\nregion = eu-west-1\nendpoint_url = {DEAD}\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    own = store("s3://lake/x", PERMANENT)
    assert own.access().endpoint is None and own.options()["aws_endpoint"] == "https://s3.us-east-1.amazonaws.com"
    monkeypatch.setenv("AWS_PROFILE", "minio")
    held = store("s3://lake/x", PERMANENT)
    assert (held.access().endpoint, held.access().region) == (DEAD, "eu-west-1")
    chosen = {name: held.options()[name] for name in ("aws_endpoint", "aws_endpoint_url_s3", "aws_allow_http", "aws_region")}
    assert chosen == {
        "aws_endpoint": DEAD, "aws_endpoint_url_s3": DEAD, "aws_allow_http": "true", "aws_region": "eu-west-1",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "package", "secrets", "variable"),
    [
        ("s3://lake/x", "boto3", PERMANENT, "AWS_ENDPOINT_URL"),
        ("gs://lake/x", "google.cloud.storage", (), "STORAGE_EMULATOR_HOST"),
        ("az://lake/x", "azure.storage.blob", ACCOUNT, "AZURE_STORAGE_ENDPOINT"),
    ],
)
def test_a_client_is_of_the_environments_address(
    monkeypatch: pytest.MonkeyPatch, name: str, package: str, secrets: Any, variable: str
) -> None:
    pytest.importorskip(package)
    for port in (1, 2):
        monkeypatch.setenv(variable, f"http://127.0.0.1:{port}")
        assert f"http://127.0.0.1:{port}" in repr([*store(name, secrets).options().values(), store(name, secrets).access()])


@pytest.mark.parametrize("name", ["AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_MASTER_KEY"])
def test_an_account_key_beside_a_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    pytest.importorskip("azure.storage.blob")
    monkeypatch.setenv(name, "Y2FuYXJ5")
    given = {"account.name": "acme", "sas.token": "{{ env('THE_TOKEN') }}"}
    monkeypatch.setenv("THE_TOKEN", "sv=1&sig=canary")
    with pytest.raises(InvalidPipeline, match=f"the variable {name} is set") as caught:
        open_destination(definition("az://lake/x", **given), Home.at(tmp_path))
    assert "Y2FuYXJ5" not in str(caught.value)
    options = client(StoreAccess(None, "", ACCOUNT, "azure")).options()
    assert options["azure_storage_account_key"] == "eA=="
    assert options["azure_storage_endpoint"] == "https://acme.blob.core.windows.net"


def test_variables_that_googles_libraries_do_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("google.cloud.storage")
    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    by_chain, by_key = (
        client(StoreAccess(None, "", secrets, "gs")) for secrets in ((), (("service.account.key", SERVICE_ACCOUNT),))
    )
    monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT_KEY", "canary")
    with pytest.raises(InvalidPipeline, match="GOOGLE_SERVICE_ACCOUNT_KEY"):
        by_chain.options()
    assert "a@b" in by_key.options()["google_service_account_key"]
    monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT", "/etc/key.json")
    with pytest.raises(InvalidPipeline, match="GOOGLE_SERVICE_ACCOUNT"):
        by_key.options()


def test_files_of_iceberg_go_to_the_clients_endpoint(s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = BucketFolder(client(s3.access()), f"{s3.base}/{tmp_path.name}")
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.setenv(name, DEAD)
    monkeypatch.setenv("AWS_SESSION_TOKEN", "canary-token")
    with file_io(folder).new_output(f"{folder.place}/x").create() as stream:
        stream.write(b"x")
    assert folder.read("x") == b"x"


def test_delta_rs_recognizes_the_options(s3: S3Server, tmp_path: Path) -> None:
    """It ignores names that it does not recognize: a wrong value of a known one is an error."""
    place = DeltaStorePlace(tmp_path, s3)
    begun(place)
    options = client(s3.access()).options()
    for name in options:
        if options[name] == "false":
            with pytest.raises(Exception, match=r"(?i)bool"):
                DeltaTable(f"{place.place}/tweets", storage_options={**options, name: "perhaps"})
