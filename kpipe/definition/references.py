"""References to values outside of a definition: environment variables, and for credentials also files and commands.

YAML has `{{ env('NAME') }}`, `{{ file('/path') }}` and `{{ command('/program arguments') }}`; statements and REST have
`${env:NAME}`, `${file:/path}` and `${command:/program arguments}`. Reading files and running commands is not the core's
task: `resources/secret_references.py`. Where a reference is required: `secret_values.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from kpipe.errors import InvalidPipeline

__all__ = [
    "READ_AGAIN",
    "fill",
    "from_statement",
    "is_reference",
    "mentions_reference",
    "rotates",
    "to_statement",
    "without_references",
]

#: A reference to a variable: its name is group 2, its default group 4.
_ENV = re.compile(r"\{\{\s*env\(\s*(['\"])(\w+)\1\s*(?:,\s*(['\"])(.*?)\3\s*)?\)\s*\}\}")
#: A reference that is read again: its type is group 1, its text group 3.
READ_AGAIN = re.compile(r"\{\{\s*(file|command)\(\s*(['\"])([^{}]*?)\2\s*\)\s*\}\}")
# The references that have a form without quotes, for statements.
_YAML = re.compile(r"\{\{\s*env\(\s*(['\"])(\w+)\1\s*(?:,\s*(['\"])([^{}']*?)\3\s*)?\)\s*\}\}")
_YAML_READ_AGAIN = re.compile(r"\{\{\s*(file|command)\(\s*(['\"])([^{}']*?)\2\s*\)\s*\}\}")
# `${env:NAME}`, `${env:NAME:-default}`, `${file:PATH}`, `${command:PROGRAM ARGUMENTS}`.
_STATEMENT = re.compile(r"\$\{(?:env:(\w+)(?::-([^{}']*))?|(file|command):([^{}']+))\}")
# The beginning of a reference, whatever follows.
_BEGUN = re.compile(r"\{\{|\$\{\s*(?:env|file|command)\s*:")
# References, each shown as a sign that no text may contain, perhaps after the scheme of an HTTP header.
_SIGN, _LONGEST = "\0", 8192
_ONLY_REFERENCES = re.compile(rf"(?:(?:bearer|basic|token) +)?{_SIGN}(?:[ :]?{_SIGN})*", re.IGNORECASE)


def fill(text: str, environ: Mapping[str, str], read: Callable[[str, str], str] | None = None) -> str:
    """Fill in every reference of a text.

    Args:
        text: of a definition.
        environ: values of variables.
        read: returns the value of a file or a command, by `file` or `command` and its text; None: the text must not have one.

    Raises:
        InvalidPipeline: a variable is not set and has no default, or the braces contain something else. The message names
            the variable, never a value.
    """

    def variable(match: re.Match[str]) -> str:
        name, default = match.group(2), match.group(4)
        value = environ.get(name, default)
        if value is None:
            raise InvalidPipeline(f"environment variable {name} is not set", f"export {name}=...")
        return value

    # In the text of the definition only: a value may contain braces.
    if "{{" in without_references(text):
        hint = "write {{ env('NAME') }} or {{ env('NAME', 'default') }}"
        more = (
            "; {{ '{{' }} for a text of two braces; for a credential {{ file('/path') }} or {{ command('/program arguments') }}"
        )
        raise InvalidPipeline("unknown template", hint + more)
    if read is None:
        if (found := READ_AGAIN.search(text)) is not None:
            raise InvalidPipeline(f"{found[1]}() is for credentials only", "write the value, or {{ env('NAME') }}")
        return _ENV.sub(variable, text)
    parts, end = [], 0
    for match in READ_AGAIN.finditer(text):
        parts += [_ENV.sub(variable, text[end : match.start()]), read(match[1], match[3])]
        end = match.end()
    return "".join([*parts, _ENV.sub(variable, text[end:])])


def rotates(texts: Iterable[str]) -> bool:
    """Return whether one of the texts refers to a file or a command, whose value may change while a run lasts."""
    return any(READ_AGAIN.search(text) for text in texts)


def is_reference(text: str) -> bool:
    """Return whether a text of a definition consists of references, so that it contains no secret itself.

    A default is part of the text, and so is everything beside a reference. Allowed are `Bearer`, `Basic` or `Token` before
    the first reference, and a blank or a colon between two.
    """
    if _SIGN in text or len(text) > _LONGEST:
        return False
    plain = _ENV.sub(lambda match: _SIGN if match[4] is None else match[0], text)
    return bool(_ONLY_REFERENCES.fullmatch(READ_AGAIN.sub(_SIGN, plain)))


def mentions_reference(text: str) -> bool:
    """Return whether a text contains a reference of any form, or the beginning of an invalid one."""
    return bool(_BEGUN.search(text))


def without_references(text: str) -> str:
    """Remove the references of a definition, with their defaults."""
    return READ_AGAIN.sub("", _ENV.sub("", text))


def from_statement(text: str) -> str:
    """Convert references of a statement to those of a definition."""

    def reference(match: re.Match[str]) -> str:
        name, default, kind, inner = match.groups()
        if kind is not None:
            return f"{{{{ {kind}('{inner}') }}}}"
        return f"{{{{ env('{name}') }}}}" if default is None else f"{{{{ env('{name}', '{default}') }}}}"

    return _STATEMENT.sub(reference, text)


def to_statement(text: str) -> str:
    """Convert references of a definition to those of a statement."""

    def variable(match: re.Match[str]) -> str:
        name, default = match[2], match[4]
        return f"${{env:{name}}}" if default is None else f"${{env:{name}:-{default}}}"

    return _YAML_READ_AGAIN.sub(lambda match: f"${{{match[1]}:{match[3]}}}", _YAML.sub(variable, text))
