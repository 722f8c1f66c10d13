"""Decide which values of a definition are literal secrets, and mask them.

Statements and REST reject a literal secret, because kpipe would store it. A file is its author's: there kpipe masks it
wherever it shows the definition. Names can only suggest a secret, so a harmless value may be masked, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from kpipe.definition.references import is_reference, mentions_reference, without_references

__all__ = [
    "MASK",
    "STORE",
    "is_credential",
    "is_secret_name",
    "is_secret_parameter",
    "is_secret_value",
    "masked",
    "may_hide",
    "problem",
    "problems",
    "replaced",
    "shown",
    "suggests_secret",
]

MASK = "***"

_Path = tuple[str, ...]

# Names that suggest a secret anywhere, and as one of their words only: X-Author and Keyboard-Layout contain none.
_NAME = re.compile(
    r"token|secret|passw|passphrase|session|credential|signature|cookie|authoriz|authentic|bearer|jaas|user\.info|api[-_.]?key",
    re.IGNORECASE,
)
_WORD = re.compile(r"x?(auth|key)(id|s|code)?|pass|pwd?|sig|sign|jwt|pin|sid|otp|hmac|psk|sas|saml|creds?", re.IGNORECASE)
_WORDS = re.compile(r"[^A-Za-z0-9]+|(?<=[a-z0-9])(?=[A-Z])")
# Settings of Kafka and options of databases: `ssl.key.location` and `sslkey` name a file.
_SETTING = re.compile(
    r"passw|passphrase|secret|jaas|user\.info|key\.pem|token$|(?:api|access|account)[-_.]?key$|(?:^|[-_.])sig$", re.IGNORECASE
)
_USER_NAMES = ("username", "sasl.username", "schema.registry.username", "catalog.username")
# Patterns of files, and folders of lakes that are read, which may be in an object store.
_STORES = (("source", "files"), ("source", "files", "path"), ("source", "lake", "database"))
STORE = re.compile(r"(s3|gs|az|abfss):/")  #: Start of a location that is meant to be in an object store.
# What follows a scheme, up to the next address.
_ADDRESS = re.compile(r"(https?)?://((?:(?!://)\S)*)", re.IGNORECASE)
_PORT = re.compile(r"\d{1,5}(?:[/?#,]|$)")
_PARAMETER = re.compile(r"(?:^|[?&;#,\s])([\w.%-]+)\s*=\s*(?P<value>'(?:[^'\\]|\\.)*'|[^&;#,\s']+)")
# Contents of headers: a scheme of HTTP with its token, a JWT, a member whose name suggests a secret.
_BEARER = re.compile(r"\s*(?:bearer|digest|negotiate|api-?key)\s+\S.*", re.IGNORECASE)
_BASIC = re.compile(r"\s*(?:basic|token)\s+(?!(?-i:[A-Za-z]?[a-z]*)\s*$)[\w.~+/-]+=*\s*", re.IGNORECASE)
_JWT = re.compile(r"\beyJ[\w-]{8}")  # base64 of `{"`
_MEMBER = re.compile(r"(?:^|[\s,;|&?{\"'])([\w.-]+)[\"']?\s*[:=]\s*\S")
# Words in a statement that is masked as a whole.
_SUGGESTS = re.compile(
    r"passw|secret|token|credential|\.pem|basic\.auth|user\.info|api.?key|jaas|headers\W{0,4}:|bearer "
    r"|(?:^|[\s(=,'\"`‘’“”])[^\s(=,'\"`‘’“”:/@]+:(?!//)\S{0,4000}@",  # USER:PASSWORD@HOST
    re.IGNORECASE,
)
_IN_QUERY = re.compile(r"[?&]([\w.%-]+)=")

_WRITE = "write ${env:NAME}, ${file:/path} or ${command:/program}, without a default and without other text"


def is_credential(path: _Path) -> bool:
    """Return whether a field is a credential, or contains all of them."""
    return path[:2] in (("source", "credentials"), ("into", "credentials")) or (
        path[:1] == ("lookups",) and path[2:3] == ("credentials",)
    )


def _is_header(path: _Path) -> bool:
    return path[:2] == ("into", "headers") or path[:3] == ("source", "http", "headers")


def _is_setting(path: _Path) -> bool:
    return path[:2] in (("source", "config"), ("into", "config"))


def _is_address(path: _Path) -> bool:
    inside = (
        ("into", "url"), ("into", "database"), ("into", "catalog"), ("source", "table", "database"), ("format", "registry"),
        ("source", "lake", "catalog"), ("source", "http", "url"), ("key_format", "registry"), ("into", "registry"), *_STORES,
    )  # fmt: skip
    return path in inside or (path[:1] == ("lookups",) and path[2:] == ("url",))


def may_hide(path: _Path) -> bool:
    """Return whether a field contains secrets, or may by mistake: its value is in no error."""
    return is_credential(path) or _is_header(path[:2]) or _is_setting(path[:2]) or _is_address(path) or path[:1] == ("lookups",)


def _name_of(path: _Path) -> str:
    """Return the name in a map of credentials, headers or settings; dots may have divided it."""
    return ".".join(path[3:] if path[0] == "lookups" else path[2:])


def is_secret_name(name: str) -> bool:
    """Return whether a header or a parameter of an address may be a secret, as far as its name shows."""
    return bool(_NAME.search(name)) or any(_WORD.fullmatch(word) for word in _WORDS.split(name))


def is_secret_value(text: str) -> bool:
    """Return whether the value of a header may contain a secret, whatever the header's name."""
    if _BEARER.fullmatch(text) or _BASIC.fullmatch(text) or _JWT.search(text) or next(_in_address(text, is_secret_name), None):
        return True
    return any(is_secret_name(found[1]) for found in _MEMBER.finditer(text))


def suggests_secret(statement: str) -> bool:
    """Return whether the text of a statement, which may be invalid, may contain a secret in one of its quoted texts."""
    if _SUGGESTS.search(statement) or _JWT.search(statement) or next(_before_host(statement), None):
        return True
    return any(is_secret_parameter(unquote(found[1])) for found in _IN_QUERY.finditer(statement))


def is_secret_parameter(name: str) -> bool:
    """Return whether a parameter of a URL may be a secret, as far as its name shows."""
    return is_secret_name(name) or name.lower() == "code"  # that of Azure's functions


def _is_option(name: str) -> bool:
    return bool(_SETTING.search(name))


def _in_address(text: str, is_secret: Callable[[str], bool]) -> Iterator[tuple[int, int]]:
    """Yield start and end of the secrets in an address, or in a list of settings."""
    yield from _before_host(text)
    for found in _PARAMETER.finditer(text):
        if is_secret(unquote(found[1])):
            yield found.span("value")


def _before_host(text: str) -> Iterator[tuple[int, int]]:
    """Yield start and end of each password before a host. With http a name alone may be a token."""
    for found in _ADDRESS.finditer(text):
        start, rest = found.start(2), found[2]
        at = re.split(r"[/?#]", rest, maxsplit=1)[0].rfind("@") if found[1] is not None else -1
        if at > 0:
            yield start, start + at
            continue
        name, colon, _ = rest.partition(":")
        at = rest.rfind("@")
        if colon and at > len(name) and not set(name) & set("/@[") and not _PORT.match(rest, len(name) + 1):
            yield start + len(name) + 1, start + at


def _parts(path: _Path, text: str) -> list[tuple[int, int]]:
    """Return start and end of each literal secret in a value."""
    if is_credential(path):
        literal = not (is_reference(text) or _name_of(path) == "sasl.username")
    elif _is_header(path):
        literal = is_secret_name(_name_of(path)) or is_secret_value(text) or mentions_reference(text)
    else:
        literal = _is_setting(path) and _is_option(_name_of(path))
    if literal:
        return [(0, len(text))]
    if not _is_setting(path) and not _is_address(path):
        return []
    # A registry's address may have no scheme, and that of a store by mistake.
    in_store = path in _STORES or STORE.match(text) is not None
    added = "://" if (path[-1] == "registry" or in_store) and "://" not in text else ""
    by_name = is_secret_parameter if path[-1] in ("url", "registry") or in_store else _is_option
    found = _in_address(added + text, by_name)
    return [(start - len(added), end - len(added)) for start, end in found]


def problem(path: _Path, value: object) -> tuple[str, str] | None:
    """Return why a value may not be stored: it is a literal secret, or contains one. None if it may.

    Args:
        path: of the field in the definition.
        value: with references in YAML's form.

    Returns:
        The problem, to be written after the field's name, and a hint.
    """
    text = str(value)
    if is_credential(path):
        if is_reference(text) or (_name_of(path) in _USER_NAMES and not mentions_reference(without_references(text))):
            return None
        return "is a literal, which would be stored with the definition", _WRITE
    if not _parts(path, text):
        return None
    if _is_header(path):
        return "may be a secret", f"set into.credentials.header.{_name_of(path)} to a reference, such as {{{{ env('NAME') }}}}"
    if _is_setting(path) and _is_option(_name_of(path)):
        return "is a secret", f"write it under {path[0]}.credentials, as a reference: ${{env:NAME}}"
    if path == ("into", "url"):
        return "may contain a secret", "set into.credentials.url to a reference to the whole address, instead of into.url"
    place = f"lookups.{path[1]}.credentials" if path[0] == "lookups" else f"{path[0]}.credentials"
    side = "into" if path[0] == "into" else "source"
    place = f"{side}.credentials.schema.registry.password" if path[-1] == "registry" else place
    return "may contain a secret", f"move it to {place}, as a reference: ${{env:NAME}}"


def problems(fields: Any) -> Iterator[tuple[_Path, tuple[str, str]]]:
    """Yield path and problem of each value of a definition that may not be stored; see `problem`."""
    found: list[tuple[_Path, tuple[str, str]]] = []

    def note(path: _Path, value: Any) -> Any:
        wrong = problem(path, value) if value is not None and not isinstance(value, bool) else None
        if wrong is not None:
            found.append((path, wrong))
        return value

    replaced(fields, note)
    yield from found


def shown(path: _Path, value: Any) -> Any:
    """Return a value as it may be shown: with a mask in place of literal secrets.

    A literal user's name is masked, too, except Kafka's: a service may take a key as the name.
    """
    if value is None or isinstance(value, bool):
        return value
    text = str(value)
    parts, last = [], 0
    for start, end in sorted(_parts(path, text)):
        if start >= last:  # else inside the one before
            parts += [text[last:start], MASK]
        last = max(last, end)
    return "".join([*parts, text[last:]]) if parts else value


def masked(fields: Any, path: _Path = ()) -> Any:
    """Return fields of a definition with a mask in place of literal secrets."""
    return replaced(fields, shown, path)


def replaced(fields: Any, change: Callable[[_Path, Any], Any], path: _Path = ()) -> Any:
    """Return fields of a definition in which each plain value was changed."""
    if isinstance(fields, Mapping):
        return {key: replaced(value, change, (*path, str(key))) for key, value in fields.items()}
    if isinstance(fields, list | tuple):
        return [replaced(value, change, (*path, str(at))) for at, value in enumerate(fields)]
    return change(path, fields)
