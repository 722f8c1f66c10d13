"""Settings of the service's HTTP server, and how they reach the service process: through a pipe, since one is a secret."""

from __future__ import annotations

import json
import os
import ssl
from dataclasses import asdict, dataclass
from pathlib import Path

from kpipe.errors import InvalidPipeline
from kpipe_assets.dagster_server.access_rules import Rules

__all__ = ["HttpSettings", "check_certificate", "read_token"]

_LEAST_TOKEN = 16
_MOST_TOKEN = 4096


@dataclass(frozen=True)
class HttpSettings:
    """Settings of the HTTP server.

    Attributes:
        rules: who may send requests.
        certificate: path of a PEM file with the certificate and its chain; None: no TLS.
        key: path of the PEM file with its key; None: the certificate's file contains it.
        brokers: brokers of configs that name none.
        token_file: path of the file with the token, which may be replaced; None: no token.
    """

    rules: Rules
    certificate: str | None = None
    key: str | None = None
    brokers: str | None = None
    token_file: str | None = None

    def line(self) -> str:
        """Return the settings as one line of text."""
        return json.dumps(asdict(self)) + "\n"

    @classmethod
    def read(cls, line: str) -> HttpSettings:
        """Read what `line` returned."""
        values = json.loads(line)
        rules = values.pop("rules")
        return cls(Rules(rules["host"], rules["port"], tuple(rules["names"]), rules["token"]), **values)


def read_token(file: Path) -> str:
    """Read the token from a file; spaces and line ends around it do not belong to it.

    Raises:
        InvalidPipeline: the file cannot be read, every user can write to it, or its content can be guessed or not be sent.
    """
    hint = f"write one: (umask 077; openssl rand -hex 32 > {file})"
    try:
        with file.open("rb") as opened:
            if os.fstat(opened.fileno()).st_mode & 0o002:
                raise InvalidPipeline(f"--token-file {file}: every user can write to it", f"chmod o-w {file}")
            token = opened.read(_MOST_TOKEN + 1).decode("ascii").strip()
    except UnicodeDecodeError:
        raise InvalidPipeline(f"--token-file {file}: not ASCII text: expected one token", hint) from None
    except OSError as error:
        raise InvalidPipeline(f"--token-file {file}: cannot be read: {error.strerror}", hint) from error
    if not _LEAST_TOKEN <= len(token) <= _MOST_TOKEN or not all("!" <= sign <= "~" for sign in token):
        raise InvalidPipeline(
            f"--token-file {file}: invalid token: expected {_LEAST_TOKEN} to {_MOST_TOKEN} visible characters without spaces",
            hint,
        )
    return token


def check_certificate(certificate: Path | None, key: Path | None) -> None:
    """Check that the files of a certificate and its key fit, and that the key needs no password.

    Raises:
        InvalidPipeline: they do not, or the key is given without the certificate.
    """
    if certificate is None:
        if key is not None:
            raise InvalidPipeline("--tls-key: no certificate: expected --tls-certificate, too", "set --tls-certificate FILE")
        return
    for option, file in (("--tls-certificate", certificate), ("--tls-key", key)):
        try:
            if file is not None:
                file.open("rb").close()
        except OSError as error:
            raise InvalidPipeline(f"{option} {file}: cannot be read: {error.strerror}", f"check the path of {option}") from error
    try:
        # Without the function, OpenSSL would read the password from the terminal.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password=lambda: "")
    except (ssl.SSLError, ValueError) as error:
        raise InvalidPipeline(
            f"--tls-certificate {certificate}: cannot be used: expected PEM files of a certificate and its key without password",
            "check that --tls-key belongs to --tls-certificate",
        ) from error
