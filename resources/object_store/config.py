"""How to reach an object store, handed from one process to another. Plain values; loads no client."""

from __future__ import annotations

from dataclasses import dataclass, field

from resources.secrets import Secret

__all__ = ["StoreAccess"]


@dataclass(frozen=True)
class StoreAccess:
    """What a client of a store is made of.

    Attributes:
        endpoint: address; None: AWS's own.
        region: of the store.
        secrets: by the names of resources/object_store/s3.py; not shown by repr.
    """

    endpoint: str | None
    region: str
    secrets: tuple[tuple[str, Secret], ...] = field(repr=False)
