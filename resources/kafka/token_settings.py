"""Convert the settings of SASL/OAUTHBEARER to the source of its tokens."""

from __future__ import annotations

import re
from collections.abc import Mapping

from kpipe.definition.references import READ_AGAIN, rotates
from kpipe.errors import InvalidPipeline
from resources.kafka.token_endpoint import Endpoint
from resources.kafka.token_source import TokenSource
from resources.secrets import Secret

__all__ = ["MECHANISM", "TOKEN", "token_source"]

MECHANISM = "OAUTHBEARER"
TOKEN = "sasl.oauthbearer.token"
_URL, _ID, _SECRET = (f"sasl.oauthbearer.{name}" for name in ("token.endpoint.url", "client.id", "client.secret"))


def token_source(given: Mapping[str, str], hidden: Mapping[str, Secret], template: str, plaintext: bool) -> TokenSource:
    """Return the source of tokens.

    Args:
        given: the settings of OAUTHBEARER in `source.config`.
        hidden: those in `source.credentials`, resolved.
        template: `sasl.oauthbearer.token` as it is written.
        plaintext: whether the client's secret may be sent to another machine without TLS.

    Raises:
        InvalidPipeline: settings are missing, or do not fit each other.
    """
    both = {**given, **hidden}
    if unused := sorted({"sasl.username", "sasl.password"} & hidden.keys()):
        raise InvalidPipeline(f"source.credentials: {unused[0]} would not be used with sasl.mechanism {MECHANISM}", "remove it")
    method = given.get("sasl.oauthbearer.method", "oidc" if _URL in given else "default").lower()
    if method not in ("oidc", "default"):
        raise InvalidPipeline("source.config: sasl.oauthbearer.method: expected oidc or default, found another text", "use oidc")
    extensions = _extensions(given.get("sasl.oauthbearer.extensions", ""))
    if method == "default":
        if TOKEN not in hidden:
            raise InvalidPipeline(
                f"source.credentials: {TOKEN} is missing: sasl.mechanism {MECHANISM} needs tokens",
                f"set {_URL} in source.config, with {_ID} and {_SECRET} in source.credentials; or {TOKEN} to a file or command",
            )
        unused = sorted({"sasl.oauthbearer.scope", "https.ca.location", _URL, _ID, _SECRET} & both.keys())
        if unused:
            raise InvalidPipeline(f"source: {unused[0]} would not be used with {TOKEN}", "remove one of them")
        if rotates([template]) and not READ_AGAIN.fullmatch(template.strip()):
            raise InvalidPipeline(
                f"source.credentials: {TOKEN}: expected one reference, found more", "write file() or command() only"
            )
        return TokenSource(None, Secret(template) if rotates([template]) else hidden[TOKEN], extensions)
    if TOKEN in hidden:
        raise InvalidPipeline(f"source.credentials: {TOKEN} would not be used with {_URL}", "remove one of them")
    for name in (_URL, _ID, _SECRET):
        if not both.get(name):
            group = "config" if name == _URL else "credentials"
            raise InvalidPipeline(f"source.{group}: {name} is missing: a token endpoint needs it", f"set source.{group} {name}")
    if ":" in both[_ID]:
        raise InvalidPipeline(f"source.credentials: {_ID} contains a colon, which HTTP's Basic cannot transmit", "check it")
    found = Endpoint(
        given[_URL], str(both[_ID]), hidden[_SECRET], given.get("sasl.oauthbearer.scope", ""), given.get("https.ca.location", "")
    )
    found.check(plaintext)
    return TokenSource(found, Secret(""), extensions)


def _extensions(text: str) -> tuple[tuple[str, str], ...]:
    """Return the SASL extensions of `name=value,name=value`.

    Raises:
        InvalidPipeline: a part has another form (KIP-342).
    """
    found = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = part.partition("=")
        if not re.fullmatch(r"[A-Za-z]+", name) or name.lower() == "auth" or not re.fullmatch(r"[\x21-\x7e]+", value):
            raise InvalidPipeline(
                "source.config: sasl.oauthbearer.extensions: expected name=value,name=value, found another text",
                "write names of letters, except auth",
            )
        found.append((name, value))
    return tuple(found)
