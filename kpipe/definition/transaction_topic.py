"""Names of Debezium's topics: that of transactions, and those of tables."""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["prefix_of", "topic_of", "transaction_topic"]

_SUFFIX = ".transaction"


def prefix_of(topics: Iterable[str]) -> str | None:
    """Return Debezium's `topic.prefix` if one of the topics is the transaction topic of the others; None without one."""
    names = set(topics)
    prefixes = [name.removesuffix(_SUFFIX) for name in sorted(names) if name.endswith(_SUFFIX)]
    return next((x for x in prefixes if all(name.startswith(f"{x}.") for name in names) and len(names) > 1), None)


def transaction_topic(topics: Iterable[str]) -> str | None:
    """Return the transaction topic among topics; None without one."""
    prefix = prefix_of(topics)
    return None if prefix is None else prefix + _SUFFIX


def topic_of(prefix: str, collection: str) -> str:
    """Return the topic of a table by Debezium's default naming: other characters than those of a topic are `_`."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", f"{prefix}.{collection}")
