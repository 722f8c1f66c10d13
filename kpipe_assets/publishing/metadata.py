"""What Dagster shows of a pipeline: the names of all metadata, declared once, and numbers made of publications."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import dagster as dg

from kpipe.batch.batch import SETTLED
from kpipe.batch.host_stats import Work
from kpipe.interfaces import Destination, Publication, Several
from kpipe.schema.columns import Columns
from kpipe.topics import PartitionId, PartitionState, parts

__all__ = [
    "HIGH",
    "LAST_SEQ",
    "RECORD",
    "ROWS",
    "column_lineage",
    "column_schema",
    "nothing_new",
    "observed",
    "of_further",
    "of_publications",
    "of_table",
    "of_work",
    "partition_keys",
    "rarer",
]

#: Sequence number of the newest commit that an event tells of: how a mirror knows what it has already shown.
LAST_SEQ = "kpipe/last_seq"
#: High watermark of an observation: how a sensor knows what has been told of a partition.
HIGH = "kpipe/high_watermark"
#: Rows of the whole table, whatever the event's partition: Dagster's own key.
ROWS = "dagster/row_count"
_SUMMED = ("messages", "rows", *SETTLED, "dead_letters", "filtered", "gaps", "bytes")
# An event holds the newest ranges only: a run of hours may commit thousands, and the ledger has them all.
_MOST_RANGES = 50


def partition_keys(sources: Iterable[PartitionId], several: bool = False) -> list[str]:
    """Dagster's keys of these partitions, by topic, then in numeric order; `0`, or `web:0` where there are several topics."""
    return [str(name) for name in parts(sources, several)]


def of_further(publications: Sequence[Publication], table: str) -> list[Publication]:
    """The same for a further table of the pipeline: its rows in place of the first table's. Commits without it are left out."""
    result = []
    for publication in publications:
        found = {}
        for key, item in publication.metadata.items():
            mine = item.get("targets", {}).get(table)
            if mine is not None:
                share = mine["rows"] / item["rows"] if item["rows"] else 0.0
                found[key] = {**item, **mine, "rows_per_second": round(float(item["rows_per_second"]) * share, 1)}
        result.append(Publication(publication.batch, publication.seq, found))
    return result


def of_publications(publications: Sequence[Publication]) -> dict[str, dict[str, Any]]:
    """One event's metadata for each partition, from all commits that it tells of.

    Offsets are exclusive at the end; counts and bytes are sums; `lag` is of the newest commit, up to the high watermark
    at its plan; `rows_per_second` is the rows over the time that the commits took.

    Args:
        publications: in order of commit.
    """
    by_partition: dict[str, list[tuple[int, Mapping[str, Any]]]] = {}
    for publication in publications:
        for key, item in publication.metadata.items():
            by_partition.setdefault(key, []).append((publication.seq, item))
    return {key: _event(items) for key, items in by_partition.items()}


def _event(items: Sequence[tuple[int, Mapping[str, Any]]]) -> dict[str, Any]:
    last = items[-1][1]
    sums = {name: sum(int(item.get(name, 0)) for _, item in items) for name in _SUMMED}
    seconds = sum(float(item.get("seconds", 0.0)) for _, item in items)
    ranges = [
        dg.TableRecord(
            {
                "commit": seq,
                "start": int(item["start_offset"]),
                "end": int(item["end_offset"]),
                "rows": int(item["rows"]),
                "dead letters": int(item["dead_letters"]),
                "gaps": int(item["gaps"]),
                "batch": str(item["batch"]),
            }
        )
        for seq, item in items[-_MOST_RANGES:]
    ]
    return {
        "kpipe/start_offset": int(items[0][1]["start_offset"]),
        "kpipe/end_offset": int(last["end_offset"]),
        **{f"kpipe/{name}": value for name, value in sums.items()},
        "kpipe/lag": int(last["lag"]),
        "kpipe/rows_per_second": round(sums["rows"] / seconds, 1) if seconds else float(last["rows_per_second"]),
        "kpipe/batches": len(items),
        LAST_SEQ: items[-1][0],
        "kpipe/ranges": dg.MetadataValue.table(ranges),
        **({"kpipe/lookups": dg.MetadataValue.json(last["lookups"])} if "lookups" in last else {}),
    }


def nothing_new(offset: int, last_seq: int) -> dict[str, Any]:
    """The event of a partition of which a run has committed nothing: the same numbers, so that no plot has a hole.

    Args:
        offset: the next one to read.
        last_seq: the newest commit that Dagster shows of the partition.
    """
    zeros = {f"kpipe/{name}": 0 for name in _SUMMED}
    return {
        "kpipe/start_offset": offset,
        "kpipe/end_offset": offset,
        **zeros,
        "kpipe/rows_per_second": 0.0,
        "kpipe/batches": 0,
        LAST_SEQ: last_seq,
    }


def observed(state: PartitionState, lag: int) -> dict[str, Any]:
    """Metadata of an observation of one Kafka partition; ends are exclusive."""
    return {
        "kpipe/log_start": state.log_start,
        HIGH: state.high,
        "kpipe/last_stable_offset": state.end,
        "kpipe/records": state.high - state.log_start,
        "kpipe/lag": lag,
    }


#: A Kafka record as columns: what the topic's page shows, and where the table's columns come from.
RECORD = dg.TableSchema(
    [
        dg.TableColumn("key", "bytes", "what the producer partitions by; may be missing"),
        dg.TableColumn("value", "bytes", "the payload; missing in a tombstone"),
        dg.TableColumn("headers", "list of (name, bytes)", "names may repeat"),
        dg.TableColumn("partition", "int32", "the Dagster partition of the same number"),
        dg.TableColumn("offset", "int64", "grows within a partition; may skip numbers"),
        dg.TableColumn("timestamp", "int64", "ms since 1970 UTC, of the producer or the broker"),
    ]
)


def of_table(destination: Destination, topics: Sequence[dg.AssetKey], at: int = 0) -> dict[str, Any]:
    """Metadata of a table as it is now: rows that the pipeline has written, columns, and where each comes from.

    Args:
        destination: where it is.
        topics: where its rows come from.
        at: which of the pipeline's tables, 0 is the first.
    """
    if at and isinstance(destination, Several):
        rows = list(destination.held().values())[at - 1] if destination.held() else 0
        columns = destination.further()[at - 1].columns()
    else:
        rows = sum(int(known["rows"]) for known in destination.view("pipelines"))
        columns = destination.columns()
    if columns is None:
        return {ROWS: rows}
    return {
        ROWS: rows,
        "dagster/column_schema": column_schema(columns),
        "dagster/column_lineage": column_lineage(columns, topics),
    }


def of_work(work: Work) -> dict[str, Any]:
    """Metadata of where a run's work was done: Spark's application, its page, and what each machine did; nothing on one."""
    if not work.url and not work.hosts:
        return {}
    rows = [
        dg.TableRecord(
            {
                "host": name,
                "ranges": done.ranges,
                "records": done.records,
                "MB": round(done.bytes / 1e6, 3),
                "seconds": round(done.seconds, 3),
                "records/s": round(done.records / done.seconds, 1) if done.seconds else 0.0,
                "failures": done.failures,
            }
        )
        for name, done in sorted(work.hosts.items())
    ]
    return {
        "kpipe/spark_application": work.application,
        **({"kpipe/spark_page": dg.MetadataValue.url(work.url)} if work.url else {}),
        **({"kpipe/hosts": dg.MetadataValue.table(rows)} if rows else {}),
    }


def column_lineage(columns: Columns, topics: Sequence[dg.AssetKey]) -> dg.TableColumnLineage:
    """Every payload column comes of the records' value, Kafka's coordinates of the members of their name; of all topics."""
    coordinates = {f"_kafka_{name}": name for name in ("partition", "offset", "timestamp")}
    sources = {**dict.fromkeys(columns.names(), "value"), **coordinates}
    return dg.TableColumnLineage(
        {name: [dg.TableColumnDep(topic, source) for topic in topics] for name, source in sources.items()}
    )


def column_schema(columns: Columns) -> dg.TableSchema:
    """Columns as the catalog shows them."""
    return dg.TableSchema([dg.TableColumn(name, str(kind)) for name, kind in columns])


def rarer(partitions: int) -> float:
    """How many times less often each of so many partitions is told of, so that telling Dagster never is most of the work.

    An event takes 10 kB of Dagster's databases (SQLite), for ever. At every 30 s, 1,000 partitions would be 28 GB a day.
    """
    return max(1.0, partitions / 100)
