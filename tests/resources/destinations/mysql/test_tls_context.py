"""A server's TLS settings are read once, and again when a file of them has changed."""

from __future__ import annotations

import shutil
import ssl
from pathlib import Path

import pytest

from resources.destinations.mysql.connection import Server
from tests.certificates import certificates


def context(server: Server) -> ssl.SSLContext:
    found = server._tls({})["ssl"]
    assert isinstance(found, ssl.SSLContext)
    return found


def authorities(server: Server) -> list[str]:
    return [dict(pair for part in item["subject"] for pair in part)["commonName"] for item in context(server).get_ca_certs()]


def test_an_authority_is_read_once_and_again_when_it_was_replaced(tmp_path: Path) -> None:
    certificates(tmp_path)
    authority = tmp_path / "authority.pem"
    shutil.copy(tmp_path / "ca.pem", authority)
    server = Server(f"mysql://u@db.example.com/d?ssl-ca={authority}", {}, "t")
    assert context(server) is context(server)
    assert authorities(server) == ["ca"]
    authority.unlink()
    shutil.copy(tmp_path / "other.pem", authority)
    assert authorities(server) == ["other"], "a run that goes on for months must notice"
    authority.unlink()
    with pytest.raises(FileNotFoundError):
        context(server)


def test_each_server_has_its_own_rules() -> None:
    strict = context(Server("mysql://u@db.example.com/d", {}, "t"))
    loose = context(Server("mysql://u@db.example.com/d?ssl-mode=REQUIRED", {}, "t"))
    assert strict is not loose
    assert (strict.check_hostname, strict.verify_mode) == (True, ssl.CERT_REQUIRED)
    assert (loose.check_hostname, loose.verify_mode) == (False, ssl.CERT_NONE)
