"""Look schemas up by their id: one request for each id, and another one for an unknown id after some seconds.

Written over urllib3 (which Dagster brings along) and not over the client of confluent-kafka's `schemaregistry` extra: that
follows redirects, reads answers of any size, repeats requests behind our back, and brings ten packages more. All that is
needed is two GETs.
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

from kpipe.errors import CredentialsRefused, RegistryFailed
from resources.net.connections import Connections
from resources.net.http import HttpFailed, TooLarge, TooSlow, authorization, get
from resources.schema_registry.config import Access, address
from resources.secrets import redact

__all__ = ["Registry", "Schema", "UnknownSchema", "registry"]

# A schema is kept in one record of Kafka, 1 MB by default. With everything that it refers to it may take so much, and so many
# requests, which together may take so many times the limit of one.
_LARGEST = 8 << 20
_MOST_REFERENCES = 200
_PATIENCE = 6
# For as long an unknown id is not asked for again: it may be registered any moment, and hostile records hold many.
_FORGET_S = 10.0
# Of schemas and of unknown ids that are kept, the least recently used ones are dropped beyond these numbers.
_MOST_KNOWN, _MOST_KNOWN_BYTES, _MOST_UNKNOWN = 1_000, 64 << 20, 10_000
# Confluent's error codes: no such subject, version, schema.
_UNKNOWN = {40401, 40402, 40403}
_ACCEPT = "application/vnd.schemaregistry.v1+json, application/json"


class UnknownSchema(Exception):
    """The registry has no such schema, or none that can be used: the record's fault. The text says why."""


@dataclass(frozen=True)
class Schema:
    """A schema and all that it refers to.

    Attributes:
        kind: `AVRO`, `PROTOBUF` or `JSON`.
        text: as it was registered.
        references: (name, text) of the schemas that it refers to, directly or not, each behind those that it needs itself.
    """

    kind: str
    text: str
    references: tuple[tuple[str, str], ...] = ()

    @property
    def size(self) -> int:
        """Characters of all texts."""
        return len(self.text) + sum(len(name) + len(text) for name, text in self.references)


@lru_cache(maxsize=64)
def registry(url: str, access: Access) -> Registry:
    """The client of that address, one for a process.

    Raises:
        InvalidPipeline: no address; files of TLS cannot be read.
    """
    return Registry(url, access)


class Registry:
    """A client with a cache. For several threads: no lock is held during a request, and threads that need the same id share one.

    Args:
        url: `host:port` or an http(s) address.
        access: time limit, TLS, secrets.
        clock: seconds.

    Raises:
        InvalidPipeline: no address.
        RegistryFailed: files of TLS cannot be read.
    """

    def __init__(self, url: str, access: Access | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._url, self._access, self._clock = address(url), access or Access(), clock
        self._known: OrderedDict[tuple[int, str], Schema] = OrderedDict()
        self._known_bytes = 0
        self._unknown: OrderedDict[int, tuple[float, str]] = OrderedDict()
        self._coming: dict[tuple[int, str], Future[Schema]] = {}
        self._lock = threading.Lock()
        self._pool = Connections(retries=False, maxsize=2, **self._tls())

    def schema(self, number: int, form: str = "", ask: bool = True) -> Schema:
        """Return the schema of that id.

        Args:
            number: the id.
            form: how the text is to be written, where its kind has several: `serialized`, Protobuf's descriptors in base64.
            ask: whether a request may be sent; else an id that is not in the cache is unknown.

        Raises:
            UnknownSchema: there is none, or none that can be used.
            CredentialsRefused: the registry wants others.
            RegistryFailed: it gave no answer that says anything about the schema (retriable).
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
                if not ask:
                    raise UnknownSchema(f"schema {number} was not looked up")
                coming = self._coming[key] = Future()
        if mine:
            self._settle(key, coming)
        return coming.result()

    def _settle(self, key: tuple[int, str], coming: Future[Schema]) -> None:
        """Fetch a schema for all threads that wait for it, and keep what became of it."""
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
        except _NotSo:
            if not form:
                raise
            # Apicurio 3.3.3 answers HTTP 500 for the descriptors of a schema with a package
            return _Fetch(self._get, number, "", ends).schema()

    def _get(self, path: str, what: str, ends: float, largest: int) -> tuple[dict[str, Any], int]:
        """Return the answer's object, and how many bytes it took."""
        status, body = self._ask(path, ends, largest)
        answer = _object(body)
        if status == 200 and answer is not None:
            return answer, len(body)
        if status == 404 and answer is not None and answer.get("error_code") in _UNKNOWN:
            raise UnknownSchema(f"{what} is not known to the registry")
        if status in (401, 403):
            raise CredentialsRefused(
                f"the schema registry {self._url} refuses these credentials (HTTP {status})",
                "see source.credentials: schema.registry.username and .password, or .token",
            )
        if 300 <= status < 400:
            why = "redirects elsewhere, which is not followed"
        else:
            why = f"answers HTTP {status}" + ("" if answer is not None else ", and not as a registry does")
        raise _NotSo(f"the schema registry {self._url} {why}", "see that format.registry is its address")

    def _ask(self, path: str, ends: float, largest: int) -> tuple[int, bytes]:
        """Status and body of a GET."""
        access = self._access
        limit_s = min(access.timeout_s, ends - time.monotonic())
        headers = {"Accept": _ACCEPT, **authorization(access.username, access.password, access.token)}
        try:
            answer = get(self._pool, self._url + path, headers, limit_s, largest)
        except TooLarge:
            raise UnknownSchema(
                f"the registry's answer has more than {_LARGEST:,} bytes, the schemas that it refers to among them"
            ) from None
        except TooSlow:
            raise RegistryFailed(f"the schema registry {self._url} did not answer within {access.timeout_s:g} s", _HINT) from None
        except HttpFailed as error:
            why = redact(str(error), access.secrets)
            raise RegistryFailed(f"the schema registry {self._url} cannot be reached: {why}", _HINT) from None
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
                f"the files of schema.registry.ssl cannot be read: {error}", "see schema.registry.ssl.* in source.config"
            ) from None
        return {"ssl_context": context}


class _Fetch:
    """One schema with all that it refers to, within one limit of bytes, of requests and of time.

    Args:
        get: sends a request: path, what is asked for, the end of its time, most bytes.
        number: the schema's id.
        query: of each address.
        ends: monotonic time until which all of it must be there.
    """

    def __init__(self, get: Callable[[str, str, float, int], tuple[dict[str, Any], int]], number: int, query: str, ends: float):
        self._get, self._number, self._query, self._ends = get, number, query, ends
        self._left = _LARGEST
        self._found: dict[tuple[str, int], tuple[str, str]] = {}

    def schema(self) -> Schema:
        """Fetch it; raises as `Registry.schema`."""
        answer = self._asked(f"/schemas/ids/{self._number}", f"schema {self._number}")
        self._references(answer, ())
        return Schema(str(answer.get("schemaType") or "AVRO"), _text(answer, self._number), tuple(self._found.values()))

    def _asked(self, path: str, what: str) -> dict[str, Any]:
        answer, size = self._get(path + self._query, what, self._ends, self._left)
        self._left -= size
        return answer

    def _references(self, answer: dict[str, Any], above: tuple[tuple[str, int], ...]) -> None:
        listed: Any = answer.get("references") or []
        for item in listed if isinstance(listed, list) else [listed]:
            try:
                name, subject, version = str(item["name"]), str(item["subject"]), int(item["version"])
            except (KeyError, TypeError, ValueError, OverflowError):
                raise UnknownSchema(f"schema {self._number}: its references cannot be read") from None
            key = subject, version
            if key in self._found:
                continue
            if key in above or len(self._found) + len(above) >= _MOST_REFERENCES:
                raise UnknownSchema(f"schema {self._number}: it refers to itself, or to more than {_MOST_REFERENCES} schemas")
            what = f"schema {self._number} refers to {subject!r} version {version}, which"
            inner = self._asked(f"/subjects/{quote(subject, safe='')}/versions/{version}", what)
            self._references(inner, (*above, key))
            self._found[key] = name, _text(inner, self._number)


class _NotSo(RegistryFailed):
    """It has answered, and not with a schema."""


_HINT = "see that it runs, and that format.registry is its address"


def _object(body: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _text(answer: dict[str, Any], number: int) -> str:
    text = answer.get("schema")
    if not isinstance(text, str):
        raise UnknownSchema(f"schema {number}: the registry's answer holds no schema")
    return text
