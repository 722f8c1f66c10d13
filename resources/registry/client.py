"""What a registry says of a schema's id. Asked once for each id; an unknown one is asked for again a little later.

Written over urllib3 (which Dagster brings along) and not over the client of confluent-kafka's `schemaregistry` extra: that
follows redirects, reads answers of any size, repeats requests behind our back, and brings ten packages more. All that is
needed is two GETs.
"""

from __future__ import annotations

import json
import ssl
import threading
import time
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import quote, urlsplit

import urllib3

from kpipe.errors import CredentialsRefused, RegistryFailed
from resources.kafka.secret import redact
from resources.registry.access import Access, address

__all__ = ["Registry", "Schema", "UnknownSchema", "registry"]

# A schema is kept in one record of Kafka, 1 MB by default; with everything it refers to it may take so much.
_LARGEST = 8 << 20
_MOST_REFERENCES = 200
# For as long an unknown id is not asked for again: it may be registered any moment, and hostile records hold many.
_FORGET_S = 10.0
_CACHED = 10_000
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


@lru_cache(maxsize=64)
def registry(url: str, access: Access) -> Registry:
    """The client of that address, one for a process.

    Raises:
        InvalidPipeline: no address; files of TLS cannot be read.
    """
    return Registry(url, access)


class Registry:
    """A client with a cache. For several threads.

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
        self._known: dict[int, Schema] = {}
        self._unknown: dict[int, tuple[float, str]] = {}
        self._lock = threading.Lock()
        self._pool = urllib3.PoolManager(retries=False, maxsize=2, **self._tls())

    def schema(self, number: int) -> Schema:
        """The schema of that id.

        Raises:
            UnknownSchema: there is none, or none that can be used.
            CredentialsRefused: the registry wants others.
            RegistryFailed: it gave no answer that says anything about the schema (retriable).
        """
        with self._lock:
            if number in self._known:
                return self._known[number]
            since, why = self._unknown.get(number, (0.0, ""))
            if why and self._clock() - since < _FORGET_S:
                raise UnknownSchema(why)
            try:
                found = self._fetch(number)
            except UnknownSchema as error:
                if len(self._unknown) >= _CACHED:
                    self._unknown.clear()
                self._unknown[number] = self._clock(), str(error)
                raise
            self._known[number] = found
            return found

    def _fetch(self, number: int) -> Schema:
        answer = self._get(f"/schemas/ids/{number}", f"schema {number}")
        found: dict[tuple[str, int], tuple[str, str]] = {}
        self._references(answer, number, found, ())
        kind = answer.get("schemaType") or "AVRO"
        return Schema(str(kind), _text(answer, number), tuple(found.values()))

    def _references(
        self, answer: dict[str, Any], number: int, found: dict[tuple[str, int], tuple[str, str]], above: tuple[Any, ...]
    ) -> None:
        for item in answer.get("references") or ():
            try:
                name, subject, version = str(item["name"]), str(item["subject"]), int(item["version"])
            except (KeyError, TypeError, ValueError):
                raise UnknownSchema(f"schema {number}: its references cannot be read") from None
            if (subject, version) in found:
                continue
            if (subject, version) in above or len(found) + len(above) >= _MOST_REFERENCES:
                raise UnknownSchema(f"schema {number}: it refers to itself, or to more than {_MOST_REFERENCES} schemas")
            what = f"schema {number} refers to {subject!r} version {version}, which"
            inner = self._get(f"/subjects/{quote(subject, safe='')}/versions/{version}", what)
            self._references(inner, number, found, (*above, (subject, version)))
            found[subject, version] = name, _text(inner, number)

    def _get(self, path: str, what: str) -> dict[str, Any]:
        status, body = self._ask(path)
        answer = _object(body)
        if status == 200 and answer is not None:
            return answer
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
        raise RegistryFailed(f"the schema registry {self._url} {why}", "see that format.registry is its address")

    def _ask(self, path: str) -> tuple[int, bytes]:
        """Status and body of a GET. Time and size are bounded as a whole: urllib3's own limit is one for each read."""
        limit = self._access.timeout_s
        ends = time.monotonic() + limit
        try:
            response = self._pool.request(
                "GET",
                self._url + path,
                headers=self._headers(),
                timeout=urllib3.Timeout(connect=limit, read=limit),
                redirect=False,
                preload_content=False,
                decode_content=False,
            )
            try:
                body = bytearray()
                while piece := response.read1(65536):
                    body += piece
                    if len(body) > _LARGEST:
                        raise UnknownSchema(f"the registry's answer has more than {_LARGEST:,} bytes")
                    if time.monotonic() > ends:
                        raise RegistryFailed(f"the schema registry {self._url} did not answer within {limit:g} s", _HINT)
                status = int(response.status)
                response.release_conn()
                return status, bytes(body)
            except BaseException:
                response.close()
                raise
        except (urllib3.exceptions.HTTPError, OSError) as error:
            why = redact(str(error), self._access.secrets)
            raise RegistryFailed(f"the schema registry {self._url} cannot be reached: {why}", _HINT) from None

    def _headers(self) -> dict[str, str]:
        headers = {"Accept": _ACCEPT, "Accept-Encoding": "identity", "User-Agent": "kpipe"}
        access = self._access
        if access.token:
            headers["Authorization"] = f"Bearer {access.token}"
        elif access.username:
            headers["Authorization"] = "Basic " + b64encode(f"{access.username}:{access.password}".encode()).decode()
        return headers

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
