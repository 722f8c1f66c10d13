"""Asset checks of a table: completeness, publication in Dagster, lag, schema and dead letters."""

# No `from __future__ import annotations`: Dagster reads the annotations of assets, sensors and checks as objects.

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import dagster as dg

from kpipe.definition.pipeline import Pipeline
from kpipe.errors import KpipeError, LedgerMismatch
from kpipe.ingest.staging import filled
from kpipe.interfaces import Destination, Topics
from kpipe.ledger.ledger import Ledger
from kpipe.planning.planner import check_source, lag
from kpipe.schema.columns import Columns
from kpipe.tables.multi_table import table_destinations, table_pipelines
from kpipe.tables.topic_tables import TopicTables, of_topic
from kpipe.topics import TopicSnapshot, in_order
from kpipe.verification.verify import Audit
from kpipe_assets.assets.audit_checks import audit_results, audit_specs
from kpipe_assets.assets.table_asset import table_keys
from kpipe_assets.assets.topic_table_assets import topic_table_key, topics_with_tables
from kpipe_assets.dagster_resources import Destinations, Topicsources
from kpipe_assets.publishing.newest_commits import newest_commits
from kpipe_assets.publishing.publisher import Publisher
from kpipe_assets.runs.proof import Proof, known_ledger, proof
from kpipe_assets.runs.status import last_error
from resources.home import Home

__all__ = [
    "TROUBLE", "Bounds", "Result", "behind", "check_assets", "check_keys", "evaluations", "table_checks", "troubled",
]  # fmt: skip

_NAMES = {
    "complete": "Every offset of every committed range is exactly one of: row, dead letter, filtered, gap.",
    "published": "Dagster shows the newest commit of each partition in the ledger.",
    "lag": "The lag is below the bound, the last run has not failed, and ledger and brokers can be read.",
    "schema": "The table has the declared columns with the declared types.",
    "dead_letters": "The share of dead letters is below the bound.",
}
#: Checks of every table of a pipeline; the others exist for the first one only.
_OF_EACH = ("complete", "published", "schema")
#: Checks of each table by topic. The pipeline's asset has the others, and `complete` of all tables.
_OF_TOPIC = ("complete", "schema")


# Attempts to compare ledger and Dagster while another run commits.
_TRIES = 5
#: Metadata of a check result that reports an error: the error's class.
TROUBLE = "kpipe/error"


@dataclass(frozen=True)
class Bounds:
    """Upper bounds with which the checks still pass.

    Attributes:
        lag: offsets behind the high watermark, over all partitions.
        dead_letters: share of dead letters among rows and dead letters.
    """

    lag: int = 1_000_000
    dead_letters: float = 0.01


def table_checks(pipeline: Pipeline, home: Home, bounds: Bounds = Bounds()) -> dg.AssetChecksDefinition:
    """Build the checks of a pipeline's tables.

    `complete`, `published` and the checks of `into.audit` have severity ERROR, the others WARN. `complete`, `published` and
    `schema` exist for every table, the others for the first one.
    """
    keys, topics = check_assets(pipeline, home), topics_with_tables(pipeline, home)

    @dg.multi_asset_check(
        name=f"kpipe_checks__{pipeline.name}",
        specs=[
            dg.AssetCheckSpec(name, asset=key, description=text)
            for name, key in check_keys(pipeline, keys)
            for text in [_NAMES[name]]
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
        evaluate = evaluations(context.instance, pipeline, home, destination, lambda: kafka.topics(pipeline), topics, bounds)
        chosen = context.selected_asset_check_keys
        if any(check.name not in _NAMES for check in chosen):
            evaluate |= {name: _audit(*result) for name, result in audit_results(pipeline, destination).items()}
        for check in sorted(chosen, key=lambda item: (item.name, keys.index(item.asset_key))):
            passed, severity, summary, metadata = evaluate[check.name](keys.index(check.asset_key))
            yield dg.AssetCheckResult(
                passed=passed,
                asset_key=check.asset_key,
                check_name=check.name,
                severity=severity,
                description=summary,
                metadata=metadata,
            )

    return checks


#: Whether it passed, its severity, a summary and metadata.
Result = tuple[bool, dg.AssetCheckSeverity, str, dict[str, Any]]
_ERROR, _WARN = dg.AssetCheckSeverity.ERROR, dg.AssetCheckSeverity.WARN


def check_assets(pipeline: Pipeline, home: Home) -> list[dg.AssetKey]:
    """Return the assets that have checks: the tables of the definition, then those of topics that the home has seen."""
    return [*table_keys(pipeline), *(topic_table_key(pipeline, topic) for topic in topics_with_tables(pipeline, home))]


def check_keys(pipeline: Pipeline, keys: Sequence[dg.AssetKey]) -> list[tuple[str, dg.AssetKey]]:
    """Return name and asset of each check of these assets (`check_assets`), without those of `into.audit`."""
    if pipeline.into.by_topic:
        return [(name, key) for at, key in enumerate(keys) for name in _NAMES if (name in _OF_TOPIC if at else name != "schema")]
    if pipeline.into.by_field:  # the tables' columns differ
        return [(name, key) for key in keys for name in _NAMES if name != "schema"]
    return [(name, key) for at, key in enumerate(keys) for name in _NAMES if not at or name in _OF_EACH]


def evaluations(
    instance: dg.DagsterInstance,
    pipeline: Pipeline,
    home: Home,
    destination: Destination,
    topics: Callable[[], Topics],
    with_tables: Sequence[str] = (),
    bounds: Bounds = Bounds(),
) -> dict[str, Callable[[int], Result]]:
    """Return the evaluation of each check, which takes the index of the table.

    Args:
        instance: Dagster instance.
        pipeline: the definition.
        home: KPIPE_HOME.
        destination: the pipeline's.
        topics: returns the client of its brokers.
        with_tables: topics that have tables of their own; their positions follow those of the definition's tables.
        bounds: upper bounds.
    """
    parts = [*table_pipelines(pipeline), *(of_topic(pipeline, topic) for topic in with_tables)]
    found = cache(lambda: proof(pipeline, home, destination))

    def columns(at: int) -> Columns | None:
        if with_tables and isinstance(destination, TopicTables):
            return destination.columns_of([parts[at].into.table])[0]
        return table_destinations(pipeline, destination)[at][1].columns()

    return {
        "complete": lambda at: _complete_table(found(), parts[at].into.table) if at else _complete(found().result),
        "published": lambda at: _published(instance, pipeline, home, destination, at),
        "lag": lambda _: _lag(pipeline, home, destination, topics(), bounds.lag),
        "schema": lambda at: _schema(parts[at], columns(at)),
        "dead_letters": lambda _: _dead_letters(destination, bounds.dead_letters),
    }


def _audit(passed: bool, summary: str, metadata: dict[str, Any]) -> Callable[[int], Result]:
    return lambda _: (passed, _ERROR, summary, metadata)


def _complete(result: Audit) -> Result:
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
    summary = "; ".join(result.problems) or f"{result.span:,} offsets accounted for"
    if result.lost:
        summary += f"; lost, not counted: {', '.join(result.lost)}"
    if result.skipped:
        summary += f"; skipped, not counted: {', '.join(result.skipped)}"
    if result.adopted:
        source = f" from {result.adopted_from}" if result.adopted_from else ""
        summary += f"; adopted{source}, not counted: {', '.join(result.adopted)}"
    if result.replaced:
        summary += f"; the log was cut below, so these rows are not proven: {', '.join(result.replaced)}"
    if result.unproven:
        summary += f"; read by several batches, rows were counted only: {', '.join(result.unproven)}"
    if result.given_up:
        summary += f"; given up, the receiver may have received a part: {', '.join(result.given_up)}"
    if result.repeated:
        summary += f"; read more than once, or to be read again: {', '.join(result.repeated)}"
    metadata: dict[str, Any] = {"kpipe/span": result.span, "kpipe/rows": result.counts.rows}
    if result.adopted:
        metadata["kpipe/adopted"] = ", ".join(result.adopted)
    if records:
        metadata["kpipe/partitions"] = dg.MetadataValue.table(records)
    return result.ok, _ERROR, summary, metadata


def _complete_table(found: Proof, table: str) -> Result:
    """Return the part of a proof about a table after the first one."""
    result = found.result
    mine = [text for text in result.problems if text.startswith(f"table {table}: ")]
    mine += [found.mismatch.what] if found.mismatch is not None else []
    rows = result.targets.get(table, {"rows": 0, "rows_found": 0})
    summary = "; ".join(mine) or f"{rows['rows']:,} rows, as in the ledger"
    return not mine, _ERROR, summary, {"kpipe/rows": rows["rows"], "kpipe/rows_found": rows["rows_found"]}


def _published(instance: dg.DagsterInstance, pipeline: Pipeline, home: Home, destination: Destination, at: int) -> Result:
    """Compare ledger and Dagster. A successor may commit and publish meanwhile."""
    for attempt in range(_TRIES):
        try:
            _, _, before = known_ledger(pipeline, home, destination)
        except LedgerMismatch as error:
            return troubled(error)
        result = _compared(instance, pipeline, home, destination, at)
        if result[0] or attempt == _TRIES - 1 or destination.ledger()[1].seq == before.seq:
            break  # else a newer commit may have been published since the newest one was read
    return result


def _compared(instance: dg.DagsterInstance, pipeline: Pipeline, home: Home, destination: Destination, at: int) -> Result:
    asset = table_keys(pipeline)[at]
    publisher = Publisher(instance, asset, destination, home, pipeline.name)
    # In this order, a commit that is not waiting was marked as published before Dagster's events are read.
    newest = newest_commits(pipeline, destination, asset.path[-1], first=at == 0)
    waiting = {key for item in destination.unpublished() for key in item.metadata}
    problems, published = [], publisher.shown({*newest, *(last.former_key for last in newest.values())})
    for number, last in sorted(newest.items(), key=lambda item: in_order(item[0])):
        shown = published[number]
        # Commits from before an edit of `topic` to `topics` were published by the key that the partition had.
        if number in waiting or any(published[key].is_commit(last.seq, last.batch) for key in (number, last.former_key)):
            continue
        problems.append(
            f"partition {number}: commit {last.seq} (batch {last.batch}, to offset {last.end}) is marked as published, "
            f"Dagster shows commit {shown.seq}" + (f" (batch {shown.batch})" if shown.batch else "")
        )
    summary = "; ".join(problems) or f"{len(newest)} partitions agree"
    if waiting and not problems:
        summary += f"; {len(waiting)} not published yet"
    return not problems, _ERROR, summary, {"kpipe/waiting": len(waiting)}


def _lag(pipeline: Pipeline, home: Home, destination: Destination, topics: Topics, bound: int) -> Result:
    try:
        _, _, ledger = known_ledger(pipeline, home, destination)
        snapshot = topics.snapshot()
        check_source(ledger, snapshot)
        if (error := last_error(home, pipeline.name)) is not None:
            raise error
    except KpipeError as error:
        return troubled(error)
    return behind(ledger, snapshot, bound)


def troubled(error: KpipeError) -> Result:
    """Return the failed result of an error."""
    return False, _ERROR, str(error), {TROUBLE: type(error).__name__}


def behind(ledger: Ledger, snapshot: TopicSnapshot, bound: int) -> Result:
    """Return the result of the check `lag` if there is no error."""
    unread = lag(ledger, snapshot)
    total = sum(unread.values())
    worst = max(unread, key=lambda source: unread[source], default=None)
    summary = f"{total:,} offsets behind" + (f", most of them in {worst}: {unread[worst]:,}" if worst and total else "")
    return total <= bound, _WARN, f"{summary} (bound {bound:,})", {"kpipe/lag": total}


def _schema(pipeline: Pipeline, actual: Columns | None) -> Result:
    declared = filled(pipeline, pipeline.declared)
    if actual is None:
        return True, _WARN, "the table does not exist yet", {}
    problems = [
        f"column {name}: expected {expected}, found {actual.get(name) or 'no such column'}"
        for name, expected in declared
        if actual.get(name) != expected
    ]
    return not problems, _WARN, "; ".join(problems) or f"{len(declared)} declared columns, {len(actual)} in all", {}


def _dead_letters(destination: Destination, bound: float) -> Result:
    counts = [entry.counts for entry in destination.history()]
    dead, rows = sum(c.dead_letters for c in counts), sum(c.rows for c in counts)
    share = dead / (dead + rows) if dead + rows else 0.0
    summary = f"{dead:,} dead letters, {share:.4%} of {dead + rows:,} (bound {bound:.2%})"
    return share <= bound, _WARN, summary, {"kpipe/dead_letters": dead, "kpipe/share": share}
