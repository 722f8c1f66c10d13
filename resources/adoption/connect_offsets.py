"""Read the offsets of a sink connector that Kafka Connect's REST API returns (KIP-875): `GET /connectors/NAME/offsets`."""

from __future__ import annotations

import json
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from kpipe.adoption.positions import Key, Positions
from kpipe.errors import CredentialsRefused, InvalidPipeline, SourceError
from resources.adoption.json_document import json_document
from resources.secret_references import credential
from resources.secrets import redact

__all__ = ["connect_offsets"]

_MOST_BYTES = 32 << 20
_SECONDS = 30.0
_CREDENTIALS = ("username", "password", "token")
_FORM = '{"offsets": [{"partition": {"kafka_topic": "t", "kafka_partition": 0}, "offset": {"kafka_offset": 5}}]}'
_ACTIVE = ("RUNNING", "PAUSED", "UNASSIGNED", "RESTARTING")


def connect_offsets(place: str, credentials: Mapping[str, str]) -> Positions:
    """Return the offsets of a connector, from a file or from the URL of the request.

    From a URL, also read the connector's state: a connector that is not stopped is a problem.

    Args:
        place: path of a file with the answer, or `http://HOST:8083/connectors/NAME/offsets`.
        credentials: templates of `username` and `password`, or of `token`.

    Raises:
        InvalidPipeline: the answer is not that of a sink connector, or the file cannot be read.
        SourceError: the server does not answer, or rejects the request.
    """
    if not place.startswith(("http://", "https://")):
        if credentials:
            raise InvalidPipeline("--from-credential: a file needs none", "remove the option")
        path = Path(place).expanduser()
        try:
            with path.open("rb") as file:
                body = file.read(_MOST_BYTES + 1)
        except OSError as error:
            raise InvalidPipeline(f"connect-offsets: {path}: {error.strerror}", "name a file or a URL") from None
        if len(body) > _MOST_BYTES:
            raise InvalidPipeline(
                f"connect-offsets: {path} is larger than {_MOST_BYTES:,} bytes", "name the answer of the request"
            )
        return Positions(f"Kafka Connect's offsets in {path}", _offsets(body, str(path)))
    server = _Server(place, credentials)
    problems = server.problems()
    return Positions(f"Kafka Connect's offsets at {place}", _offsets(server.get(place), place), problems=problems)


class _Server:
    def __init__(self, url: str, credentials: Mapping[str, str]) -> None:
        parts = urlsplit(url)
        if not parts.hostname or not parts.path.rstrip("/").endswith("/offsets") or parts.query or parts.fragment:
            shown = f"{parts.scheme}://{parts.hostname or ''}{parts.path}"
            raise InvalidPipeline(
                f"connect-offsets: expected http://HOST:8083/connectors/NAME/offsets, found {shown}",
                "copy the address of the request",
            )
        if parts.username is not None or parts.password is not None:
            raise InvalidPipeline("connect-offsets: the URL contains credentials", "use --from-credential")
        unknown = sorted(credentials.keys() - set(_CREDENTIALS))
        if unknown:
            raise InvalidPipeline(f"--from-credential {unknown[0]}: expected one of {', '.join(_CREDENTIALS)}", "rename it")
        from resources.schema_registry.config import is_local

        if credentials and parts.scheme == "http" and not is_local(parts.hostname):
            raise InvalidPipeline(
                f"connect-offsets: credentials would go to {parts.hostname} unencrypted",
                "use https, or save the answer in a file",
            )
        self._url = url.rstrip("/")
        self._secrets = {
            name: credential(f"--from-credential {name}", template) for name, template in credentials.items()
        }  # fmt: skip

    def problems(self) -> list[str]:
        """Return why the connector may still commit; its name is in the URL."""
        try:
            document = json_document(self.get(f"{self._url.removesuffix('/offsets')}/status"))
            states = [document["connector"]["state"], *(task["state"] for task in document["tasks"])]
        except (ValueError, KeyError, TypeError):
            raise InvalidPipeline(f"{self._url}: the connector's status is not that of Kafka Connect", "check the URL") from None
        if any(state in _ACTIVE for state in states):
            text = ", ".join(sorted(set(map(str, states))))
            name = self._url.split("/")[-2]
            return [f"connector {name} is not stopped ({text}): PUT /connectors/{name}/stop first"]
        return []

    def get(self, url: str) -> bytes:
        """Send a GET, and return the body."""
        from resources.net.connections import Connections
        from resources.net.http import HttpFailed, Untrusted, authorization, get

        headers = {"Accept": "application/json", **authorization(*(self._secrets.get(name, "") for name in _CREDENTIALS))}
        secrets = (*self._secrets.values(), *headers.values())
        pool = Connections(retries=False, ssl_context=ssl.create_default_context())
        try:
            answer = get(pool, url, headers, _SECONDS, _MOST_BYTES)
        except Untrusted as error:
            raise CredentialsRefused(
                f"{url}: its certificate is not trusted: {redact(str(error), secrets)}", "set SSL_CERT_FILE"
            ) from None
        except HttpFailed as error:
            raise SourceError(
                f"{url} does not answer: {redact(str(error), secrets)}", "check the address; or save the answer in a file"
            ) from None
        finally:
            pool.clear()
        if answer.status in (401, 403):
            raise CredentialsRefused(f"{url} rejects the credentials (HTTP {answer.status})", "see --from-credential")
        if answer.status != 200:
            raise SourceError(f"{url} answers HTTP {answer.status}: {answer.quoted(200, secrets)}", "check the connector's name")
        return answer.body


def _offsets(body: bytes, where: str) -> dict[Key, int]:
    try:
        document = json_document(body)
    except ValueError:
        document = None
    entries = document.get("offsets") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        raise InvalidPipeline(f"{where}: expected {_FORM}", "save the answer of GET /connectors/NAME/offsets")
    found: dict[Key, int] = {}
    for entry in entries:
        key, at = _entry(entry, where)
        if key in found:
            raise InvalidPipeline(f"{where}: {key[0]}/{key[1]} is duplicated", "save the answer of the request again")
        found[key] = at
    return found


def _entry(entry: Any, where: str) -> tuple[Key, int]:
    try:
        topic, number = entry["partition"]["kafka_topic"], entry["partition"]["kafka_partition"]
        at = entry["offset"]["kafka_offset"]
    except (KeyError, TypeError):
        topic = number = at = None
    if not isinstance(topic, str) or type(number) is not int or type(at) is not int or number < 0 or at < 0:
        raise InvalidPipeline(
            f"{where}: not the offsets of a sink connector: expected {_FORM}, found {json.dumps(entry)[:120]}",
            "a source connector writes to Kafka, so it has no position to take over",
        )
    return (topic, number), at
