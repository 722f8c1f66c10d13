"""Sign requests by Standard Webhooks (https://www.standardwebhooks.com, version 1, symmetric).

`webhook-signature: v1,BASE64(HMAC-SHA256(secret, "ID.TIMESTAMP.BODY"))`, one for each secret, separated by blanks. The receiver
recomputes it and rejects old timestamps. The id is also sent as Idempotency-Key, which more receivers support.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import time
from collections.abc import Sequence
from hashlib import sha256

from kpipe.errors import InvalidPipeline

__all__ = ["headers", "keys"]

_PREFIX = "whsec_"
_SHORTEST = 24  # bytes of a secret: minimum of the specification


def keys(secret: str) -> list[bytes]:
    """Decode the keys in a secret: during a rotation it contains several, separated by blanks.

    Raises:
        InvalidPipeline: a key is invalid or too short.
    """
    found = []
    for part in secret.split():
        try:
            key = base64.b64decode(part[len(_PREFIX) :], validate=True) if part.startswith(_PREFIX) else part.encode()
        except binascii.Error:
            raise InvalidPipeline(
                "into.credentials: signing_secret: expected base64 after whsec_, found other characters", "copy the whole secret"
            ) from None  # fmt: skip
        if len(key) < _SHORTEST:
            raise InvalidPipeline(
                f"into.credentials: signing_secret: expected at least {_SHORTEST} bytes, found {len(key)}",
                "generate one: python3 -c \"import base64, os; print('whsec_' + base64.b64encode(os.urandom(32)).decode())\"",
            )
        found.append(key)
    return found


def headers(key: str, body: bytes, secrets: Sequence[bytes], now: float | None = None) -> dict[str, str]:
    """Return the headers that identify and sign a request; the signature is new at each attempt.

    Args:
        key: of the request, the same at every attempt.
        body: the bytes that are sent.
        secrets: keys to sign with; none: the request is not signed.
        now: seconds since 1970; None: the current time.
    """
    stamp = str(int(time.time() if now is None else now))
    told = {"Idempotency-Key": key, "webhook-id": key, "webhook-timestamp": stamp}
    if secrets:
        content = b".".join((key.encode(), stamp.encode(), body))
        signed = (base64.b64encode(hmac.digest(secret, content, sha256)).decode() for secret in secrets)
        told["webhook-signature"] = " ".join(f"v1,{text}" for text in signed)
    return told
