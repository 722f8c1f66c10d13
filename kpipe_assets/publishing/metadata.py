"""Metadata of Dagster events: names, and values from publications."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import dagster as dg

from kpipe.batch.batch import SETTLED
from kpipe.batch.host_stats import Work
from kpipe.batch.table_write import of_into
from kpipe.interfaces import Destination, MultiTable, Publication
from kpipe.schema.columns import Columns
from kpipe.topics import PartitionId, PartitionState, parts

__all__ = [
    "END",
    "HIGH",
    "LAST_BATCH",
    "LAST_SEQ",
    "RECORD",
    "ROWS",
    "column_lineage",
    "column_schema",
    "cost",
    "nothing_new",
    "observed",
    "of_dead_letter_topic",
    "of_one",
    "of_publications",
    "of_table",
    "of_work",
    "partition_keys",
    "rarer",
    "run_cost",
]

#: Sequence number of the newest commit in an event. Commits up to it are published.
LAST_SEQ = "kpipe/last_seq"
#: Batch id of that commit: numbers of commits begin again in another ledger, and after a backup was restored.
LAST_BATCH = "kpipe/last_batch"
#: Next offset to read after an event.
END = "kpipe/end_offset"
#: High watermark of an observation. A sensor publishes a partition again when it changes.
HIGH = "kpipe/high_watermark"
#: Rows of the whole table, whatever the event's partition: Dagster's own key.
ROWS = "dagster/row_count"
_SUMMED = ("messages", "rows", *SETTLED, "dead_letters", "filtered", "gaps", "bytes")
# Most ranges in an event, the newest ones: a run of hours may commit thousands. The ledger contains all.
_MOST_RANGES = 50


def partition_keys(sources: Iterable[PartitionId], multi_topic: bool = False) -> list[str]:
    """Return Dagster's partition keys by topic and number: `0`, or `web:0` with several topics."""
    return [str(name) for name in parts(sources, multi_topic)]


def of_one(publications: Sequence[Publication], tables: Sequence[str], table: str) -> list[Publication]:
    """Return publications with the numbers of one table, without commits that did not write it.

    Stored metadata contains the rows of the table of `into`, and those of the tables of `also` under `targets`.
    """
    if table == of_into(tables):
        return list(publications)
    result = []
    for publication in publications:
        metadata = {}
        for key, item in publication.metadata.items():
            own = item.get("targets", {}).get(table)
            if own is not None:
                share = own["rows"] / item["rows"] if item["rows"] else 0.0
                metadata[key] = {**item, **own, "rows_per_second": round(float(item["rows_per_second"]) * share, 1)}
        result.append(Publication(publication.batch, publication.seq, metadata))
    return result


def of_publications(publications: Sequence[Publication]) -> dict[str, dict[str, Any]]:
    """Combine commits to the metadata of one event for each partition.

    End offsets are exclusive. Counts and bytes are sums. `lag` is that of the newest commit, to the high watermark at its
    plan. `rows_per_second` is the sum of rows divided by the duration of the commits.

    Args:
        publications: in commit order.
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
    cores = sum(float(item.get("core_seconds", 0.0)) for _, item in items)
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
        END: int(last["end_offset"]),
        **{f"kpipe/{name}": value for name, value in sums.items()},
        "kpipe/lag": int(last["lag"]),
        "kpipe/rows_per_second": round(sums["rows"] / seconds, 1) if seconds else float(last["rows_per_second"]),
        **cost(cores, sums["rows"], sums["bytes"]),
        "kpipe/batches": len(items),
        LAST_SEQ: items[-1][0],
        LAST_BATCH: str(last["batch"]),
        "kpipe/ranges": dg.MetadataValue.table(ranges),
        **({"kpipe/lookups": dg.MetadataValue.json(last["lookups"])} if "lookups" in last else {}),
    }


def cost(core_seconds: float, rows: int, size: int) -> dict[str, Any]:
    """Build the metadata of the cost of rows: seconds of cores, and the rows and MB for each of them; without work, zeros.

    Args:
        core_seconds: seconds that Spark's tasks spent, each on one core.
        rows: rows that they staged.
        size: bytes of keys and values that they read.
    """
    rates = _rates(core_seconds, rows, size)
    return {
        "kpipe/core_seconds": round(core_seconds, 3),
        "kpipe/rows_per_core_second": rates[0],
        "kpipe/mb_per_core_second": rates[1],
    }


def run_cost(core_seconds: float, rows: int, size: int) -> dict[str, Any]:
    """Build the metadata of the cost of a whole run; see `cost`."""
    rates = _rates(core_seconds, rows, size)
    return {
        "kpipe/run_core_seconds": round(core_seconds, 3),
        "kpipe/run_rows_per_core_second": rates[0],
        "kpipe/run_mb_per_core_second": rates[1],
    }


def _rates(core_seconds: float, rows: int, size: int) -> tuple[float, float]:
    """Return rows and MB for each second of a core; zeros without work."""
    if not core_seconds:
        return 0.0, 0.0
    return round(rows / core_seconds, 1), round(size / 1e6 / core_seconds, 3)


def nothing_new(offset: int, seq: int, batch: str) -> dict[str, Any]:
    """Build the event of a partition without new records: the same metadata with zeros, so that plots have no gap.

    Args:
        offset: the next offset to read.
        seq: number of the partition's newest commit; 0: none.
        batch: its batch id.
    """
    zeros = {f"kpipe/{name}": 0 for name in _SUMMED}
    return {
        "kpipe/start_offset": offset,
        END: offset,
        **zeros,
        "kpipe/rows_per_second": 0.0,
        **cost(0.0, 0, 0),
        "kpipe/batches": 0,
        LAST_SEQ: seq,
        LAST_BATCH: batch,
    }


def observed(state: PartitionState, lag: int) -> dict[str, Any]:
    """Build the metadata of an observation of a Kafka partition. End offsets are exclusive."""
    return {
        "kpipe/log_start": state.log_start,
        HIGH: state.high,
        "kpipe/last_stable_offset": state.end,
        "kpipe/records": state.high - state.log_start,
        "kpipe/lag": lag,
    }


#: A Kafka record as columns, for the topic's page and for column lineage.
RECORD = dg.TableSchema(
    [
        dg.TableColumn("key", "bytes", "the producer partitions by it; may be missing"),
        dg.TableColumn("value", "bytes", "the payload; missing in a tombstone"),
        dg.TableColumn("headers", "list of (name, bytes)", "names may repeat"),
        dg.TableColumn("partition", "int32", "the Dagster partition of the same number"),
        dg.TableColumn("offset", "int64", "grows within a partition; may skip numbers"),
        dg.TableColumn("timestamp", "int64", "ms since 1970 UTC, of the producer or the broker"),
    ]
)


def of_table(destination: Destination, topics: Sequence[dg.AssetKey], at: int = 0) -> dict[str, Any]:
    """Build the metadata of a table: the number of its rows, its columns and their lineage.

    Args:
        destination: the table's destination.
        topics: assets of the topics.
        at: index of the table in the pipeline.
    """
    if isinstance(destination, MultiTable) and len(destination.tables) > 1:
        left = list(destination.rows_left().values())
        rows = left[at] if left else 0
        columns = destination.tables[at].columns()
    else:
        rows = sum(int(pipeline["rows"]) for pipeline in destination.view("pipelines"))
        columns = destination.columns()
    if columns is None:
        return {ROWS: rows}
    return {
        ROWS: rows,
        "dagster/column_schema": column_schema(columns),
        "dagster/column_lineage": column_lineage(columns, topics),
    }


def of_work(work: Work) -> dict[str, Any]:
    """Build the metadata of a run on a cluster: Spark's application, its page, and statistics by host. Empty if local."""
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


def of_dead_letter_topic(written: Mapping[str, Any] | None) -> dict[str, Any]:
    """Build the metadata of `errors.topic` from what `last_written` returns; empty without it.

    The error is not part of it: a run that ends with one publishes no closing event.
    """
    if written is None:
        return {}
    return {"kpipe/dead_letter_topic": str(written["topic"]), "kpipe/dead_letter_topic_records": int(written["records"])}


def column_lineage(columns: Columns, topics: Sequence[dg.AssetKey]) -> dg.TableColumnLineage:
    """Build the column lineage: `_kafka_*` columns come from the record's fields, all others from its value."""
    coordinates = {f"_kafka_{name}": name for name in ("partition", "offset", "timestamp")}
    sources = {**dict.fromkeys(columns.names(), "value"), **coordinates}
    return dg.TableColumnLineage(
        {name: [dg.TableColumnDep(topic, source) for topic in topics] for name, source in sources.items()}
    )


def column_schema(columns: Columns) -> dg.TableSchema:
    """Convert columns to Dagster's table schema."""
    return dg.TableSchema([dg.TableColumn(name, str(kind)) for name, kind in columns])


def rarer(partitions: int) -> float:
    """Return the factor by which events of this many partitions are less frequent.

    Dagster never deletes events. One is 10 kB in SQLite: an event every 30 s for 1,000 partitions would be 28 GB a day.
    """
    return max(1.0, partitions / 100)
