"""Signed requests, as Standard Webhooks has them (https://www.standardwebhooks.com, version 1, symmetric).

`webhook-signature: v1,BASE64(HMAC-SHA256(secret, "ID.TIMESTAMP.BODY"))`, one for each secret, with blanks between them; the
receiver recomputes it, and refuses an old timestamp. The id is also sent as Idempotency-Key, which more receivers know.
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
_SHORTEST = 24  # bytes of a secret, by the specification


def keys(secret: str) -> list[bytes]:
    """The keys that a secret stands for: several, with blanks between them, while one takes the place of another.

    Raises:
        InvalidPipeline: it is none, or too short to be one.
    """
    found = []
    for part in secret.split():
        try:
            key = base64.b64decode(part[len(_PREFIX) :], validate=True) if part.startswith(_PREFIX) else part.encode()
        except binascii.Error:
            raise InvalidPipeline(
                "into.credentials: signing_secret is not base64 behind whsec_", "copy all of it"
            ) from None  # fmt: skip
        if len(key) < _SHORTEST:
            raise InvalidPipeline(
                f"into.credentials: signing_secret has {len(key)} bytes, {_SHORTEST} at least",
                "make one: python3 -c \"import base64, os; print('whsec_' + base64.b64encode(os.urandom(32)).decode())\"",
            )
        found.append(key)
    return found


def headers(key: str, body: bytes, secrets: Sequence[bytes], now: float | None = None) -> dict[str, str]:
    """What identifies a request, and proves who sent it, made anew for each try.

    Args:
        key: of the request, the same whenever it is sent.
        body: the bytes that are sent.
        secrets: keys to sign with; none: it is not signed.
        now: seconds since 1970; None: by the clock.
    """
    stamp = str(int(time.time() if now is None else now))
    told = {"Idempotency-Key": key, "webhook-id": key, "webhook-timestamp": stamp}
    if secrets:
        content = b".".join((key.encode(), stamp.encode(), body))
        signed = (base64.b64encode(hmac.digest(secret, content, sha256)).decode() for secret in secrets)
        told["webhook-signature"] = " ".join(f"v1,{text}" for text in signed)
    return told
