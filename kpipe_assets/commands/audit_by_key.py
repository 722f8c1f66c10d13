"""`kpipe audit TOPIC --key COLUMN`: compare a table with its topic by key, and print the result."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kpipe.audit.key_outcomes import MEANINGS, KeyOutcome, KeySummary
from kpipe.terminal import plain
from kpipe_assets.terminal import echo, emit, log
from kpipe_assets.wording import count

if TYPE_CHECKING:
    from resources.audit.by_key.run import KeyRequest
    from resources.audit.run import Request

__all__ = ["audit", "request"]

#: Options that need coordinates in the table, and their defaults.
_BY_OFFSET: Mapping[str, Any] = {
    "partition_column": None, "offset_column": None, "topic_column": None, "partitions": None, "begin": "first-row",
    "filtered": None,
}  # fmt: skip
_NAMES = {"begin": "from"}


def request(base: Request, options: Mapping[str, Any]) -> KeyRequest:
    """Return the audit that the options describe.

    Raises:
        click.UsageError: an option needs columns of partition and offset.
    """
    from resources.audit.by_key.run import KeyRequest

    wrong = [name for name, default in _BY_OFFSET.items() if options[name] != default]
    if wrong:
        raise click.UsageError(f"--{_NAMES.get(wrong[0], wrong[0]).replace('_', '-')} is not available with --key")
    if options["end"] == "last-row":
        raise click.UsageError("--to last-row is not available with --key")
    return KeyRequest(
        base,
        options["keys"],
        options["columns"],
        options["rows"] == "all",
        options["record_key"],
        options["time_unit"],
        options["older_rows"],
    )


def audit(chosen: KeyRequest, folder: Path, as_json: bool) -> int:
    """Audit, print the result, and return the exit status."""
    from resources.audit.by_key.run import run

    echo(f"report: {folder}", err=True)
    summary, findings, facts = run(chosen, folder, lambda text: log(text))
    if as_json:
        emit(_as_dict(summary, findings, facts, folder))
    else:
        _show(summary, findings, facts)
    return 0 if summary.ok else 1


def _as_dict(summary: KeySummary, findings: list[dict[str, Any]], facts: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    read = summary.read
    return {
        "verdict": summary.verdict,
        "outcomes": {outcome.name.lower(): summary.totals[outcome] for outcome in KeyOutcome if summary.totals[outcome]},
        "records": {
            name: getattr(read, name) for name in ("records", "later", "tombstones", "unreadable", "declared", "foreign", "lost")
        },
        "rows": {"total": read.rows, "without_key": read.keyless},
        "problems": summary.problems(),
        "findings": [{**item, "outcome": item["outcome"].name.lower()} for item in findings],
        "unreadable": [{"partition": p, "offset": o, "reason": reason} for p, o, reason in facts["unreadable"]],
        "table": facts["table"],
        "snapshot": facts["snapshot"],
        "read": facts["read"],
        "key": [name for name, *_ in facts["keys"]],
        "compared": list(summary.compared),
        "not_compared": _left_out(summary, facts),
        "fields_without_column": sorted(read.unmapped),
        "ranges": facts["ranges"],
        "report": str(folder),
    }


def _left_out(summary: KeySummary, facts: Mapping[str, Any]) -> list[str]:
    return [*(name for name, *_ in facts["contents"] if name not in summary.compared), *facts["excluded"]]


def _show(summary: KeySummary, findings: list[dict[str, Any]], facts: Mapping[str, Any]) -> None:
    read = summary.read
    keys = ", ".join(name for name, *_ in facts["keys"])
    echo(f"table {facts['table']} ({facts['snapshot']}), read at {facts['read']}, key {keys}")
    if not facts["cleanup policy"]:
        echo("cleanup.policy: cannot be read, so the topic counts as compacted (grant DescribeConfigs on the topic)")
    echo(f"compared columns: {', '.join(summary.compared) or 'none'}")
    for words, names in (
        ("not compared", _left_out(summary, facts)),
        ("fields of records without a column", sorted(read.unmapped)),
    ):
        if names:
            echo(f"{words}: {', '.join(plain(name) for name in names)}")
    echo(f"{count(read.records, 'record')} and {count(read.rows, 'row')}; {count(read.later, 'later record')}")
    for outcome in KeyOutcome:
        if summary.totals[outcome] and outcome in summary.explained:
            echo(f"{summary.totals[outcome]:,}: {MEANINGS[outcome]}")
    if read.declared:
        echo(f"not audited: {count(read.declared, 'record')} declared with --except")
    if summary.ok:
        echo("explained: no record is missing, no row is surplus, and all compared columns are equal")
        return
    for item in findings:
        where = "" if item["offset"] is None else f", record {item['partition']}:{item['offset']}"
        which = f" in {', '.join(item['columns'])}" if item["columns"] else ""
        amount = f" ({item['count']:,})" if item["count"] > 1 else ""
        echo(f"key {plain(item['key'])}{where}: {MEANINGS[item['outcome']]}{which}{amount}", err=True)
    for partition, offset, reason in facts["unreadable"]:
        echo(f"record {partition}:{offset}: {plain(reason)}", err=True)
    for problem in summary.problems():
        echo(f"problem: {problem}", err=True)
    if summary.totals[KeyOutcome.REPLACED] or (summary.compacted and read.written):
        echo("audit a compacted topic to its end (--to end), while nothing writes to it and all of it is loaded", err=True)
    echo("NOT explained; see docs/how-to/operate/audit.md", err=True)
