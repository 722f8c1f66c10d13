"""Read the values of a definition's credentials: environment variables, files and the output of commands.

Nothing is kept: each call reads again, so that a value that was replaced (a Kubernetes secret, a token of an hour) is used
by the next connection. The rules for files and commands are those of `transform.program`: the author of a definition may
run programs as this user, but no other user may replace what it names.
"""

from __future__ import annotations

import os
import re
import select
import shlex
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from kpipe.definition.references import fill
from kpipe.errors import CredentialUnavailable, InvalidPipeline
from resources.environ import snapshot
from transforms.preflight import opened

__all__ = ["MOST_BYTES", "PLACEHOLDER", "SECONDS", "credential", "passes", "secret"]

MOST_BYTES: Final = 65_536
"""Limit of a file and of a command's output."""

SECONDS: Final = 30.0
"""Time limit of a command."""

PLACEHOLDER: Final = "x"
"""Value of a file or a command when a definition is checked."""

_TRIES = 5  # Kubernetes replaces mounted secrets by a link, perhaps between two steps of the check

# Variables of a command: where programs, accounts and authorities are, and by which identity of the machine to sign in. None
# contains a secret: kpipe's environment may contain those of other pipelines.
_PASSED = re.compile(
    r"""
    PATH|HOME|USER|LOGNAME|LANG|LC_\w+|TZ|TMPDIR|(https?|no|all)_proxy|SSL_CERT_(FILE|DIR)|REQUESTS_CA_BUNDLE
    |AWS_(REGION|DEFAULT_REGION|PROFILE|CONFIG_FILE|SHARED_CREDENTIALS_FILE|CA_BUNDLE|ENDPOINT_URL(_\w+)?)
    |AWS_(ROLE_ARN|ROLE_SESSION_NAME|WEB_IDENTITY_TOKEN_FILE|STS_REGIONAL_ENDPOINTS|EC2_METADATA_\w+)
    |AWS_CONTAINER_(CREDENTIALS_(RELATIVE|FULL)_URI|AUTHORIZATION_TOKEN_FILE)
    |GOOGLE_(APPLICATION_CREDENTIALS|CLOUD_PROJECT)|CLOUDSDK_CONFIG
    |AZURE_(CLIENT_ID|TENANT_ID|AUTHORITY_HOST|FEDERATED_TOKEN_FILE|CONFIG_DIR)|VAULT_(ADDR|CACERT|CAPATH|NAMESPACE)
    """,
    re.VERBOSE | re.IGNORECASE,
)


def passes(variable: str) -> bool:
    """Return whether commands get an environment variable."""
    return bool(_PASSED.fullmatch(variable))


def secret(template: str, environ: Mapping[str, str] | None = None, read: bool = True) -> str:
    """Return the value of a credential, with every reference filled in.

    Args:
        template: of the definition.
        environ: values of variables; None: this process's environment.
        read: whether to read files and run commands; otherwise they are only checked for their form.

    Raises:
        InvalidPipeline: a variable is not set, a file cannot be read, or a program cannot be run.
        CredentialUnavailable: a command failed, or did not end in time (retriable).
    """

    def value(kind: str, text: str) -> str:
        if kind == "file":
            path = _absolute(text, "file")
            return _content(path) if read else PLACEHOLDER
        arguments = _arguments(text)
        return output(arguments) if read else PLACEHOLDER

    return fill(template, os.environ if environ is None else environ, value)


def credential(place: str, template: str, environ: Mapping[str, str] | None = None, read: bool = True) -> str:
    """Return the value of a credential, as `secret`; errors begin with its place in the definition.

    Args:
        place: such as `into.credentials: password`.
        template: of the definition.
        environ: values of variables; None: this process's environment.
        read: whether to read files and run commands.

    Raises:
        InvalidPipeline, CredentialUnavailable: as `secret`, or the value is empty.
    """
    try:
        found = secret(template, environ, read)
    except (InvalidPipeline, CredentialUnavailable) as error:
        # From None: tracebacks show chained exceptions, and the template itself may be the secret.
        raise type(error)(f"{place}: {error.what}", error.hint) from None
    if not found.strip():
        raise InvalidPipeline(f"{place} is empty", "set the variable, file or command that it names")
    return found


def output(arguments: list[str]) -> str:
    """Run a program without a shell, and return its output without line ends at the end.

    Its standard error is discarded: it could contain what the program was to hide.

    Raises:
        InvalidPipeline: the program does not exist, cannot be run, or can be changed by every user.
        CredentialUnavailable: it failed, or did not end in time.
    """
    program = arguments[0]
    with opened(program, Path("/"), "command()") as (path, _):
        if not os.access(path, os.X_OK):
            raise InvalidPipeline(f"command(): {program!r} is not executable", f"chmod +x {path}")
    environment = {name: value for name, value in snapshot().items() if passes(name)}
    try:
        # As named, not as resolved: some programs act by the name that they are called by.
        process = subprocess.Popen(
            arguments,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env=environment, cwd="/", start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        raise InvalidPipeline(f"command(): {program!r} cannot be run: {error.strerror}", "check the file") from None
    try:
        found = _received(process, program)
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)  # also what it started
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
    return _text(found, f"command(): the output of {program!r}")


def _received(process: subprocess.Popen[bytes], program: str) -> bytes:
    assert process.stdout is not None
    hint = f"run it as this user, with the variables that a command gets: {program}"
    deadline, found = time.monotonic() + SECONDS, bytearray()
    while True:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([process.stdout], [], [], left)[0]:
            raise CredentialUnavailable(f"command(): {program!r} did not end within {SECONDS:g} s", hint)
        piece = os.read(process.stdout.fileno(), MOST_BYTES)
        if not piece:
            break
        found += piece
        if len(found) > MOST_BYTES:
            raise InvalidPipeline(f"command(): {program!r}: expected at most {MOST_BYTES:,} bytes of output, found more", hint)
    try:
        status = process.wait(max(0.1, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        raise CredentialUnavailable(f"command(): {program!r} did not end within {SECONDS:g} s", hint) from None
    if status:
        raise CredentialUnavailable(f"command(): {program!r}: expected exit status 0, found {status}", hint)
    return bytes(found)


def _content(path: str) -> str:
    tries = _TRIES
    while True:
        try:
            with opened(path, Path("/"), "file()") as (_, file):
                found = file.read(MOST_BYTES + 1)
            break
        except InvalidPipeline as error:
            tries -= 1
            if not tries or "changed during" not in error.what:
                raise
    if len(found) > MOST_BYTES:
        raise InvalidPipeline(f"file(): {path!r}: expected at most {MOST_BYTES:,} bytes, found more", "check the path")
    return _text(found, f"file(): {path!r}")


def _text(found: bytes, what: str) -> str:
    try:
        text = found.decode("utf-8").rstrip("\r\n")
    except UnicodeDecodeError:
        raise InvalidPipeline(f"{what}: expected UTF-8, found other bytes", "convert it") from None
    if "\0" in text:
        raise InvalidPipeline(f"{what} contains a NUL character", "remove it")
    return text


def _arguments(text: str) -> list[str]:
    try:
        arguments = shlex.split(text)
    except ValueError:
        raise InvalidPipeline("command(): a quotation mark is not closed", "quote arguments as in a shell") from None
    if not arguments:
        raise InvalidPipeline("command() is empty", "write {{ command('/path/of/program arguments') }}")
    if "\0" in text:
        raise InvalidPipeline("command() contains a NUL character", "remove it")
    _absolute(arguments[0], "command")
    return arguments


def _absolute(path: str, kind: str) -> str:
    if not os.path.isabs(path) or "\0" in path:
        raise InvalidPipeline(f"{kind}(): expected an absolute path, found {path!r}", "begin it with /")
    return path
