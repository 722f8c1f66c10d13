"""Certificates for tests: an authority nobody knows, and what it has signed."""

from __future__ import annotations

import subprocess
from pathlib import Path

__all__ = ["certificates"]


def certificates(folder: Path) -> None:
    """An authority (ca.pem), a certificate of 127.0.0.1 that it signed, with its key (keys.pem), and another authority."""

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    (folder / "names").write_text("subjectAltName=IP:127.0.0.1\n")
    for name in ("ca", "other"):
        openssl(
            "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}",
            "-keyout", f"{name}.key", "-out", f"{name}.pem",
        )  # fmt: skip
    openssl("req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=broker", "-keyout", "broker.key", "-out", "broker.csr")
    openssl(
        "x509", "-req", "-in", "broker.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2",
        "-extfile", "names", "-out", "broker.pem",
    )  # fmt: skip
    (folder / "keys.pem").write_text((folder / "broker.key").read_text() + (folder / "broker.pem").read_text())
