"""Print what a live table and its rebuilt one have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kpipe_assets.rebuild.steps import Comparison
from kpipe_assets.terminal import echo

__all__ = ["as_dict", "show"]

_COUNTS = ("span", "rows", "dead_letters", "filtered", "gaps", "rows_found")


def as_dict(found: Comparison) -> dict[str, Any]:
    """Return the object of `kpipe rebuild --json`."""
    return {
        "event": "comparison",
        "live": found.live.to_dict(),
        "rebuilt": found.rebuilt.to_dict(),
        "waiting": found.waiting,
        "missing": found.missing,
        **({"differences": {table: vars(one) for table, one in found.differences.items()}} if found.differences else {}),
    }


def show(name: str, found: Comparison) -> None:
    """Print the comparison as a table, with the problems of both."""
    from kpipe_assets.console import listing, wide

    table = listing("partition>", "table", "ranges", "span>", "rows>", "dead letters>", "filtered>", "gaps>", "rows found>")
    for number in sorted({*found.live.partitions, *found.rebuilt.partitions}):
        for label, audit in (("live", found.live), ("rebuilt", found.rebuilt)):
            item = audit.partitions.get(number)
            if item is not None:
                table.add_row(number, label, _ranges(item), *(f"{item[count]:,}" for count in _COUNTS))
    wide().print(table)
    for label, audit in (("live", found.live), ("rebuilt", found.rebuilt)):
        for problem in audit.problems:
            echo(f"{label}: NOT proven: {problem}", err=True)
    if found.waiting:
        echo(f"{name}: only the live table has so far: {', '.join(found.waiting)}")
    if found.missing:
        echo(f"{name}: the rebuilt table will not have: {', '.join(found.missing)}; --accept-missing accepts that", err=True)
    for of_table, one in found.differences.items():
        for label, places in (("live", one.live), ("rebuilt", one.rebuilt)):
            words = ", ".join(f"{topic}{':' if topic else ''}{partition}:{offset}" for topic, partition, offset in places)
            echo(f"table {of_table}: only in the {label} one: {words or 'nothing'}")


def _ranges(item: Mapping[str, Any]) -> str:
    return "  ".join(f"[{start:,}, {end:,})" for start, end in item["ranges"])
