"""Tables by topic in table formats: one commit for each table, each with its rows, dead letters and part of the ledger."""

from __future__ import annotations

from resources.destinations.lakehouse.topics.destination import KeyedTopicLakes, TopicLakes
from resources.destinations.lakehouse.topics.registry import TopicRegistry

__all__ = ["KeyedTopicLakes", "TopicLakes", "TopicRegistry"]
