"""An emulator of Google Cloud Storage for tests: fake-gcs-server (BSD), by gcs_emulator. It checks no credentials."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from urllib.request import Request, urlopen

from resources.secrets import Secret
from tests.servers.object_store import StoreServer

BUCKET = "lake"


class GcsServer(StoreServer):
    """fake-gcs-server, with objects in memory."""

    kind, base, needs, target = "gs", f"gs://{BUCKET}", "google.cloud.storage", "gcs"
    put, conditional, copy = f"POST /upload/storage/v1/b/{BUCKET}/o".encode(), b"ifGenerationMatch=0", b"/rewriteTo/"

    @staticmethod
    def program() -> list[str] | None:
        """See `StoreServer`."""
        found = Path(sys.prefix) / "bin" / "kpipe-gcs-emulator"
        return [str(found)] if found.is_file() else None

    def options(self) -> list[str]:
        """See `StoreServer`."""
        return [f"127.0.0.1:{self.port}"]

    def variables(self) -> dict[str, str]:
        """See `StoreServer`."""
        return {}

    def began(self) -> None:
        """See `StoreServer`."""
        body = json.dumps({"name": BUCKET}).encode()
        asked = Request(f"http://127.0.0.1:{self.port}/storage/v1/b", body, {"Content-Type": "application/json"})
        with urlopen(asked, timeout=300) as answer:
            assert answer.status == 200

    def secrets(self) -> dict[str, Secret]:
        """See `StoreServer`."""
        return {}

    @property
    def environment(self) -> dict[str, str]:
        """What a process finds in its environment to get at it."""
        return {"STORAGE_EMULATOR_HOST": self.endpoint}
