"""The proofs as asset checks of the table: green is a statement about every offset, red names what does not add up."""

# No `from __future__ import annotations`: Dagster reads the annotations of assets, sensors and checks as objects.

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import dagster as dg

from kpipe.definition.pipeline import Pipeline
from kpipe.errors import KpipeError
from kpipe.ingest.prefetch import filled
from kpipe.interfaces import Destination, Topics
from kpipe.ledger.ledger import Ledger
from kpipe.planning.planner import check_source, lag
from kpipe.tables.multi_table import paired, targets
from kpipe.topics import TopicSnapshot, in_order
from kpipe.verification.verify import audit
from kpipe_assets.assets.quality_checks import audit_results, audit_specs
from kpipe_assets.assets.table_asset import table_keys
from kpipe_assets.dagster_resources import Destinations, Topicsources
from kpipe_assets.publishing.publisher import Publisher
from resources.home import Home

__all__ = ["Bounds", "table_checks", "verdict"]

_NAMES = {
    "complete": "Every offset of every committed range is a row, a dead letter, filtered, or a gap; no offset twice.",
    "mirror": "Dagster shows of each partition what the ledger holds.",
    "lag": "Offsets that wait in Kafka are below the bound, and nothing needs an operator.",
    "schema": "The table has the declared columns with the declared types.",
    "dead_letters": "Dead letters are a small share of the records.",
}
#: Those that each of several tables has.
_OF_EACH = ("complete", "mirror", "schema")


# Metadata of an evaluation that speaks of an error: its class.
_TROUBLE = "kpipe/error"


@dataclass(frozen=True)
class Bounds:
    """What still counts as well.

    Attributes:
        lag: most offsets behind the high watermark, over all partitions.
        dead_letters: largest share of dead letters among rows and dead letters.
    """

    lag: int = 1_000_000
    dead_letters: float = 0.01


def table_checks(pipeline: Pipeline, home: Home, bounds: Bounds = Bounds()) -> dg.AssetChecksDefinition:
    """The checks of a pipeline's tables. `complete`, `mirror` and those of `into.audit` are errors, the others warnings.

    Those that speak of rows stand at every table, the others at the first.
    """
    keys, parts = table_keys(pipeline), targets(pipeline)

    @dg.multi_asset_check(
        name=f"{pipeline.name}_checks",
        specs=[
            dg.AssetCheckSpec(name, asset=key, description=text)
            for at, key in enumerate(keys)
            for name, text in _NAMES.items()
            if not at or name in _OF_EACH
        ]
        + list(audit_specs(pipeline, keys[0])),
        can_subset=True,
    )
    def checks(
        context: dg.AssetCheckExecutionContext,
        kafka: dg.ResourceParam[Topicsources],
        destinations: dg.ResourceParam[Destinations],
    ) -> Iterator[dg.AssetCheckResult]:
        destination = destinations.open(pipeline)
        home.make()
        places = [place for _, place in paired(pipeline, destination)]
        how: dict[str, Callable[[int], _Result]] = {
            "complete": lambda at: (
                _complete(destination, pipeline.source.several) if not at else _complete_table(destination, parts[at].into.table)
            ),
            "mirror": lambda at: _mirror(context.instance, pipeline, home, destination, at),
            "lag": lambda _: _lag(destination, kafka.topics(pipeline), bounds.lag),
            "schema": lambda at: _schema(parts[at], places[at]),
            "dead_letters": lambda _: _dead_letters(destination, bounds.dead_letters),
        }
        chosen = context.selected_asset_check_keys
        if any(check.name not in _NAMES for check in chosen):
            how |= {name: _audit(*found) for name, found in audit_results(pipeline, destination).items()}
        for check in sorted(chosen, key=lambda item: (item.name, keys.index(item.asset_key))):
            passed, severity, words, metadata = how[check.name](keys.index(check.asset_key))
            yield dg.AssetCheckResult(
                passed=passed,
                asset_key=check.asset_key,
                check_name=check.name,
                severity=severity,
                description=words,
                metadata=metadata,
            )

    return checks


_Result = tuple[bool, dg.AssetCheckSeverity, str, dict[str, Any]]
_ERROR, _WARN = dg.AssetCheckSeverity.ERROR, dg.AssetCheckSeverity.WARN


def _audit(passed: bool, words: str, metadata: dict[str, Any]) -> Callable[[int], _Result]:
    return lambda _: (passed, _ERROR, words, metadata)


def _complete(destination: Destination, several: bool) -> _Result:
    _, ledger = destination.ledger()
    result = audit(ledger, destination.history(), destination.recount(), several)
    records = [
        dg.TableRecord(
            {
                "partition": number,
                "ranges": " ".join(f"[{start}, {end})" for start, end in item["ranges"]),
                **{name: int(item[name]) for name in ("span", "rows", "dead_letters", "filtered", "gaps", "rows_found")},
            }
        )
        for number, item in result.partitions.items()
    ]
    words = "; ".join(result.problems) or f"{result.span:,} offsets accounted for"
    if result.lost:
        words += f"; lost, and not among them: {', '.join(result.lost)}"
    if result.skipped:
        words += f"; skipped, and not among them: {', '.join(result.skipped)}"
    if result.given_up:
        words += f"; given up, so that the receiver may have taken part of it: {', '.join(result.given_up)}"
    if result.repeated:
        words += f"; read more than once, or to be read again: {', '.join(result.repeated)}"
    metadata: dict[str, Any] = {"kpipe/span": result.span, "kpipe/rows": result.counts.rows}
    if records:
        metadata["kpipe/partitions"] = dg.MetadataValue.table(records)
    return result.ok, _ERROR, words, metadata


def _complete_table(destination: Destination, table: str) -> _Result:
    """What the proof says of a further table."""
    _, ledger = destination.ledger()
    result = audit(ledger, destination.history(), destination.recount())
    mine = [text for text in result.problems if text.startswith(f"table {table}: ")]
    rows = result.targets.get(table, {"rows": 0, "rows_found": 0})
    words = "; ".join(mine) or f"{rows['rows']:,} rows, of the records that the ledger says"
    return not mine, _ERROR, words, {"kpipe/rows": rows["rows"], "kpipe/rows_found": rows["rows_found"]}


def _mirror(instance: dg.DagsterInstance, pipeline: Pipeline, home: Home, destination: Destination, at: int) -> _Result:
    asset = table_keys(pipeline)[at]
    publisher = Publisher(instance, asset, destination, home, pipeline.name)
    waiting = {key for item in destination.unpublished() for key in item.metadata}
    newest: dict[str, tuple[int, int]] = {}
    rows = destination.view("targets" if at else "batches")
    for row in rows if not at else [row for row in rows if row["target_table"] == asset.path[-1]]:
        number, seq = str(row["batch_source_partition_id"]), int(row["seq"])
        if pipeline.source.several:
            number = f"{row['topic']}:{number}"
        if seq > newest.get(number, (0, 0))[0]:
            newest[number] = (seq, int(row["batch_latest_offset"]))
    problems, all_shown = [], publisher.shown(newest)
    for number, (seq, end) in sorted(newest.items(), key=lambda item: in_order(item[0])):
        shown = all_shown[number]
        if shown > seq:
            problems.append(f"partition {number}: Dagster shows commit {shown}, the ledger's last is {seq} (offset {end})")
        elif shown < seq and number not in waiting:
            problems.append(f"partition {number}: commit {seq} (up to offset {end}) is marked as shown, Dagster has {shown}")
    words = "; ".join(problems) or f"{len(newest)} partitions agree" + (f"; {len(waiting)} wait to be shown" if waiting else "")
    return not problems, _ERROR, words, {"kpipe/waiting": len(waiting)}


def _lag(destination: Destination, topics: Topics, bound: int) -> _Result:
    _, ledger = destination.ledger()
    try:
        snapshot = topics.snapshot()
        check_source(ledger, snapshot)
    except KpipeError as error:
        return _troubled(error)
    return _behind(ledger, snapshot, bound)


def _troubled(error: KpipeError) -> _Result:
    return False, _ERROR, str(error), {_TROUBLE: type(error).__name__}


def _behind(ledger: Ledger, snapshot: TopicSnapshot, bound: int) -> _Result:
    behind = lag(ledger, snapshot)
    total = sum(behind.values())
    worst = max(behind, key=lambda source: behind[source], default=None)
    words = f"{total:,} offsets behind" + (f", most of them in {worst}: {behind[worst]:,}" if worst and total else "")
    return total <= bound, _WARN, f"{words} (bound {bound:,})", {"kpipe/lag": total}


def verdict(
    instance: dg.DagsterInstance, pipeline: Pipeline, ledger: Ledger, snapshot: TopicSnapshot, trouble: KpipeError | None
) -> list[dg.AssetCheckEvaluation]:
    """The check `lag` as a sensor finds it: red while something needs an operator, green when that is over. Told once.

    A run that stops for an operator never comes to its checks, and no other is started: without this they would stay as
    they were.
    """
    key = dg.AssetCheckKey(table_keys(pipeline)[0], "lag")
    record = instance.get_latest_asset_check_evaluation_record(key)
    told = record.evaluation if record is not None else None
    known = told if isinstance(told, dg.AssetCheckEvaluation) else None  # else it was planned, and has not come to pass
    if trouble is None and (known is None or known.passed or _TROUBLE not in known.metadata):
        return []
    if trouble is not None and known is not None and not known.passed and known.description == str(trouble):
        return []
    passed, severity, words, metadata = _troubled(trouble) if trouble else _behind(ledger, snapshot, Bounds().lag)
    return [
        dg.AssetCheckEvaluation(
            asset_key=key.asset_key,
            check_name=key.name,
            passed=passed,
            severity=severity,
            description=words,
            metadata=metadata,
        )
    ]


def _schema(pipeline: Pipeline, destination: Destination) -> _Result:
    declared, found = filled(pipeline, pipeline.declared), destination.columns()
    if found is None:
        return True, _WARN, "there is no table yet", {}
    problems = [
        f"column {name} is {'missing' if found.get(name) is None else found.get(name)}, declared as {kind}"
        for name, kind in declared
        if found.get(name) != kind
    ]
    return not problems, _WARN, "; ".join(problems) or f"{len(declared)} declared columns, {len(found)} in all", {}


def _dead_letters(destination: Destination, bound: float) -> _Result:
    counts = [entry.counts for entry in destination.history()]
    dead, rows = sum(c.dead_letters for c in counts), sum(c.rows for c in counts)
    share = dead / (dead + rows) if dead + rows else 0.0
    words = f"{dead:,} dead letters, {share:.4%} of {dead + rows:,} (bound {bound:.2%})"
    return share <= bound, _WARN, words, {"kpipe/dead_letters": dead, "kpipe/share": share}
