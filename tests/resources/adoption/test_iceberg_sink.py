"""Iceberg's sink: recorded events of its control topic, and the offsets in snapshots."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kpipe.errors import InvalidPipeline
from resources.adoption.control_events import DATA_WRITTEN, InvalidEvent, event
from resources.adoption.iceberg_sink import control_offsets
from resources.audit.sources import open_table
from resources.audit.table_address import TableAddress

RECORDED = Path(__file__).parent / "recorded" / "control_events.json"
EVENTS = {item["offset"]: base64.b64decode(item["event"]) for item in json.loads(RECORDED.read_text())}
START, COMPLETE, TO_TABLE, COMMITTED = 0, 2, 3, 4


def test_recorded_events() -> None:
    """A commit: the coordinator starts it, a task reports its file and that it is ready, the coordinator commits."""
    kinds = {offset: event(data) for offset, data in EVENTS.items()}
    assert {group for _, group in kinds.values()} == {"connect-ice"}
    assert {offset: kind for offset, (kind, _) in kinds.items()} == {
        0: START, 2: DATA_WRITTEN, 3: COMPLETE, 5: TO_TABLE, 7: COMMITTED,
    }  # fmt: skip


@pytest.mark.parametrize("data", [b"", b"\xc2", b"\xc2\x01", b"\xc2\x01\xff\xff", b'{"type": 1}', EVENTS[2][:50], EVENTS[2][:46]])
def test_other_records_are_not_events(data: bytes) -> None:
    with pytest.raises(InvalidEvent):
        event(data)


def table(folder: Path, *summaries: dict[str, str]) -> TableAddress:
    pytest.importorskip("pyiceberg")
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog("c", uri=f"sqlite:///{folder}/c.db", warehouse=f"file://{folder}")
    catalog.create_namespace("default")
    block = pa.table({"id": [1]})
    made = catalog.create_table("default.t", block.schema)
    for properties in summaries:
        made.append(block, snapshot_properties=properties)
    return TableAddress("iceberg", made.metadata_location.removeprefix("file://"))


def found(address: TableAddress, group: str) -> Any:
    with open_table(address) as opened:
        return control_offsets(opened, group)


def test_offsets_of_the_newest_snapshot_of_the_group(tmp_path: Path) -> None:
    name = "kafka.connect.offsets.control-ice.connect-ice"
    address = table(tmp_path, {name: '{"0":4}'}, {name: '{"0":9,"1":2}'}, {"other": "x"})
    assert found(address, "connect-ice") == ("control-ice", {0: 9, 1: 2})
    with pytest.raises(InvalidPipeline, match=r"no snapshot has offsets of group connect-other .* control-ice.connect-ice"):
        found(address, "connect-other")


def test_snapshots_of_no_sink(tmp_path: Path) -> None:
    with pytest.raises(InvalidPipeline, match="the connector has committed none"):
        found(table(tmp_path, {}), "connect-ice")


def test_a_damaged_property(tmp_path: Path) -> None:
    with pytest.raises(InvalidPipeline, match="expected offsets by partition"):
        found(table(tmp_path, {"kafka.connect.offsets.control.connect-ice": "[4]"}), "connect-ice")
