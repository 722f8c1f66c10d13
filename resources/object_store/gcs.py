"""A client of Google Cloud Storage. Objects are named `gs://bucket/key`; a put is atomic.

Credentials are passed, or found by Google's default chain: `GOOGLE_APPLICATION_CREDENTIALS`, gcloud, metadata server. The store
verifies the MD5 of each upload. It computes no SHA-256, so this client keeps it in the object's metadata, in the same request.
"""

from __future__ import annotations

import base64
import io
import json
import os
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import IO, Any

import google.auth
import requests
from google.api_core.exceptions import GoogleAPICallError, RetryError
from google.auth.credentials import AnonymousCredentials
from google.auth.exceptions import GoogleAuthError, TransportError
from google.auth.transport.requests import Request
from google.cloud import storage
from google.cloud.storage.exceptions import DataCorruption, InvalidResponse
from google.cloud.storage.retry import DEFAULT_RETRY
from google.oauth2 import credentials as tokens
from google.oauth2 import service_account

from resources.object_store.config import StoreAccess
from resources.object_store.delta_rs_environment import reject_variables
from resources.object_store.store import Found, StoreFailed, sums
from resources.object_store.uri import split
from resources.secrets import Secret, redact

__all__ = ["GcsStore"]

_KEY, _TOKEN = "service.account.key", "access.token"  # the second one is only for tasks
# Variables of delta-rs that Google's libraries do not read; it rejects a path beside a key.
_PATHS, _KEYS = ("google_service_account", "google_service_account_path"), ("google_service_account_key",)
_OFF = ("google_allow_invalid_certificates", "google_skip_signature")
_URL = "https://storage.googleapis.com"
_SCOPES = ("https://www.googleapis.com/auth/devstorage.read_write",)
_SHA256 = "kpipe-sha256"  # in the object's metadata
_CHUNK = 8 << 20  # bytes in memory for each upload
_LONGEST = 1000  # characters of a response in a message
_TIMEOUT = (10, 60)  # seconds to connect, and between two bytes
_RETRY = DEFAULT_RETRY.with_delay(initial=0.2, maximum=5, multiplier=2).with_timeout(12)
_FAILURES = (GoogleAPICallError, RetryError, GoogleAuthError, InvalidResponse, DataCorruption, requests.RequestException)


class GcsStore:
    """A client of Google Cloud Storage; see `Store`.

    Args:
        secrets: by the names in `CREDENTIALS`; empty: Google's default chain, or none for an emulator.
        endpoint: URL of the store; None: `gcs_base_url` of the key, as in delta-rs, or `STORAGE_EMULATOR_HOST`, or Google's.

    Raises:
        StoreFailed: the key is not a service account's.
    """

    largest = 5 << 40

    def __init__(self, secrets: Mapping[str, Secret] | None = None, endpoint: str | None = None) -> None:
        self._secrets = dict(secrets or {})
        self._info = _parsed(self._secrets.get(_KEY))
        given = endpoint or self._info.get("gcs_base_url") or os.environ.get("STORAGE_EMULATOR_HOST")
        self.endpoint: str | None = given if not given or "://" in given else f"http://{given}"

    @cached_property
    def _client(self) -> Any:
        where = {"api_endpoint": self.endpoint} if self.endpoint else None
        made = storage.Client(project=None, credentials=self._credentials, client_options=where)
        made._bucket_metadata_cache = None  # else a thread reads the bucket's metadata, for traces; roles may not permit that
        return made

    @cached_property
    def _credentials(self) -> Any:
        """Credentials, which the client's library renews; looked up with the first request."""
        if _TOKEN in self._secrets:
            return tokens.Credentials(str(self._secrets[_TOKEN]))
        if self._info and not self._info.get("disable_oauth"):
            try:
                return service_account.Credentials.from_service_account_info(self._info, scopes=_SCOPES)
            except ValueError:  # its text may quote the key
                raise StoreFailed(f"{_KEY}: the private key or token_uri is missing or damaged", 401) from None
        if self._info or self.endpoint:
            return AnonymousCredentials()
        return google.auth.default(scopes=_SCOPES)[0]

    def access(self) -> StoreAccess:
        """Return settings for another process; see `Store`. It gets the key, or a token that is valid for up to an hour.

        Raises:
            StoreFailed: no token could be obtained.
        """
        given = dict(self._secrets)
        if not given and not self.endpoint:
            given[_TOKEN] = Secret(self._call("Google's credentials", self._token))
        return StoreAccess(self.endpoint, "", tuple(sorted(given.items())), "gs")

    def _token(self) -> str:
        if not self._credentials.valid:
            self._credentials.refresh(Request())
        return str(self._credentials.token)

    def options(self) -> dict[str, str]:
        """Return the options of delta-rs; see `Store`. Without a key, delta-rs looks up credentials in Google's default chain."""
        endpoint = self.endpoint or _URL
        given: dict[str, str] = {"google_base_url": endpoint, "allow_http": str(endpoint.startswith("http:")).lower()}
        account = self._info
        if not account and self.endpoint:
            account = {"client_email": "", "private_key": "", "private_key_id": "", "disable_oauth": True}
        reject_variables(_PATHS if account else (*_PATHS, *_KEYS), "" if account else _KEY)
        if account:
            given["google_service_account_key"] = Secret(json.dumps({**account, "gcs_base_url": endpoint}))
        return {**given, **dict.fromkeys(_OFF, "false")}

    def hide(self, text: str) -> str:
        """Mask the key and its parts in a text."""
        parts = (str(self._info[name]) for name in ("private_key", "private_key_id") if self._info.get(name))
        return redact(text, (*self._secrets.values(), *parts))

    def get(self, uri: str, start: int = 0, end: int | None = None) -> bytes | None:
        """Read an object's bytes; see `Store`."""
        how = {} if end is None and not start else {"start": start, "end": None if end is None else end - 1, "checksum": None}
        try:
            found: bytes = self._call(uri, self._blob(uri).download_as_bytes, raw_download=True, **how)
        except StoreFailed as error:
            if error.status == 404:
                return None
            raise
        return found

    def head(self, uri: str) -> Found | None:
        """Read an object's metadata; see `Store`."""
        blob = self._blob(uri)
        try:
            self._call(uri, blob.reload)
        except StoreFailed as error:
            if error.status == 404:
                return None
            raise
        return _found(uri, blob)

    def put(self, uri: str, data: bytes | IO[bytes], sha256: str | None = None) -> None:
        """Create or replace an object; see `Store`."""
        self._upload(uri, data, sha256)

    def put_new(self, uri: str, data: bytes) -> bool:
        """Create an object unless it exists; see `Store`."""
        try:
            self._upload(uri, data, None, if_generation_match=0)
        except StoreFailed as error:
            if error.status != 412:
                raise
            return self.get(uri) == data
        return True

    def _upload(self, uri: str, data: bytes | IO[bytes], sha256: str | None, **condition: Any) -> None:
        stream = io.BytesIO(data) if isinstance(data, bytes) else data
        found = sums(stream)
        if sha256 not in (None, found.sha256):
            raise StoreFailed(f"{uri}: expected content with SHA-256 {sha256}, found {found.sha256}", 400)
        blob, md5 = self._blob(uri), base64.b64encode(found.md5).decode()
        blob.chunk_size = _CHUNK
        blob.md5_hash = md5  # the store rejects content with another one
        blob.metadata = {_SHA256: found.sha256}
        self._call(
            uri,
            blob.upload_from_file,
            stream,
            size=found.size,
            content_type="application/octet-stream",
            checksum=None,
            **condition,
        )
        if blob.md5_hash != md5:  # of an upload in pieces, an emulator may not have compared it
            self.remove(uri)
            raise StoreFailed(f"{uri}: expected content with MD5 {md5}, and the store received {blob.md5_hash}", 400)

    def copy(self, origin: str, uri: str) -> None:
        """Copy an object inside the store; see `Store`."""
        source, target, token = self._blob(origin), self._blob(uri), None
        while True:  # large copies to other locations take several requests
            token, _, _ = self._call(uri, target.rewrite, source, token=token)
            if token is None:
                return

    def remove(self, uri: str) -> None:
        """Delete an object, if it exists; see `Store`."""
        try:
            self._call(uri, self._blob(uri).delete)
        except StoreFailed as error:
            if error.status != 404:
                raise

    def listed(self, prefix: str) -> Iterator[Found]:
        """List all objects whose names start with the prefix; see `Store`."""
        bucket = split(prefix)[0]
        for page in self._pages(prefix):
            for blob in page:
                yield _found(f"gs://{bucket}/{blob.name}", blob)

    def folders(self, prefix: str) -> Iterator[str]:
        """List the names of folders directly below a prefix; see `Store`."""
        key = split(prefix)[1]
        for page in self._pages(prefix, delimiter="/"):
            for name in sorted(page.prefixes):
                yield name.removeprefix(key).rstrip("/")

    def names(self, prefix: str) -> Iterator[str]:
        """List the names of objects directly below a prefix; see `Store`."""
        key = split(prefix)[1]
        for page in self._pages(prefix, delimiter="/"):
            for blob in page:
                yield blob.name.removeprefix(key)

    def _pages(self, prefix: str, **how: Any) -> Iterator[Any]:
        bucket, key = split(prefix)
        pages = self._call(prefix, lambda **more: self._client.list_blobs(bucket, prefix=key, **how, **more).pages)
        while (page := self._call(prefix, lambda **_: next(pages, None))) is not None:
            yield page

    def _blob(self, uri: str) -> Any:
        bucket, key = split(uri)
        return self._call(uri, lambda **_: self._client.bucket(bucket).blob(key))

    def _call(self, uri: str, call: Callable[..., Any], *arguments: Any, **how: Any) -> Any:
        try:
            return call(*arguments, timeout=_TIMEOUT, retry=_RETRY, **how)
        except _FAILURES as error:
            raise self._failed(uri, error) from None  # a chained exception would show secrets in tracebacks

    def _failed(self, uri: str, error: Exception) -> StoreFailed:
        cause = error.cause if isinstance(error, RetryError) and error.cause is not None else error
        text = str(cause)
        if isinstance(cause, InvalidResponse):
            text = f"HTTP {cause.response.status_code}: {cause.response.text[:_LONGEST]}"
        return StoreFailed(f"{uri}: {self.hide(text)}", _status(cause))


def _parsed(key: str | None) -> dict[str, Any]:
    """Parse the JSON of a service account's key.

    Raises:
        StoreFailed: it is not such a key; the text contains nothing of it.
    """
    if key is None:
        return {}
    try:
        found = json.loads(key)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not {"client_email", "private_key"} <= found.keys():
        raise StoreFailed(f"{_KEY}: expected the JSON of a service account's key, with client_email and private_key", 401)
    return found


def _found(uri: str, blob: Any) -> Found:
    sha256 = (blob.metadata or {}).get(_SHA256, "")
    return Found(uri, blob.size, blob.updated.timestamp(), str(blob.generation), sha256)


def _status(error: BaseException) -> int:
    """Return the HTTP status; 0: no response; 401: credentials are missing or wrong."""
    if isinstance(error, GoogleAPICallError):
        return int(error.code or 0)
    if isinstance(error, InvalidResponse):
        return int(error.response.status_code)
    if isinstance(error, GoogleAuthError) and not isinstance(error, TransportError):
        return 401
    return 0
