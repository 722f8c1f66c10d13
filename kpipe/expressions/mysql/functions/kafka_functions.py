"""Compile GET_KAFKA_PIPELINE_PROP: Kafka's coordinates of a record, and its headers.

Properties are SingleStore's (manual, "GET_KAFKA_PIPELINE_PROP") and kpipe's (`prop_key`). Any other name is a header; the last
header of that name is used. All values are texts.
"""

from __future__ import annotations

from kpipe.expressions.mysql.syntax.tree import Node, refused
from kpipe.expressions.mysql.values import Value, quoted

__all__ = ["coordinates", "prop", "property_of"]

_KNOWN = {
    "prop_offset": ("_kafka_offset", "CAST(_kafka_offset AS VARCHAR)"),
    "prop_partition": ("_kafka_partition", "CAST(_kafka_partition AS VARCHAR)"),
    "prop_timestamp": ("_kafka_timestamp", "CAST(epoch_ms(_kafka_timestamp) AS VARCHAR)"),
    "prop_topicname": ("_kafka_topic", "_kafka_topic"),
    "prop_key": ("_kafka_key", "TRY(decode(_kafka_key))"),
}


def property_of(name: str) -> tuple[str, str]:
    """Return the coordinate that a property needs, and the property's text as DuckDB's SQL."""
    header = f"TRY(decode(list_filter(_kafka_headers, lambda kpipe_h: kpipe_h.name = {quoted(name)})[-1].value))"
    return _KNOWN.get(name.lower(), ("_kafka_headers", header))


def coordinates(node: Node) -> set[str]:
    """Return the coordinates that a call needs."""
    return {property_of(_named(node))[0]}


def prop(node: Node) -> Value:
    """Return the compiled call.

    Raises:
        Untranslated: the name is not a literal.
    """
    return Value(property_of(_named(node))[1], "text")


def _named(node: Node) -> str:
    if len(node.args) != 1 or node.args[0].kind != "text":
        raise refused("GET_KAFKA_PIPELINE_PROP takes one name in quotes", "", node.start, node.end)
    return str(node.args[0].value)
