"""Settings to connect to an object store: plain values that can be sent to another process. Loads no client."""

from __future__ import annotations

from dataclasses import dataclass, field

from resources.secrets import Secret

__all__ = ["CREDENTIALS", "PACKAGES", "StoreAccess"]

#: Names that `into.credentials` may contain, by kind of store: those of delta-rs and its object_store, with dots.
CREDENTIALS = {
    "s3": ("access.key.id", "secret.access.key", "session.token"),
    "gs": ("service.account.key",),
    "azure": ("account.name", "account.key", "sas.token"),
}
#: The client's package and the extra that installs it, by kind of store.
PACKAGES = {"s3": ("boto3", "s3"), "gs": ("google-cloud-storage", "gcs"), "azure": ("azure-storage-blob", "azure")}


@dataclass(frozen=True)
class StoreAccess:
    """Settings of an object store's client.

    Attributes:
        endpoint: URL of the store; None: the provider's endpoint.
        region: region of the store, where the kind has regions.
        secrets: credentials by the names in `CREDENTIALS`; not shown by repr.
        kind: of the store.
    """

    endpoint: str | None
    region: str
    secrets: tuple[tuple[str, Secret], ...] = field(repr=False)
    kind: str = "s3"
