"""A real object store for tests: Versity's S3 gateway (Apache 2.0) on a folder of its own."""

from __future__ import annotations

import sys
from pathlib import Path

from resources.secrets import Secret
from tests.servers.object_store import StoreServer

KEY, SECRET = "kpipe-test", "canary-77f0c1d2"
CREDENTIALS = {"access.key.id": Secret(KEY), "secret.access.key": Secret(SECRET)}
BUCKET = "lake"


def program() -> Path | None:
    """The gateway's program, where `make s3` puts it."""
    found = Path(sys.prefix) / "bin" / "versitygw"
    return found if found.is_file() else None


class S3Server(StoreServer):
    """Versity's gateway. It keeps objects as files."""

    kind, base, needs, target = "s3", f"s3://{BUCKET}", "boto3", "s3"
    put, conditional, copy = f"PUT /{BUCKET}/".encode(), b"If-None-Match", b"x-amz-copy-source"

    @staticmethod
    def program() -> list[str] | None:
        """See `StoreServer`."""
        found = program()
        return [str(found)] if found is not None else None

    def options(self) -> list[str]:
        """See `StoreServer`."""
        (self.folder / "data" / BUCKET).mkdir(parents=True)
        return ["--port", f"127.0.0.1:{self.port}", "--quiet", "--health", "/up", "posix", str(self.folder / "data")]

    def began(self) -> None:
        """See `StoreServer`: the bucket is a folder."""

    def variables(self) -> dict[str, str]:
        """See `StoreServer`."""
        return {"ROOT_ACCESS_KEY": KEY, "ROOT_SECRET_KEY": SECRET}

    def secrets(self) -> dict[str, Secret]:
        """See `StoreServer`."""
        return CREDENTIALS

    @property
    def environment(self) -> dict[str, str]:
        """What a process finds in its environment to get at it."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_EC2_METADATA_DISABLED": "true",
        }
