"""A client of a Kubernetes API server, as small as the tests need it: JSON over HTTPS, errors with the server's own words."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.parse
import urllib.request
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Object = dict[str, Any]

_GROUPS = {"v1": "api/v1"}
_CLUSTERS = {"Namespace", "Node", "PersistentVolume"}


class ApiError(Exception):
    """The server's refusal.

    Attributes:
        status: of HTTP.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


@dataclass(frozen=True)
class Api:
    """One identity at one server.

    Attributes:
        url: of the server.
        token: of whoever asks.
        authority: file with the certificate that the server's is checked with.
    """

    url: str
    token: str
    authority: Path

    def ask(self, method: str, path: str, body: Object | None = None, kind: str = "application/json") -> Object:
        """One request.

        Raises:
            ApiError: it was refused.
        """
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": kind, "Accept": "application/json"}
        request = urllib.request.Request(f"{self.url}/{path}", data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30, context=ssl.create_default_context(cafile=self.authority)) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            with error:
                said = error.read().decode(errors="replace")
            with suppress(ValueError, KeyError, TypeError):
                said = json.loads(said)["message"]
            raise ApiError(error.code, said) from None
        return dict(json.loads(text)) if text[:1] == b"{" else {"text": text.decode()}

    def apply(self, thing: Object) -> Object:
        """As `kubectl apply --server-side`; a field that the server does not know is an error."""
        path = f"{place(thing)}/{thing['metadata']['name']}?fieldManager=tests&force=true&fieldValidation=Strict"
        return self.ask("PATCH", path, thing, "application/apply-patch+yaml")

    def list(self, what: str, namespace: str, **labels: str) -> list[Object]:
        """Things of the core group in a namespace."""
        chosen = urllib.parse.quote(",".join(f"{name}={value}" for name, value in labels.items()))
        return list(self.ask("GET", f"api/v1/namespaces/{namespace}/{what}?labelSelector={chosen}")["items"])

    def delete(self, what: str, namespace: str, name: str, grace_s: int | None = None) -> None:
        """Ask for the end of a thing of the core group."""
        options = {} if grace_s is None else {"gracePeriodSeconds": grace_s}
        self.ask(
            "DELETE", f"api/v1/namespaces/{namespace}/{what}/{name}", {"kind": "DeleteOptions", "apiVersion": "v1", **options}
        )


def place(thing: Object) -> str:
    """Where things of its kind are, in its namespace."""
    group = _GROUPS.get(thing["apiVersion"], f"apis/{thing['apiVersion']}")
    names = thing["kind"].lower() + ("es" if thing["kind"].endswith("ss") else "s")
    space = "" if thing["kind"] in _CLUSTERS else f"namespaces/{thing['metadata']['namespace']}/"
    return f"{group}/{space}{names}"
