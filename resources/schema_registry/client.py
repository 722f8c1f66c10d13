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
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import quote, urlsplit

from kpipe.errors import CredentialsRefused, RegistryFailed, SourceError
from resources.net.connections import Connections
from resources.net.http import HttpFailed, TooLarge, TooSlow, ask, authorization
from resources.schema_registry.config import Access, address
from resources.secrets import redact

__all__ = ["Registry", "Schema", "SchemaRejected", "UnknownSchema", "registry"]

# Limits for one schema with all of its references: bytes, number of references, and time as a multiple of one request's
# time limit. The registry stores a schema in one Kafka record, 1 MB by default.
_LARGEST = 8 << 20
_MOST_REFERENCES = 200
_PATIENCE = 6
# Seconds before an unknown id is requested again: it may be registered later, and hostile records can contain many ids.
_FORGET_S = 10.0
# Limits of the cache: schemas, bytes of schemas, unknown ids. Beyond them, the least recently used entry is dropped.
_MOST_KNOWN, _MOST_KNOWN_BYTES, _MOST_UNKNOWN = 1_000, 64 << 20, 10_000
# Confluent's error codes: subject not found, version not found, schema not found.
_UNKNOWN = {40401, 40402, 40403}
_ACCEPT = "application/vnd.schemaregistry.v1+json, application/json"


class UnknownSchema(Exception):
    """The registry does not have the schema, or the schema cannot be used. The record is invalid; the text has the reason."""


class SchemaRejected(SourceError):
    """The registry rejects a schema that is to be registered."""


@dataclass(frozen=True)
class Schema:
    """A schema and its references.

    Attributes:
        kind: `AVRO`, `PROTOBUF` or `JSON`.
        text: the schema as registered.
        references: (name, text) of direct and indirect references, each after its own references.
    """

    kind: str
    text: str
    references: tuple[tuple[str, str], ...] = ()

    @property
    def size(self) -> int:
        """Number of characters of all texts."""
        return len(self.text) + sum(len(name) + len(text) for name, text in self.references)


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
        status, found = self._ask(path, ends, _LARGEST, json.dumps(body).encode())
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
        ends = time.monotonic() + _PATIENCE * self._access.timeout_s
        try:
            return _Fetch(self._get, number, f"?format={form}" if form else "", ends).schema()
        except _NotASchema:
            if not form:
                raise
            # Apicurio 3.3.3 returns HTTP 500 for the descriptors of a schema with a package.
            return _Fetch(self._get, number, "", ends).schema()

    def _get(self, path: str, what: str, ends: float, largest: int) -> tuple[dict[str, Any], int]:
        """Return the JSON object of an answer, and its size in bytes."""
        status, body = self._ask(path, ends, largest)
        answer = _object(body)
        if status == 200 and answer is not None:
            return answer, len(body)
        if status == 404 and answer is not None and answer.get("error_code") in _UNKNOWN:
            raise UnknownSchema(f"{what} is not in the registry")
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
                f"the registry's answers for the schema and its references have more than {_LARGEST:,} bytes"
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


class _Fetch:
    """A request for one schema and its references, with limits of bytes, requests and time for all of them.

    Args:
        get: sends a request; takes the path, the subject of an error, the deadline and the largest size in bytes.
        number: the schema id.
        query: the query string of each request.
        ends: the deadline, in monotonic seconds.
    """

    def __init__(self, get: Callable[[str, str, float, int], tuple[dict[str, Any], int]], number: int, query: str, ends: float):
        self._get, self._number, self._query, self._ends = get, number, query, ends
        self._left = _LARGEST
        self._found: dict[tuple[str, int], tuple[str, str]] = {}

    def schema(self) -> Schema:
        """Fetch the schema; raises as `Registry.schema`."""
        answer = self._request(f"/schemas/ids/{self._number}", f"schema {self._number}")
        self._references(answer, ())
        return Schema(str(answer.get("schemaType") or "AVRO"), _text(answer, self._number), tuple(self._found.values()))

    def _request(self, path: str, what: str) -> dict[str, Any]:
        answer, size = self._get(path + self._query, what, self._ends, self._left)
        self._left -= size
        return answer

    def _references(self, answer: dict[str, Any], above: tuple[tuple[str, int], ...]) -> None:
        listed: Any = answer.get("references") or []
        for item in listed if isinstance(listed, list) else [listed]:
            try:
                name, subject, version = str(item["name"]), str(item["subject"]), int(item["version"])
            except (KeyError, TypeError, ValueError, OverflowError):
                raise UnknownSchema(f"schema {self._number}: invalid references: expected name, subject and version") from None
            key = subject, version
            if key in self._found:
                continue
            if key in above or len(self._found) + len(above) >= _MOST_REFERENCES:
                raise UnknownSchema(f"schema {self._number}: it refers to itself, or has more than {_MOST_REFERENCES} references")
            what = f"schema {self._number} refers to {subject!r} version {version}, which"
            inner = self._request(f"/subjects/{quote(subject, safe='')}/versions/{version}", what)
            self._references(inner, (*above, key))
            self._found[key] = name, _text(inner, self._number)


class _NotASchema(RegistryFailed):
    """The registry's answer is not a schema."""


_HINT = "check that it runs, and its address: format.registry"


def _object(body: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _text(answer: dict[str, Any], number: int) -> str:
    text = answer.get("schema")
    if not isinstance(text, str):
        raise UnknownSchema(f"schema {number}: the registry's answer has no field `schema`")
    return text
