"""An OIDC token server: it signs JSON Web Tokens that live for seconds, counts them, and can be down or hostile."""

from __future__ import annotations

import base64
import json
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

__all__ = ["CLIENT", "SECRET", "TokenServer"]

CLIENT, SECRET = "kpipe-client", "canary-7d2e-client-secret"
ISSUER, AUDIENCE, KEY_ID = "https://issuer.example", "kafka", "k1"


def _base64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


class TokenServer:
    """A server at 127.0.0.1: `POST /token`, and the public key at `GET /keys`.

    Attributes:
        lives_s: lifetime of the next tokens.
        issued: every token so far.
        scopes: the scope that each request asked for.
        answer: replaces the answer of `/token`: status and body; None: a token, or 401 for wrong credentials.
    """

    def __init__(self, folder: Path, lives_s: float = 3600) -> None:
        self.key, self.lives_s, self.issued, self.scopes = folder / "signing.key", lives_s, [], []
        self.answer: tuple[int, bytes] | None = None
        subprocess.run(["openssl", "genrsa", "-out", str(self.key), "2048"], check=True, capture_output=True)
        told = subprocess.run(
            ["openssl", "rsa", "-in", str(self.key), "-noout", "-modulus"], check=True, capture_output=True, text=True
        ).stdout
        modulus = bytes.fromhex(told.strip().partition("=")[2])
        self._keys = json.dumps(
            {"keys": [{"kty": "RSA", "alg": "RS256", "use": "sig", "kid": KEY_ID, "n": _base64(modulus), "e": "AQAB"}]}
        ).encode()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.port = self._server.server_port
        self.base = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> TokenServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def token(self, lives_s: float | None = None, **claims: Any) -> str:
        """Sign a token."""
        now = time.time()
        body = {
            "sub": "loader", "iss": ISSUER, "aud": AUDIENCE, "iat": int(now) - 5, "scope": "read",
            "exp": now + (self.lives_s if lives_s is None else lives_s), "jti": str(len(self.issued)), **claims,
        }  # fmt: skip
        head = {"alg": "RS256", "typ": "JWT", "kid": KEY_ID}
        text = ".".join(_base64(json.dumps(part).encode()) for part in (head, body))
        signed = subprocess.run(
            ["openssl", "dgst", "-sha256", "-sign", str(self.key)], input=text.encode(), check=True, capture_output=True
        ).stdout
        made = f"{text}.{_base64(signed)}"
        self.issued.append(made)
        return made

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server: TokenServer = self
        expected = "Basic " + base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._send(200, server._keys)

            def do_POST(self) -> None:
                asked = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                assert asked["grant_type"] == ["client_credentials"]
                server.scopes.append(asked.get("scope", [""])[0])
                if server.answer is not None:
                    self._send(*server.answer)
                elif self.headers["Authorization"] != expected:
                    text = f"no such client: {self.headers['Authorization']}"  # a server that repeats what it was sent
                    self._send(401, json.dumps({"error": "invalid_client", "error_description": text}).encode())
                else:
                    self._send(200, json.dumps({"access_token": server.token(), "token_type": "Bearer"}).encode())

            def _send(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        return Handler


def broker_properties(server: TokenServer, name: str) -> dict[str, str]:
    """Settings of a Kafka listener that takes the server's tokens, and no longer than they live."""
    prefix = f"listener.name.{name.lower()}.oauthbearer."
    return {
        f"{prefix}sasl.jaas.config": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;",
        f"{prefix}sasl.server.callback.handler.class": (
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
        ),
        f"{prefix}sasl.oauthbearer.jwks.endpoint.url": f"{server.base}/keys",
        f"{prefix}sasl.oauthbearer.expected.audience": AUDIENCE,
        f"{prefix}sasl.oauthbearer.expected.issuer": ISSUER,
        f"{prefix}sasl.oauthbearer.clock.skew.seconds": "0",
        # Without it, a session lasts forever, whatever the token (KIP-368).
        f"{prefix}connections.max.reauth.ms": "3600000",
    }


def allowed(server: TokenServer) -> list[str]:
    """Options of the broker's JVM."""
    return [f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={server.base}/keys"]
