"""A topic in memory, and tables of its contents, for audits by key."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kpipe.audit.windows import LogBounds, Window, windows
from kpipe.definition.pipeline import Source
from resources.audit import run as by_offset
from resources.audit.by_key import run as by_key
from resources.audit.by_key import spill
from resources.audit.by_key.run import KeyRequest
from resources.audit.table_address import TableAddress
from resources.audit.topic_admin import Identity
from resources.audit.topic_log import TopicLog

SOURCE = Source(brokers="b", topic="t")


class Record:
    """A record; None: an offset without one."""

    def __init__(self, key: Any, value: Any) -> None:
        self._key, self._value = (
            item if isinstance(item, bytes) or item is None else json.dumps(item).encode() for item in (key, value)
        )

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes | None:
        return self._value


Log = Sequence[Sequence["Record | None"]]


def serve(
    patch: pytest.MonkeyPatch,
    log: Log,
    policy: str = "delete",
    start: int = 0,
    group: Mapping[int, int] | None = None,
    removed: int = 0,
    written: int = 0,
) -> None:
    """Let audits read this topic, in small windows, parts and buckets.

    Meanwhile, retention removes offsets below `removed`, and the last offsets of partition 0, as many as `written`, are
    written after the table was read.
    """

    class Admin:
        def __init__(self, _: Source) -> None:
            self._requests = 0

        def state(self) -> tuple[Identity, dict[int, LogBounds]]:
            self._requests += 1  # before and after the table is read, and after the topic is
            ends = [len(part) - (written if self._requests <= 2 and not at else 0) for at, part in enumerate(log)]
            return Identity("c", "t", "t"), {at: LogBounds(start, end, end) for at, end in enumerate(ends)}

        def cleanup_policy(self) -> str:
            return policy

        def group_offsets(self, _: str) -> dict[int, int]:
            return dict(group or {})

    class Reader(TopicLog):
        def records(self, window: Window, level: str, handle: Any) -> int:
            items = [(at, log[window.partition][at]) for at in range(max(window.start, removed), window.end)]
            found = [(at, item) for at, item in items if item is not None]
            for first in range(0, len(found), 2):
                some = found[first : first + 2]
                handle([item for _, item in some], np.array([at for at, _ in some], np.int64))
            return max(0, min(removed, window.end) - window.start)

    patch.setattr(by_key, "TopicAdmin", Admin)
    patch.setattr(by_key, "TopicLog", Reader)
    patch.setattr(by_key, "windows", lambda ranges: windows(ranges, 3))
    patch.setattr(by_key, "_PART", 5)
    patch.setattr(by_key, "_BUCKET", 4)
    patch.setattr(spill, "_FLUSH", 1)
    patch.setattr(spill, "_CHUNKS", 20)


def parquet(folder: Path, **columns: Any) -> TableAddress:
    pq.write_table(pa.table(columns), folder / "table.parquet")
    return TableAddress("parquet", str(folder / "table.parquet"))


def request(table: TableAddress, end: Any = "end", *, keys: tuple[str, ...] = ("id",), **more: Any) -> KeyRequest:
    base = {name: more.pop(name) for name in ("declared", "skips_tombstones", "compacted", "group") if name in more}
    return KeyRequest(by_offset.Request(SOURCE, table, end=end, **base), keys, **more)


def outcomes(summary: Any) -> dict[str, int]:
    return {outcome.name.lower(): count for outcome, count in summary.totals.items() if count}


def proofs(report: Path) -> list[Any]:
    """Run the SQL file of a report as an auditor does; the results of its two checks."""
    statements = (report / "checks.sql").read_text()
    for side in ("records", "rows"):
        statements = statements.replace(f"'{side}/*.parquet'", f"'{report / side}/*.parquet'")
    with duckdb.connect(str(report / "report.duckdb"), read_only=True) as connection:
        return [connection.execute(item).fetchall() for item in duckdb.extract_statements(statements)][:2]
