"""Settings to connect to an object store: plain values that can be sent to another process. Loads no S3 client."""

from __future__ import annotations

from dataclasses import dataclass, field

from resources.secrets import Secret

__all__ = ["StoreAccess"]


@dataclass(frozen=True)
class StoreAccess:
    """Settings of an object store's client.

    Attributes:
        endpoint: URL of the store; None: AWS's endpoint.
        region: region of the store.
        secrets: credentials by the names in `resources.object_store.s3.SECRETS`; not shown by repr.
    """

    endpoint: str | None
    region: str
    secrets: tuple[tuple[str, Secret], ...] = field(repr=False)
