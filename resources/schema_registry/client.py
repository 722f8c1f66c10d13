"""Look up schemas by id: one request for each id. An unknown id is requested again after some seconds.

The client uses urllib3, which Dagster installs, and sends two kinds of GET. The client of confluent-kafka's
`schemaregistry` extra is not used: it follows redirects, reads answers of any size, retries requests by itself,
and installs ten more packages.
"""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from functools import lru_cache
from typing import Any
from urllib.parse import quote, urlsplit

from kpipe.errors import CredentialsRefused, RegistryFailed, SourceError
from resources.net.connections import Connections
from resources.net.http import HttpFailed, TooLarge, TooSlow, ask, authorization
from resources.schema_registry import schemas
from resources.schema_registry.config import Access, address
from resources.schema_registry.schemas import Fetch, NotFound, Schema, UnknownSchema
from resources.secrets import redact

__all__ = ["Registry", "Schema", "SchemaRejected", "UnknownSchema", "registry"]

# Time limit for one schema with all of its references, as a multiple of one request's.
_PATIENCE = 6
# Seconds before an unknown id is requested again: it may be registered later, and hostile records can contain many ids.
_FORGET_S = 10.0
# Limits of the cache: schemas, bytes of schemas, unknown ids. Beyond them, the least recently used entry is dropped.
_MOST_KNOWN, _MOST_KNOWN_BYTES, _MOST_UNKNOWN = 1_000, 64 << 20, 10_000
# Confluent's error codes: subject not found, version not found, schema not found.
_UNKNOWN = {40401, 40402, 40403}
_ACCEPT = "application/vnd.schemaregistry.v1+json, application/json"


class SchemaRejected(SourceError):
    """The registry rejects a schema that is to be registered."""


@lru_cache(maxsize=64)
def registry(url: str, access: Access) -> Registry:
    """Return the process's client for an address.

    Raises:
        InvalidPipeline: invalid address.
        RegistryFailed: the TLS files cannot be read.
    """
    return Registry(url, access)


class Registry:
    """A thread-safe client with a cache. Threads that need the same id share one request, and no lock is held during it.

    Args:
        url: `host:port` or an http(s) address.
        access: time limit, TLS and credentials.
        clock: returns monotonic seconds.

    Raises:
        InvalidPipeline: invalid address.
        RegistryFailed: the TLS files cannot be read.
    """

    def __init__(self, url: str, access: Access | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._url, self._access, self._clock = address(url), access or Access(), clock
        self._known: OrderedDict[tuple[int, str], Schema] = OrderedDict()
        self._known_bytes = 0
        self._unknown: OrderedDict[int, tuple[float, str]] = OrderedDict()
        self._coming: dict[tuple[int, str], Future[Schema]] = {}
        self._lock = threading.Lock()
        self._pool = Connections(retries=False, maxsize=2, **self._tls())

    def schema(self, number: int, form: str = "", fetch: bool = True) -> Schema:
        """Return the schema of an id.

        Args:
            number: the schema id.
            form: the `format` parameter of the request: `serialized` returns Protobuf descriptors in base64.
            fetch: whether a request may be sent. If not, an id that is not in the cache is unknown.

        Raises:
            UnknownSchema: the schema does not exist or cannot be used.
            CredentialsRefused: the registry rejects the credentials.
            RegistryFailed: the registry did not answer, or with neither a schema nor "not found" (retriable).
        """
        key = number, form
        with self._lock:
            if key in self._known:
                self._known.move_to_end(key)
                return self._known[key]
            since, why = self._unknown.get(number, (0.0, ""))
            if why and self._clock() - since < _FORGET_S:
                raise UnknownSchema(why)
            coming = self._coming.get(key)
            mine = coming is None
            if coming is None:
                if not fetch:
                    raise UnknownSchema(f"schema {number} was not looked up")
                coming = self._coming[key] = Future()
        if mine:
            self._settle(key, coming)
        return coming.result()

    def register(self, subject: str, kind: str, text: str) -> int:
        """Register a schema as a version of a subject, and return its id. A schema that is there keeps its id.

        Raises:
            SchemaRejected: the registry rejects the schema, as invalid or as incompatible with the subject's versions.
            CredentialsRefused: the registry rejects the credentials.
            RegistryFailed: the registry did not answer, or with another error (retriable).
        """
        body = {"schema": text, **({"schemaType": kind} if kind != "AVRO" else {})}
        ends = time.monotonic() + _PATIENCE * self._access.timeout_s
        path = f"/subjects/{quote(subject, safe='')}/versions"
        status, found = self._ask(path, ends, schemas.LARGEST, json.dumps(body).encode())
        answer = _object(found) or {}
        number = answer.get("id")
        if status == 200 and isinstance(number, int) and 0 <= number < 1 << 32:
            return number
        if status in (409, 422):
            why = "incompatible with earlier versions" if status == 409 else "invalid"
            raise SchemaRejected(
                f"schema registry {self._url}: subject {subject}: the schema of the rows was rejected as {why} (HTTP {status})",
                "change the types in columns or select; or the subject's compatibility level; or write to another topic",
            )
        if status in (401, 403):
            raise self._refused(status)
        raise RegistryFailed(f"schema registry {self._url}: expected the id of a schema, found HTTP {status}", _HINT)

    def latest(self, subject: str, form: str = "") -> tuple[int, Schema] | None:
        """Return the newest version of a subject with its id; None: the subject has no version. It is not cached.

        Args:
            subject: the subject.
            form: as in `schema`.

        Raises:
            UnknownSchema: a reference does not exist, or the schema is too large.
            CredentialsRefused: the registry rejects the credentials.
            RegistryFailed: the registry did not answer, or with neither a schema nor "not found" (retriable).
        """
        ends = time.monotonic() + _PATIENCE * self._access.timeout_s
        path = f"/subjects/{quote(subject, safe='')}/versions/latest"
        try:
            found = Fetch(self._get, path, f"subject {subject}", f"?format={form}" if form else "", ends).numbered()
            if not form or not found[1].is_garbled:
                return found
        except NotFound:
            return None
        except _NotASchema:
            if not form:
                raise
        return self.latest(subject)  # see `_fetch`

    def _refused(self, status: int) -> CredentialsRefused:
        return CredentialsRefused(
            f"schema registry {self._url}: credentials rejected (HTTP {status})",
            "check source.credentials: schema.registry.username and schema.registry.password, or schema.registry.token",
        )

    def _settle(self, key: tuple[int, str], coming: Future[Schema]) -> None:
        """Fetch a schema for all threads that wait for it, and cache the result."""
        try:
            found = self._fetch(*key)
        except BaseException as error:
            with self._lock:
                del self._coming[key]
                if isinstance(error, UnknownSchema):
                    self._unknown[key[0]] = self._clock(), str(error)
                    self._unknown.move_to_end(key[0])
                    if len(self._unknown) > _MOST_UNKNOWN:
                        self._unknown.popitem(last=False)
            coming.set_exception(error)
            return
        with self._lock:
            del self._coming[key]
            self._known[key] = found
            self._known_bytes += found.size
            while len(self._known) > 1 and (len(self._known) > _MOST_KNOWN or self._known_bytes > _MOST_KNOWN_BYTES):
                _, dropped = self._known.popitem(last=False)
                self._known_bytes -= dropped.size
        coming.set_result(found)

    def _fetch(self, number: int, form: str) -> Schema:
        path, what = f"/schemas/ids/{number}", f"schema {number}"
        ends = time.monotonic() + _PATIENCE * self._access.timeout_s
        try:
            found = Fetch(self._get, path, what, f"?format={form}" if form else "", ends).schema()
            if not form or not found.is_garbled:
                return found
        except _NotASchema:
            if not form:
                raise
        # Apicurio 3.3.3 returns HTTP 500 for the descriptors of a schema with a package, else their bytes decoded as UTF-8.
        return Fetch(self._get, path, what, "", ends).schema()

    def _get(self, path: str, what: str, ends: float, largest: int) -> tuple[dict[str, Any], int]:
        """Return the JSON object of an answer, and its size in bytes."""
        status, body = self._ask(path, ends, largest)
        answer = _object(body)
        if status == 200 and answer is not None:
            return answer, len(body)
        if status == 404 and answer is not None and answer.get("error_code") in _UNKNOWN:
            raise NotFound(f"{what} is not in the registry")
        if status in (401, 403):
            raise self._refused(status)
        if 300 <= status < 400:
            problem = f"expected a schema, found a redirect (HTTP {status}), which kpipe does not follow"
        else:
            problem = f"expected a schema, found HTTP {status}" + ("" if answer is not None else " without a JSON object")
        raise _NotASchema(f"schema registry {self._url}: {problem}", "check the address: format.registry")

    def _ask(self, path: str, ends: float, largest: int, sent: bytes | None = None) -> tuple[int, bytes]:
        """Send a GET, or a POST with a body, and return status and body."""
        access = self._access
        limit_s = min(access.timeout_s, ends - time.monotonic())
        headers = {"Accept": _ACCEPT, **authorization(access.username, access.password, access.token)}
        try:
            kind = {} if sent is None else {"Content-Type": "application/vnd.schemaregistry.v1+json"}
            method = "GET" if sent is None else "POST"
            answer = ask(self._pool, method, self._url + path, {**headers, **kind}, limit_s, largest, sent)
        except TooLarge:
            raise UnknownSchema(
                f"the registry's answers for the schema and its references have more than {schemas.LARGEST:,} bytes"
            ) from None
        except TooSlow:
            raise RegistryFailed(f"schema registry {self._url}: did not answer within {access.timeout_s:g} s", _HINT) from None
        except HttpFailed as error:
            why = redact(str(error), access.secrets)
            raise RegistryFailed(f"schema registry {self._url}: cannot be reached: {why}", _HINT) from None
        return answer.status, answer.body

    def _tls(self) -> dict[str, Any]:
        if urlsplit(self._url).scheme != "https":
            return {}
        access = self._access
        try:
            context = ssl.create_default_context(cafile=access.ca or None)
            if access.certificate:
                context.load_cert_chain(access.certificate, access.key or None)
        except (OSError, ssl.SSLError) as error:
            raise RegistryFailed(
                f"schema registry {self._url}: the TLS files cannot be read: {error.strerror or error}",
                "check source.config: schema.registry.ssl.*",
            ) from None
        return {"ssl_context": context}


class _NotASchema(RegistryFailed):
    """The registry's answer is not a schema."""


_HINT = "check that it runs, and its address: format.registry"


def _object(body: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
