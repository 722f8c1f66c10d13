"""The client of Google Cloud Storage beyond the suite of Delta: credentials, large objects, lost answers, errors."""

from __future__ import annotations

import io
import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from kpipe.definition.pipeline import Pipeline
from kpipe.errors import InvalidPipeline, NotAvailable
from resources.destinations import open_destination
from resources.home import Home
from resources.object_store.clients import client, forget, store, use
from resources.object_store.config import StoreAccess
from resources.object_store.store import Store, StoreFailed
from resources.secrets import Secret
from tests.faults.proxy import cut_after, drop_response, pass_, rst
from tests.servers.gcs import GcsServer

CANARY = "canary-51d3a9"


@pytest.fixture
def base(gcs: GcsServer, tmp_path: Path) -> Iterator[str]:
    gcs.proxy.now(pass_())
    yield f"{gcs.base}/{tmp_path.name}"
    gcs.proxy.now(pass_())


@pytest.fixture
def held(gcs: GcsServer) -> Store:
    return client(gcs.access())


def key(**more: Any) -> str:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    pem = rsa.generate_private_key(65537, 2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    account = {"type": "service_account", "client_email": "loader@example.com", "private_key_id": CANARY}
    return json.dumps({**account, "private_key": pem.decode(), "token_uri": "https://example.com/token", **more})


def definition(database: str, **credentials: str) -> Pipeline:
    source = {"brokers": "localhost:9092", "topic": "tweets"}
    into = {"type": "delta", "table": "tweets", "database": database, "credentials": credentials}
    return Pipeline.model_validate({"name": "tweets", "source": source, "into": into})


def test_large_objects_arrive_in_pieces(held: Store, base: str) -> None:
    """Of an upload only a piece is in memory, and each answer may get lost."""
    data = os.urandom(20 << 20)
    held.put(f"{base}/large", io.BytesIO(data))
    found = held.head(f"{base}/large")
    assert found is not None and found.size == len(data)
    assert held.get(f"{base}/large") == data
    assert held.get(f"{base}/large", 9 << 20, (9 << 20) + 5) == data[9 << 20 : (9 << 20) + 5]
    assert held.get(f"{base}/large", len(data) - 3) == data[-3:]


def test_lost_answers(gcs: GcsServer, held: Store, base: str) -> None:
    gcs.proxy.now(drop_response(b"POST /upload"))
    held.put(f"{base}/a", b"x")
    assert gcs.proxy.struck == 1
    gcs.proxy.now(drop_response(b"DELETE "))
    held.remove(f"{base}/a")
    assert gcs.proxy.struck == 1 and held.get(f"{base}/a") is None and held.head(f"{base}/a") is None
    held.remove(f"{base}/a")
    held.put(f"{base}/b", b"y" * 100_000)
    gcs.proxy.now(cut_after(50_000, times=1))
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


def test_a_bucket_that_does_not_exist(held: Store) -> None:
    assert held.get("gs://nowhere/x") is None
    with pytest.raises(StoreFailed) as caught:
        held.put("gs://nowhere/x", b"x")
    assert caught.value.status == 404 and not caught.value.passes


def test_a_store_that_is_gone(gcs: GcsServer, held: Store, base: str) -> None:
    gcs.proxy.now(rst())
    with pytest.raises(StoreFailed) as caught:
        held.get(f"{base}/x")
    assert caught.value.passes and caught.value.status == 0


class _Google(BaseHTTPRequestHandler):
    """Issues a token, and remembers what requests for objects carried."""

    seen: ClassVar[list[str | None]] = []

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._answer({"access_token": "the-token", "expires_in": 3600, "token_type": "Bearer"})

    def do_GET(self) -> None:
        self.seen.append(self.headers["Authorization"])
        self._answer({"kind": "storage#objects", "items": []})

    def _answer(self, fields: dict[str, Any]) -> None:
        data = json.dumps(fields).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        pass


def test_a_key_becomes_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("google.cloud.storage")
    monkeypatch.setattr(_Google, "seen", [])
    with ThreadingHTTPServer(("127.0.0.1", 0), _Google) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        given = Secret(key(gcs_base_url=address, token_uri=f"{address}/token"))
        made = client(StoreAccess(None, "", (("service.account.key", given),), "gs"))
        assert list(made.names("gs://lake/")) == []
        use(made.access())  # as a task does
        assert list(store("gs://lake/x").names("gs://lake/")) == []
        use(None)
        server.shutdown()
    assert _Google.seen == ["Bearer the-token"] * 2


def test_a_key_that_is_wrong_is_not_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("google.cloud.storage")
    home = Home.at(tmp_path)
    for wrong in (CANARY, json.dumps([CANARY]), json.dumps({"private_key": CANARY})):
        monkeypatch.setenv("THE_KEY", wrong)
        with pytest.raises(InvalidPipeline, match="expected the JSON of a service account's key") as caught:
            open_destination(definition("gs://lake/x", **{"service.account.key": "{{ env('THE_KEY') }}"}), home)
        assert CANARY not in str(caught.value)
    damaged = json.loads(key()) | {"private_key": f"-----BEGIN PRIVATE KEY-----\n{CANARY}\n-----END PRIVATE KEY-----\n"}
    made = client(StoreAccess("http://127.0.0.1:1", "", (("service.account.key", Secret(json.dumps(damaged))),), "gs"))
    with pytest.raises(StoreFailed) as failed:
        made.get("gs://lake/x")
    assert failed.value.status == 401 and not failed.value.passes and CANARY not in str(failed.value)


def test_secrets_do_not_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("google.cloud.storage")
    monkeypatch.setenv("THE_KEY", key())
    made = open_destination(definition("gs://lake/x", **{"service.account.key": "{{ env('THE_KEY') }}"}), Home.at(tmp_path))
    held = client(StoreAccess(None, "", (("service.account.key", Secret(key())),), "gs"))
    assert CANARY not in made.describe() + repr(vars(made)) + repr(held.options()) + repr(held.access())
    assert held.hide(f"failed for key {CANARY}") == "failed for key ***"
    forget()


def test_without_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing is looked up before the first request; then the error says what to set."""
    pytest.importorskip("google.cloud.storage")
    for name in ("GOOGLE_APPLICATION_CREDENTIALS", "STORAGE_EMULATOR_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    made = client(StoreAccess(None, "", (), "gs"))
    assert "google_service_account_key" not in made.options()
    with pytest.raises(StoreFailed, match="default credentials") as caught:
        made.get("gs://lake/x")
    assert caught.value.status == 401


def test_stores_do_not_mix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KPIPE_STAGING", "s3://lake/staging")
    pytest.importorskip("google.cloud.storage")
    with pytest.raises(NotAvailable, match=r"KPIPE_STAGING is s3://lake/staging, but into\.database is in another"):
        open_destination(definition("gs://lake/x"), Home.at(tmp_path))
    monkeypatch.delenv("KPIPE_STAGING")
    iceberg = definition("gs://lake/x").to_dict()
    iceberg["into"] |= {"type": "iceberg", "catalog": "postgresql://loader@db/lake"}
    with pytest.raises(NotAvailable, match="gs:// is not available for iceberg"):
        open_destination(Pipeline.model_validate(iceberg), Home.at(tmp_path))
