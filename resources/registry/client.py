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
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import quote, urlsplit

import urllib3

from kpipe.errors import CredentialsRefused, RegistryFailed
from resources.http import HttpFailed, TooLarge, TooSlow, authorization, get
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
        self._known: dict[tuple[int, str], Schema] = {}
        self._unknown: dict[int, tuple[float, str]] = {}
        self._lock = threading.Lock()
        self._pool = urllib3.PoolManager(retries=False, maxsize=2, **self._tls())

    def schema(self, number: int, form: str = "") -> Schema:
        """The schema of that id.

        Args:
            number: the id.
            form: how the text is to be written, where its kind has several: `serialized`, Protobuf's descriptors in base64.

        Raises:
            UnknownSchema: there is none, or none that can be used.
            CredentialsRefused: the registry wants others.
            RegistryFailed: it gave no answer that says anything about the schema (retriable).
        """
        with self._lock:
            if (number, form) in self._known:
                return self._known[number, form]
            since, why = self._unknown.get(number, (0.0, ""))
            if why and self._clock() - since < _FORGET_S:
                raise UnknownSchema(why)
            try:
                found = self._fetch(number, form)
            except UnknownSchema as error:
                if len(self._unknown) >= _CACHED:
                    self._unknown.clear()
                self._unknown[number] = self._clock(), str(error)
                raise
            self._known[number, form] = found
            return found

    def _fetch(self, number: int, form: str) -> Schema:
        try:
            return self._as(number, f"?format={form}" if form else "")
        except _NotSo:
            if not form:
                raise
            return self._as(number, "")  # Apicurio 3.3.3 answers HTTP 500 for the descriptors of a schema with a package

    def _as(self, number: int, query: str) -> Schema:
        answer = self._get(f"/schemas/ids/{number}{query}", f"schema {number}")
        found: dict[tuple[str, int], tuple[str, str]] = {}
        self._references(answer, number, found, (), query)
        kind = answer.get("schemaType") or "AVRO"
        return Schema(str(kind), _text(answer, number), tuple(found.values()))

    def _references(
        self,
        answer: dict[str, Any],
        number: int,
        found: dict[tuple[str, int], tuple[str, str]],
        above: tuple[Any, ...],
        query: str,
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
            inner = self._get(f"/subjects/{quote(subject, safe='')}/versions/{version}{query}", what)
            self._references(inner, number, found, (*above, (subject, version)), query)
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
        raise _NotSo(f"the schema registry {self._url} {why}", "see that format.registry is its address")

    def _ask(self, path: str) -> tuple[int, bytes]:
        """Status and body of a GET."""
        access = self._access
        headers = {"Accept": _ACCEPT, **authorization(access.username, access.password, access.token)}
        try:
            answer = get(self._pool, self._url + path, headers, access.timeout_s, _LARGEST)
        except TooLarge:
            raise UnknownSchema(f"the registry's answer has more than {_LARGEST:,} bytes") from None
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
