"""Settings to connect to an object store: plain values that can be sent to another process. Loads no client."""

from __future__ import annotations

from dataclasses import dataclass, field

from resources.secrets import Secret

__all__ = ["ADDRESSES", "CREDENTIALS", "PACKAGES", "StoreAccess"]

#: Names that `into.credentials` may contain, by kind of store: those of delta-rs and its object_store, with dots.
CREDENTIALS = {
    "s3": ("access.key.id", "secret.access.key", "session.token"),
    "gs": ("service.account.key",),
    "azure": ("account.name", "account.key", "sas.token"),
}
#: Variables from which a client takes the store's address, by kind of store.
ADDRESSES = {
    "s3": (
        "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "AWS_REGION", "AWS_DEFAULT_REGION",
        "AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_CONFIG_FILE",
    ),
    "gs": ("STORAGE_EMULATOR_HOST",),
    "azure": ("AZURE_STORAGE_ENDPOINT", "AZURE_STORAGE_ACCOUNT_NAME"),
}  # fmt: skip
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
