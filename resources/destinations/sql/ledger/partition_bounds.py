"""Join ranges or rows with an offset for each partition of several topics."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["bounds", "topics_of"]

#: Topic, partition and an offset.
Bound = tuple[str, int, int]


def topics_of(items: Sequence[Bound]) -> list[str]:
    """Return the topics, in the order of their parameters in `bounds`."""
    return sorted({topic for topic, *_ in items})


def bounds(items: Sequence[Bound], topic: str | None, first: int = 1) -> tuple[str, str]:
    """Return a relation with the columns `source`, `number` and `bound`, and the `source` of a topic, as SQL.

    Args:
        items: the offsets.
        topic: the topic of what is joined, as SQL; None: it is the only one.
        first: number of the first parameter with one of `topics_of`.
    """
    places = {name: at for at, name in enumerate(topics_of(items))}
    lines = [f"SELECT {places[name]} AS source, {number} AS number, {offset} AS bound" for name, number, offset in sorted(items)]
    cases = " ".join(f"WHEN ${first + at} THEN {at}" for at in places.values())
    return " UNION ALL ".join(lines), f"CASE {topic} {cases} ELSE -1 END" if topic is not None else "0"
