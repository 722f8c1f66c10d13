"""An audit must not repeat a defect of the loader: it uses none of the code that plans, reads, commits or verifies."""

from __future__ import annotations

from pathlib import Path

from tests.test_architecture import ROOT, imported

LOADER = (
    *("kpipe.ledger", "kpipe.planning", "kpipe.verification", "kpipe.ingest", "kpipe.batch", "kpipe.tables", "kpipe.offsets"),
    *("resources.spark", "resources.decode", "resources.kafka.range_reader", "resources.kafka.native_consumer"),
    *("resources.kafka.record_block", "resources.destinations.sql", "resources.destinations.ledger_rows"),
    *("resources.destinations.offset_order", "kpipe_assets.runs"),
)


def test_the_audit_imports_no_code_of_the_loader() -> None:
    files: list[Path] = [*(ROOT / "kpipe/audit").glob("*.py"), *(ROOT / "resources/audit").rglob("*.py")]
    assert len(files) > 10
    found = {
        f"{file.name} imports {name}"
        for file in [*files, *(ROOT / "kpipe_assets/commands").glob("audit*.py")]
        for name in imported(file)
        if any(name == part or name.startswith(f"{part}.") for part in LOADER)
    }
    assert found == set()
