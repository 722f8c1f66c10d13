"""A client of Azure Blob Storage. Objects are named `az://container/key`, or `abfss://container@account…/key`; a put is atomic.

Credentials are an account key or a SAS token, passed or from variables (`AZURE_STORAGE_ACCOUNT_KEY`, `AZURE_STORAGE_SAS_TOKEN`).
The store verifies the MD5 of each request. It computes no SHA-256, so this client keeps it in the object's metadata, in the
request that creates the object.
"""

from __future__ import annotations

import io
import logging
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from typing import IO, Any
from urllib.parse import parse_qsl, quote

from azure.core.credentials import AzureSasCredential
from azure.core.exceptions import AzureError, HttpResponseError
from azure.storage.blob import BlobPrefix, BlobServiceClient, ExponentialRetry

from resources.object_store.config import StoreAccess
from resources.object_store.delta_rs_environment import reject_variables
from resources.object_store.store import Found, StoreFailed, sums
from resources.object_store.uri import account, split
from resources.secrets import MASK, Secret, redact

__all__ = ["AzureStore"]

_NAME, _KEY, _SAS = "account.name", "account.key", "sas.token"
_VARIABLES = {
    _NAME: ("AZURE_STORAGE_ACCOUNT_NAME",),
    _KEY: ("AZURE_STORAGE_ACCOUNT_KEY",),
    _SAS: ("AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_SAS_KEY"),
}
# Variables that win over a SAS token in delta-rs; and one of Microsoft Fabric's, which win over everything.
_KEYS = ("azure_storage_account_key", "azure_storage_access_key", "azure_storage_master_key")
_FABRIC = ("azure_fabric_session_token",)
_OFF = (
    "azure_allow_invalid_certificates", "azure_skip_signature", "azure_storage_use_emulator", "azure_use_fabric_endpoint",
)  # fmt: skip
_SHA256 = "kpipe_sha256"  # in the object's metadata: a name of letters, digits and _
_BLOCK = 8 << 20  # bytes in memory for each upload; larger objects are uploaded in blocks of this size
_BLOCKS = 50_000  # of one object: Azure's limit
_TAKEN = {"BlobAlreadyExists", "ConditionNotMet"}
_POLLS, _POLL_S = 600, 0.5  # of a copy, which Azure may finish later


class AzureStore:
    """A client of Azure Blob Storage; see `Store`.

    Args:
        secrets: by the names in `CREDENTIALS`; missing ones are read from delta-rs's variables.
        endpoint: URL of the account; None: `AZURE_STORAGE_ENDPOINT`, or Azure's.
        name: of the account, from an object's name.

    Raises:
        StoreFailed: the account or its credentials are missing.
    """

    largest = _BLOCKS * _BLOCK

    def __init__(self, secrets: Mapping[str, Secret] | None = None, endpoint: str | None = None, name: str = "") -> None:
        given = dict(secrets or {})
        self.account = name or given.get(_NAME) or _variable(_NAME)
        if not {_KEY, _SAS} & given.keys():
            given |= {which: Secret(value) for which in (_KEY, _SAS) if (value := _variable(which))}
        if not self.account:
            raise StoreFailed(f"the storage account is missing: set {_NAME} or AZURE_STORAGE_ACCOUNT_NAME", 401)
        self._key, self._sas = given.get(_KEY), given.get(_SAS)
        if not self._key and not self._sas:
            raise StoreFailed(f"account {self.account}: no credentials: set {_KEY} or {_SAS}", 401)
        self.endpoint = endpoint or os.environ.get("AZURE_STORAGE_ENDPOINT")
        self._client = self._failing(f"account {self.account}", self._connected)

    def _connected(self) -> Any:
        key = {"account_name": self.account, "account_key": str(self._key)}
        return BlobServiceClient(
            self._url,
            credential=key if self._key else AzureSasCredential(str(self._sas).lstrip("?")),
            retry_policy=ExponentialRetry(initial_backoff=0, increment_base=2, retry_total=3, random_jitter_range=1),
            connection_timeout=10,
            read_timeout=60,
            max_single_put_size=_BLOCK,
            max_block_size=_BLOCK,
            max_single_get_size=64 << 20,
            max_chunk_get_size=64 << 20,
        )

    @property
    def _url(self) -> str:
        return self.endpoint or f"https://{self.account}.blob.core.windows.net"

    def access(self) -> StoreAccess:
        """Return settings for another process; see `Store`."""
        given = {_NAME: Secret(self.account), _KEY: self._key, _SAS: None if self._key else self._sas}
        return StoreAccess(self.endpoint, "", tuple(sorted((name, value) for name, value in given.items() if value)), "azure")

    def options(self) -> dict[str, str]:
        """Return the options of delta-rs; see `Store`."""
        reject_variables(_FABRIC)
        given: dict[str, str] = {"azure_storage_account_name": self.account}
        if self._key:
            given["azure_storage_account_key"] = self._key
        elif self._sas:
            reject_variables(_KEYS, _KEY)
            given["azure_storage_sas_token"] = self._sas
        given |= {"azure_storage_endpoint": self._url, "azure_allow_http": str(self._url.startswith("http:")).lower()}
        return {**given, **dict.fromkeys(_OFF, "false")}

    def hide(self, text: str) -> str:
        """Mask the key, the token and its signature, as URLs have it, in a text."""
        text = _without_signatures(text)
        given = [str(value) for value in (self._key, self._sas) if value]
        signatures = [value for name, value in parse_qsl(str(self._sas or "").lstrip("?")) if name == "sig"]
        return redact(text, (*given, *signatures, *(quote(value, safe="") for value in (*given, *signatures))))

    def get(self, uri: str, start: int = 0, end: int | None = None) -> bytes | None:
        """Read an object's bytes; see `Store`."""
        length = None if end is None else end - start
        offset = None if not start and end is None else start
        try:
            found: bytes = self._call(uri, lambda blob: blob.download_blob(offset, length, max_concurrency=1).readall())
        except StoreFailed as error:
            if error.status == 404:
                return None
            raise
        return found

    def head(self, uri: str) -> Found | None:
        """Read an object's metadata; see `Store`."""
        try:
            return _found(uri, self._call(uri, lambda blob: blob.get_blob_properties()))
        except StoreFailed as error:
            if error.status == 404:
                return None
            raise

    def put(self, uri: str, data: bytes | IO[bytes], sha256: str | None = None) -> None:
        """Create or replace an object; see `Store`."""
        self._upload(uri, data, sha256, overwrite=True)

    def put_new(self, uri: str, data: bytes) -> bool:
        """Create an object unless it exists; see `Store`."""
        try:
            self._upload(uri, data, None, overwrite=False)  # If-None-Match: *
        except _Taken:
            return self.get(uri) == data
        return True

    def _upload(self, uri: str, data: bytes | IO[bytes], sha256: str | None, overwrite: bool) -> None:
        stream = io.BytesIO(data) if isinstance(data, bytes) else data
        found = sums(stream)
        if sha256 not in (None, found.sha256):
            raise StoreFailed(f"{uri}: expected content with SHA-256 {sha256}, found {found.sha256}", 400)
        self._call(
            uri,
            lambda blob: blob.upload_blob(
                stream,
                length=found.size,
                overwrite=overwrite,
                metadata={_SHA256: found.sha256},
                validate_content=True,  # by MD5, in the store
                max_concurrency=1,
            ),
        )

    def copy(self, origin: str, uri: str) -> None:
        """Copy an object inside the store; see `Store`."""
        source = self._failing(origin, lambda: self._blob(origin).url)  # with the SAS token, if there is one
        state = self._call(uri, lambda blob: blob.start_copy_from_url(source)["copy_status"])
        for _ in range(_POLLS):
            if state != "pending":
                break
            time.sleep(_POLL_S)
            state = self._call(uri, lambda blob: blob.get_blob_properties().copy.status)
        if state != "success":
            raise StoreFailed(f"{uri}: the copy of {origin} did not end: expected status success, found {state}")

    def remove(self, uri: str) -> None:
        """Delete an object, if it exists; see `Store`."""
        try:
            self._call(uri, lambda blob: blob.delete_blob())
        except StoreFailed as error:
            if error.status != 404:
                raise

    def listed(self, prefix: str) -> Iterator[Found]:
        """List all objects whose names start with the prefix; see `Store`."""
        start = prefix.partition("://")[0] + "://" + split(prefix)[0]
        for item in self._items(prefix, "list_blobs"):
            yield _found(f"{start}/{item.name}", item)

    def folders(self, prefix: str) -> Iterator[str]:
        """List the names of folders directly below a prefix; see `Store`."""
        key = split(prefix)[1]
        for item in self._items(prefix, "walk_blobs", delimiter="/"):
            if isinstance(item, BlobPrefix):
                yield item.name.removeprefix(key).rstrip("/")

    def names(self, prefix: str) -> Iterator[str]:
        """List the names of objects directly below a prefix; see `Store`."""
        key = split(prefix)[1]
        for item in self._items(prefix, "walk_blobs", delimiter="/"):
            if not isinstance(item, BlobPrefix):
                yield item.name.removeprefix(key)

    def _items(self, prefix: str, call: str, **how: Any) -> Iterator[Any]:
        container, key = _parts(prefix)
        found = iter(getattr(self._client.get_container_client(container), call)(name_starts_with=key, **how))
        while (item := self._failing(prefix, lambda: next(found, None))) is not None:
            yield item

    def _blob(self, uri: str) -> Any:
        if account(uri) not in ("", self.account):
            raise StoreFailed(f"{uri}: expected an object of account {self.account}, found one of {account(uri)}", 400)
        return self._client.get_blob_client(*_parts(uri))

    def _call(self, uri: str, call: Callable[[Any], Any]) -> Any:
        return self._failing(uri, lambda: call(self._blob(uri)))

    def _failing(self, uri: str, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except HttpResponseError as error:
            code = str(getattr(error, "error_code", "") or "")
            kind = _Taken if code in _TAKEN else StoreFailed
            raise kind(f"{uri}: {self.hide(error.message)}", int(error.status_code or 0)) from None  # as below
        except (AzureError, ValueError) as error:  # a chained exception would show secrets in tracebacks
            raise StoreFailed(f"{uri}: {self.hide(str(error))}", 401 if isinstance(error, ValueError) else 0) from None


class _Taken(StoreFailed):
    """The object exists, and its replacement was not requested."""


def _variable(name: str) -> str:
    return next((value for variable in _VARIABLES[name] if (value := os.environ.get(variable))), "")


def _parts(uri: str) -> tuple[str, str]:
    bucket, key = split(uri)
    return bucket.partition("@")[0], key


def _found(uri: str, item: Any) -> Found:
    sha256 = (item.metadata or {}).get(_SHA256, "")
    return Found(uri, item.size, item.last_modified.timestamp(), item.etag, sha256)


def _without_signatures(text: str) -> str:
    return re.sub(r"(?<=\bsig=)[^&\s\"']+", MASK, text)


class _Signatures(logging.Filter):
    """Mask signatures in urllib3's log lines, which contain the URL, and with it a SAS token."""

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        if "sig=" in text:
            record.msg, record.args = _without_signatures(text), ()
        return True


for _logger in ("urllib3.connection", "urllib3.connectionpool"):
    logging.getLogger(_logger).addFilter(_Signatures())
