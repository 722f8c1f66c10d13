"""An emulator of Azure Blob Storage for tests: Microsoft's Azurite (MIT). It checks signatures of keys and tokens."""

from __future__ import annotations

import base64
import shutil
import sys
from pathlib import Path

from resources.secrets import Secret
from tests.servers.object_store import StoreServer

ACCOUNT, CONTAINER = "kpipetest", "lake"
KEY = base64.b64encode(b"canary-77f0c1d2 of an account").decode()


class AzureServer(StoreServer):
    """Azurite, with objects in memory."""

    kind, base, needs, target = "azure", f"az://{CONTAINER}", "azure.storage.blob", "azure"
    put, conditional, copy = f"PUT /{ACCOUNT}/{CONTAINER}/".encode(), b"If-None-Match: *", b"x-ms-copy-source"

    @staticmethod
    def program() -> list[str] | None:
        """See `StoreServer`."""
        found = Path(sys.prefix) / "share" / "azurite" / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
        node = shutil.which("node")
        return [node, str(found)] if node is not None and found.is_file() else None

    def options(self) -> list[str]:
        """See `StoreServer`."""
        where = ["--blobHost", "127.0.0.1", "--blobPort", str(self.port)]
        return [*where, "--silent", "--disableTelemetry", "--skipApiVersionCheck", "--inMemoryPersistence"]

    def variables(self) -> dict[str, str]:
        """See `StoreServer`."""
        return {"AZURITE_ACCOUNTS": f"{ACCOUNT}:{KEY}"}

    def began(self) -> None:
        """See `StoreServer`."""
        from azure.storage.blob import BlobServiceClient

        credential = {"account_name": ACCOUNT, "account_key": KEY}
        BlobServiceClient(self.url(f"127.0.0.1:{self.port}"), credential=credential).create_container(CONTAINER)

    def secrets(self) -> dict[str, Secret]:
        """See `StoreServer`."""
        return {"account.name": Secret(ACCOUNT), "account.key": Secret(KEY)}

    def url(self, address: str) -> str:
        """See `StoreServer`."""
        return f"http://{address}/{ACCOUNT}"

    @property
    def environment(self) -> dict[str, str]:
        """What a process finds in its environment to get at it."""
        return {
            "AZURE_STORAGE_ENDPOINT": self.endpoint,
            "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": KEY,
        }
