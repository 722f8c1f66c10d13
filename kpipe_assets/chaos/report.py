"""Report of `kpipe chaos`: verdict, faults, copies and findings, as JSON and as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from kpipe import __version__
from kpipe.terminal import plain
from kpipe_assets.chaos.campaign import Campaign, Copy
from kpipe_assets.chaos.definition import table_name
from kpipe_assets.wording import count

__all__ = ["CAUSES", "INCONCLUSIVE", "INTERRUPTED", "NOT_PROVEN", "PROVEN", "as_text", "report"]

PROVEN, NOT_PROVEN, INCONCLUSIVE, INTERRUPTED = "proven", "not proven", "inconclusive", "interrupted"

#: By kind of finding: its meaning, and what to do next.
CAUSES = {
    "not_proven": (
        "A copy does not contain each record exactly once. With errors.batch: skip, kpipe leaves out batches that fail."
        " Otherwise report it with the folder of this report."
    ),
    "not_deterministic": (
        "The pipeline is not deterministic: it gives other rows for the same records. A run that fails reads its batch again,"
        " and commits the rows of the last attempt. Usual causes: a program that uses the time, random numbers, KPIPE_BATCH, or"
        " what it remembers of earlier runs; now(), random() or uuid() in expressions; a lookup that changes."
    ),
    "differs": (
        "Only the copy with faults differs. Usual causes: keys in several partitions; a program that depends on KPIPE_ATTEMPT;"
        " errors.batch: skip, which leaves out batches that fail. Otherwise it is a defect of kpipe: report it with the folder of"
        " this report."
    ),
    "failed": "The pipeline does not recover by itself. The message names the cause.",
    "unexpected_error": "kpipe failed with an error that it does not raise on purpose. Report it with the folder of this report.",
    "left_behind": "Processes of a killed run did not end within a minute. Report it with the folder of this report.",
}


def report(campaign: Campaign, verdict: str, seconds: float, reason: str = "") -> dict[str, Any]:
    """Return the object that `report.json` contains.

    Args:
        campaign: the copies and faults.
        verdict: `PROVEN` or another of these.
        seconds: duration of all.
        reason: why it is inconclusive; empty otherwise.
    """
    manifest, window = campaign.workspace.manifest, campaign.window
    return {
        "event": "report",
        "pipeline": manifest.pipeline,
        "verdict": verdict,
        "reason": reason,
        "seed": manifest.seed,
        "version": __version__,
        "seconds": round(seconds, 1),
        "offsets": len(window),
        "window": {str(name): [span.start, span.end] for name, span in window.named().items()},
        "batch_offsets": campaign.batch_offsets,
        "copies": [_copy(campaign, copy) for copy in campaign.copies],
        "faults": [fault.to_dict() for fault in campaign.faults],
        "findings": [asdict(finding) for finding in campaign.findings],
        "folder": str(campaign.workspace.path),
    }


def _copy(campaign: Campaign, copy: Copy) -> dict[str, Any]:
    proof = copy.proof
    tables = {table.table: table_name(copy.name, at) for at, table in enumerate(campaign.workspace.pipeline.tables)}
    return {
        "name": copy.name,
        "disturbed": copy.disturbed,
        "place": copy.place,
        "tables": tables,
        "batches": len(copy.batches),
        "kept": campaign.workspace.manifest.copies.get(copy.name) == "created",
        "verify": None if proof is None else proof.verify,
        "audits": {} if proof is None else proof.audits,
        "not_audited": "" if proof is None else proof.not_audited,
        "problems": [] if proof is None else proof.problems,
    }


def as_text(found: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of the report for a terminal."""
    kinds = Counter(fault["kind"] for fault in found["faults"])
    runs = [run for fault in found["faults"] for run in fault["runs"]]
    hits = sum(fault["hit"] for fault in found["faults"])
    yield f"{count(len(found['faults']), 'fault')} in {count(len(runs), 'run')}, {hits:,} took effect: " + (
        ", ".join(f"{number} {kind}" for kind, number in sorted(kinds.items())) or "none"
    )
    for copy in found["copies"]:
        yield _line(copy)
    for number, finding in enumerate(found["findings"], 1):
        yield f"finding {number}: {plain(finding['text'])}"
        for sample in finding["samples"][:3]:
            yield f"  {_sample(sample)}"
    for kind in dict.fromkeys(finding["kind"] for finding in found["findings"]):
        yield CAUSES[kind]
    if found["reason"]:
        yield f"inconclusive: {plain(found['reason'])}"
    again = f"seed {found['seed']}; report: {found['folder']}/report.json"
    if found["verdict"] == PROVEN:
        loads = sum(1 for copy in found["copies"] if copy["disturbed"])
        yield (
            f"proven: {count(loads, 'copy', 'copies')} of {count(found['offsets'], 'offset')} loaded under faults,"
            f" each equal to the undisturbed copy; {again}"
        )
    else:
        yield f"{found['verdict'].upper() if found['verdict'] == NOT_PROVEN else found['verdict']}; {again}"


def _line(copy: dict[str, Any]) -> str:
    kind = "under faults" if copy["disturbed"] else "undisturbed"
    verify = copy["verify"]
    if verify is None:
        return f"copy {copy['name']} ({kind}): not finished"
    audits = ", ".join(sorted({item["verdict"] for item in copy["audits"].values()}))
    return (
        f"copy {copy['name']} ({kind}): {count(copy['batches'], 'batch', 'batches')}, {count(verify['rows'], 'row')},"
        f" {count(verify['dead_letters'], 'dead letter')}, {verify['filtered']:,} filtered, {count(verify['gaps'], 'gap')};"
        f" verify: {'proven' if verify['ok'] else 'NOT proven'}; audit: {audits or 'none: ' + copy['not_audited']}"
    )


def _sample(sample: dict[str, Any]) -> str:
    topic = f"{sample['topic']}:" if sample["topic"] else ""
    where = "rows without a partition" if sample["partition"] is None else f"partition {topic}{sample['partition']}"
    where += ", rows without an offset" if sample["offset"] is None else f", offset {sample['offset']}"
    rows = " and ".join(f"{number:,}" for number in sample["rows"])
    columns = f"; columns {', '.join(map(plain, sample['columns']))}" if sample["columns"] else ""
    return f"table {sample['table']}: {where}: {rows} rows{columns}"
