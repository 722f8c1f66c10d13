"""`kpipe audit TOPIC`: compare a table that another program loaded with its topic, offset by offset."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kpipe.audit.outcomes import EXPLAINED, MEANINGS, Outcome, Summary
from kpipe_assets.commands.options import as_json, as_partitions
from kpipe_assets.commands.table_options import address, pairs, place_options, table_options, templates
from kpipe_assets.terminal import echo, emit, log
from kpipe_assets.wording import count
from resources.home import Home

if TYPE_CHECKING:
    from resources.audit.run import Request

__all__ = ["audit"]


def _numbers(_: click.Context, parameter: click.Parameter, value: str | None) -> frozenset[int] | None:
    parts = as_partitions(_, parameter, value)
    if parts is None:
        return None
    numbers = frozenset(part for part in parts if isinstance(part, int))
    if len(numbers) != len(parts):
        raise click.BadParameter("expected numbers of partitions, found a topic", param=parameter)
    return numbers


def _place(value: str, words: tuple[str, ...], name: str) -> str | dict[int, int]:
    """Return one of the words, or an offset for each partition."""
    if value in words:
        return value
    found: dict[int, int] = {}
    for text in value.split(","):
        match = re.fullmatch(r"(\d+):(\d{1,18})", text.strip())
        if match is None:
            raise click.BadParameter(f"expected {', '.join(words)} or PARTITION:OFFSET,..., found {value!r}", param_hint=name)
        found[int(match[1])] = int(match[2])
    return found


@click.command()
@click.argument("topic", metavar="TOPIC")
@click.option("--brokers", required=True, metavar="HOST:PORT", help="Brokers, comma-separated.")
@table_options(required=True)
@click.option(
    "--ordinality-column",
    metavar="COLUMN",
    help="Column that numbers the rows of a record from 0 or 1, if the loader writes several. As --partition-column.",
)
@click.option("--key", "keys", multiple=True, metavar="COLUMN", help="Audit by this key; repeatable, or COLUMN=FIELD.")
@click.option(
    "--columns", multiple=True, metavar="COLUMN", help="By key: compare these only; repeatable, or COLUMN=FIELD; none: only keys."
)
@click.option(
    "--rows",
    type=click.Choice(("latest", "all")),
    default="latest",
    show_default=True,
    help="By key: rows of the newest record of each key, or of all records.",
)
@click.option("--record-key", is_flag=True, help="By key: take the key from Kafka's key, not from the value.")
@click.option("--older-rows", is_flag=True, help="By key: rows without a record are older than the log start.")
@click.option(
    "--time-unit",
    type=click.Choice(("s", "ms", "us")),
    default="ms",
    show_default=True,
    help="By key: unit of numbers that are timestamps.",
)
@click.option("--partitions", callback=_numbers, metavar="LIST", help="Audit these partitions, such as 0,2-5.")
@click.option(
    "--from",
    "begin",
    default="first-row",
    show_default=True,
    metavar="PLACE",
    help="first-row (or the log start, if that is lower), log-start, or PARTITION:OFFSET,...",
)
@click.option(
    "--to",
    "end",
    default="end",
    show_default=True,
    metavar="PLACE",
    help="end (of the log), last-row, group:NAME (offsets that a consumer group has committed), or PARTITION:OFFSET,...",
)
@click.option(
    "--isolation",
    type=click.Choice(sorted(EXPLAINED)),
    default="read_committed",
    show_default=True,
    help="Isolation level of the loader.",
)
@click.option("--skips-tombstones", is_flag=True, help="The loader skips records without a value.")
@click.option("--compacted", is_flag=True, help="The topic was compacted before, though its cleanup.policy is delete now.")
@click.option(
    "--filtered", type=click.IntRange(min=0), metavar="COUNT", help="Records that the loader filtered, by its own count."
)
@click.option("--except", "declared", metavar="PLACE", help="Parquet with partition and offset of records that need no row.")
@place_options
@click.option("--config", multiple=True, callback=pairs, metavar="KEY=VALUE", help="Setting of the Kafka client; repeatable.")
@click.option(
    "--credential", multiple=True, callback=templates, metavar="KEY=TEMPLATE", help="Secret of the Kafka client; repeatable."
)
@click.option(
    "--table-credential", multiple=True, callback=templates, metavar="KEY=TEMPLATE", help="Secret of the database; repeatable."
)
@click.option("--report", type=click.Path(path_type=Path), metavar="FOLDER", help="Report; KPIPE_HOME/audits/... by default.")
@click.option("--memory", type=click.IntRange(8, 65536), default=64, show_default=True, metavar="MB", help="For counts of rows.")
@as_json
def audit(topic: str, brokers: str, report: Path | None, as_json: bool, **options: Any) -> int:
    """Compare a table that any program loaded from TOPIC with the topic, offset by offset, or by key.

    The table must have columns for partition and offset; or, with --key, a key, and the topic JSON records. Exit status 0:
    every offset of the audited range, or every key, and every row, is explained. The report contains the evidence, and SQL
    that proves it again. An interrupted audit continues.

    \b
    Examples:
      kpipe audit orders --brokers kafka:9092 --type parquet --database /data/orders
      kpipe audit orders --brokers kafka:9092 --type duckdb --database lake.duckdb --table orders --key id
    """
    from resources.audit.run import run

    request = _request(topic, brokers, options)
    if options["keys"]:
        if options["ordinality_column"]:
            raise click.UsageError("--ordinality-column is not available with --key: records of several rows have no such audit")
        from kpipe_assets.commands import audit_by_key

        chosen = audit_by_key.request(request, options)
        folder = report if report is not None else _folder(topic, chosen.identity(), request)
        return audit_by_key.audit(chosen, folder.expanduser().absolute(), as_json)
    _only_by_key(options)
    folder = report if report is not None else _folder(topic, request.identity(), request)
    echo(f"report: {folder}", err=True)
    summary, findings, facts = run(request, folder.expanduser().absolute(), lambda text: log(text))
    if as_json:
        emit(_as_dict(summary, findings, facts, folder))
    else:
        _show(summary, findings, facts)
    return 0 if summary.ok else 1


def _only_by_key(options: Mapping[str, Any]) -> None:
    for name in ("columns", "record_key", "older_rows"):
        if options[name]:
            raise click.UsageError(f"--{name.replace('_', '-')} needs --key")
    if options["rows"] != "latest" or options["time_unit"] != "ms":
        raise click.UsageError("--rows and --time-unit need --key")


def _request(topic: str, brokers: str, options: Mapping[str, Any]) -> Request:
    from pydantic import ValidationError

    from kpipe.definition.pipeline import Source
    from resources.audit.run import Request

    end, group = options["end"], None
    if end.startswith("group:"):
        end, group = "end", end.removeprefix("group:")
    try:
        source = Source(brokers=brokers, topic=topic, config=options["config"], credentials=options["credential"])
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise click.UsageError(f"{where}: {first['msg'].removeprefix('Value error, ')}") from None
    return Request(
        source=source,
        table=address(options),
        columns=(options["partition_column"], options["offset_column"], options["topic_column"]),
        number=options["ordinality_column"],
        topic_value=options["topic_value"],
        partitions=options["partitions"],
        begin=_place(options["begin"], ("first-row", "log-start"), "--from"),
        end=_place(end, ("end", "last-row"), "--to"),
        group=group,
        isolation=options["isolation"],
        skips_tombstones=options["skips_tombstones"],
        compacted=options["compacted"],
        filtered=options["filtered"],
        declared=options["declared"],
        memory_mb=options["memory"],
    )


def _folder(topic: str, same: Mapping[str, Any], request: Request) -> Path:
    """Return the folder of the unfinished report of the same audit, else a new one."""
    from resources.audit.run import is_finished

    identity = repr((request.source.bootstrap, sorted(same.items())))
    parent = Home.from_env().make().path / "audits"
    name = f"{topic}-{sha256(identity.encode()).hexdigest()[:8]}"
    number = 1
    while is_finished(parent / f"{name}-{number}"):
        number += 1
    return parent / f"{name}-{number}"


def _as_dict(summary: Summary, findings: list[Any], facts: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    return {
        "verdict": summary.verdict,
        "offsets": summary.span,
        "outcomes": {outcome.name.lower(): summary.totals[outcome] for outcome in Outcome if summary.totals[outcome]},
        "partitions": {
            str(number): {
                "start": start,
                "end": end,
                "after_last_row": summary.tails.get(number, 0),
                **{
                    outcome.name.lower(): amount
                    for outcome, amount in sorted(summary.counts.get(number, Counter[Outcome]()).items())
                },
            }
            for number, (start, end) in summary.ranges.items()
        },
        "rows": vars(summary.notes),
        "problems": summary.problems(),
        "misnumbered": facts.get("misnumbered", []),
        "findings": [
            {"partition": number, "start": start, "end": end, "outcome": outcome.name.lower(), "rows": rows}
            for number, start, end, outcome, rows in findings
        ],
        "table": facts["table"],
        "snapshot": facts["snapshot"],
        "read": facts["read"],
        "columns": facts["columns"],
        "report": str(folder),
    }


def _show(summary: Summary, findings: list[Any], facts: Mapping[str, Any]) -> None:
    from kpipe_assets.console import listing, wide

    explained = EXPLAINED[summary.isolation]
    echo(f"table {facts['table']} ({facts['snapshot']}), read at {facts['read']}, columns {', '.join(facts['columns'])}")
    table = listing(
        "partition>", "audited offsets>", "matched>", "otherwise explained>", "unexplained>", "missing after the last row>"
    )
    for number, (start, end) in summary.ranges.items():
        counts = summary.counts.get(number, Counter[Outcome]())
        good = sum(amount for outcome, amount in counts.items() if outcome in explained)
        matched, tail = counts.get(Outcome.MATCHED, 0), summary.tails.get(number, 0)
        values = (f"[{start:,}, {end:,})", matched, good - matched, sum(counts.values()) - good, tail)
        table.add_row(str(number), *(item if isinstance(item, str) else f"{item:,}" for item in values))
    wide().print(table)
    for outcome in Outcome:
        amount = summary.totals[outcome]
        if amount and outcome in explained:
            echo(f"{amount:,}: {MEANINGS[outcome]}")
    if not facts["cleanup policy"]:
        echo("cleanup.policy: cannot be read (grant DescribeConfigs on the topic)")
    notes = summary.notes
    for amount, text in (
        (notes.other_topic, "of other topics"),
        (notes.not_audited, "of partitions that are not audited"),
        (notes.before, "below the audited range"),
        (notes.after, "above the audited range"),
        (notes.undecided, "at or above the last stable offset"),
    ):
        if amount:
            echo(f"not audited: {count(amount, 'row')} {text}")
    if notes.further:
        echo(f"{count(notes.further, 'further row')} of records with several; a record's last rows could be missing unnoticed")
    if summary.ok:
        echo(f"explained: {count(summary.span, 'offset')}; no record is missing, no row is a duplicate")
        return
    for text in facts.get("misnumbered", []):
        echo(text, err=True)
    for number, start, end, outcome, rows in findings:
        echo(f"partition {number} [{start}, {end}): {MEANINGS[outcome]}" + (f" ({count(rows, 'row')})" if rows else ""), err=True)
    for problem in summary.problems():
        echo(f"problem: {problem}", err=True)
    if summary.totals[Outcome.DUPLICATE] and "misnumbered" not in facts:
        echo(
            "several rows of a record may be intended, such as those of a list (explode, UNNEST): name the column that numbers"
            " them (--ordinality-column); kpipe verify proves tables that kpipe loads",
            err=True,
        )
    tail = sum(summary.tails.values())
    if tail:
        echo(
            f"{count(tail, 'record')} after the last row of a partition: not loaded yet, or lost (limit the range: --to)",
            err=True,
        )
    if summary.verdict == "unexplained unless filtered":
        echo(f"unexplained unless filtered: {summary.missing:,} records without a row, as many as --filtered states", err=True)
    else:
        echo("NOT explained; see docs/how-to/operate/audit.md", err=True)
