"""With which options `kpipe serve` starts its HTTP server, and what it refuses."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from kpipe.errors import InvalidPipeline
from kpipe_assets.dagster_server.access_rules import Rules
from kpipe_assets.service.http_settings import HttpSettings, check_certificate, read_token
from resources.extras import LIBRARIES, install_hint
from tests.certificates import certificates
from tests.commandline import Kpipe
from tests.kpipe_assets.service.serving import until

_WITHOUT = """
import sys
for name in sys.argv[1].split(","):
    sys.modules[name] = None
from kpipe_assets.cli import main
main(sys.argv[2:])
"""


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Certificates and a token."""
    certificates(tmp_path)
    (tmp_path / "token").write_text("0123456789abcdef\n")
    return tmp_path


def test_settings_survive_the_pipe() -> None:
    settings = HttpSettings(Rules("::1", 8083, ("a", "b"), 'to"k\\en'), "/cert.pem", None, "b:9092")
    assert settings.line().count("\n") == 1 and HttpSettings.read(settings.line()) == settings


def test_other_machines_need_token_and_tls(files: Path) -> None:
    kpipe = Kpipe(files / "home", "127.0.0.1:1")
    token, certificate, key = (
        ("--token-file", files / "token"),
        ("--tls-certificate", files / "broker.pem"),
        ("--tls-key", files / "broker.key"),
    )
    refused: list[tuple[tuple[object, ...], str]] = [
        ((), "expected a token, found none -> set --token-file FILE"),
        ((*certificate, *key), "expected a token, found none -> set --token-file FILE"),
        (token, "expected TLS, found none -> set --tls-certificate FILE and --tls-key FILE"),
        ((*token, *certificate), "--tls-certificate"),
        ((*token, *certificate, "--tls-key", files / "other.key"), "check that --tls-key belongs to --tls-certificate"),
        ((*token, *key), "--tls-key: no certificate"),
        (("--token-file", files / "missing", *certificate, *key), "cannot be read: No such file"),
    ]
    for options, reason in refused:
        for host in ("0.0.0.0", "::", "127.0.0.1") if "found none" not in reason else ("0.0.0.0", "::", "10.0.0.1"):
            done = kpipe("serve", "--host", host, *map(str, options), status=2)
            assert reason in done.stderr and len(done.stderr.splitlines()) == 1, done


def test_a_file_that_is_missing_is_named(files: Path) -> None:
    kpipe, there, missing = Kpipe(files / "home", "127.0.0.1:1"), str(files / "keys.pem"), str(files / "missing")
    done = kpipe("serve", "--token-file", missing, "--brokers", "127.0.0.1:9092", status=2)
    assert f"--token-file {missing}: cannot be read" in done.stderr and "openssl rand" in done.stderr
    done = kpipe("serve", "--host", "0.0.0.0", "--tls-certificate", there, "--tls-key", missing, status=2)
    assert f"--tls-key {missing}: cannot be read" in done.stderr


@pytest.mark.parametrize("text", ["", "short", "0123456789 abcdef", "0123456789\nabcdef", "0123456789abcdéf", "x" * 5000])
def test_a_token_is_one_word_that_cannot_be_guessed(text: str, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(text)
    with pytest.raises(InvalidPipeline, match="token") as caught:
        read_token(tmp_path / "token")
    assert not text or text not in str(caught.value)
    (tmp_path / "token").write_text("  0123456789abcdef\r\n")
    assert read_token(tmp_path / "token") == "0123456789abcdef"
    (tmp_path / "token").chmod(0o666)
    with pytest.raises(InvalidPipeline, match="every user can write to it -> chmod o-w"):
        read_token(tmp_path / "token")


def test_a_key_with_a_password_is_refused_and_nobody_is_asked(files: Path) -> None:
    subprocess.run(
        ["openssl", "pkcs8", "-topk8", "-in", "broker.key", "-out", "locked.key", "-passout", "pass:secret"],
        cwd=files,
        check=True,
    )
    with pytest.raises(InvalidPipeline, match="key without password"):
        check_certificate(files / "broker.pem", files / "locked.key")
    check_certificate(files / "broker.pem", files / "broker.key")
    check_certificate(files / "keys.pem", None)


@pytest.mark.parametrize("module", LIBRARIES["serve"])
def test_without_the_extra_pipelines_run_and_http_is_named(module: str, tmp_path: Path) -> None:
    def start(*options: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", _WITHOUT, module, "serve", "--json", *options]
        environment = {**os.environ, "KPIPE_HOME": str(tmp_path / "home")}
        return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True)

    refused = start("--host", "0.0.0.0")
    assert install_hint("serve") in refused.communicate(timeout=300)[1] and refused.returncode == 2
    process = start()
    try:
        assert process.stderr is not None
        first, second = process.stderr.readline(), process.stderr.readline()
        assert "no HTTP server" in first and install_hint("serve") in first
        assert "serving the pipelines" in second and "REST" not in second
        assert json.loads((tmp_path / "home" / "state" / "serve.lock").read_text())["address"] == ""
        until(lambda: bool(psutil.Process(process.pid).children()))
        process.send_signal(signal.SIGTERM)
        assert process.wait(300) in (0, 130)
    finally:
        process.kill()
        process.communicate()
