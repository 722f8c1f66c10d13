"""Find rows with names of headers that Kafka's client would cut: it takes a NUL for their end."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kpipe.batch.batch import Commit
from resources.destinations.kafka_sink.rejected_rows import NAMES, RejectedRows
from resources.destinations.staged_file_check import Proven

__all__ = ["check_headers"]

_BLOCK = 4096


def check_headers(commit: Commit, files: Sequence[Proven], topic: str) -> None:
    """Check that no name of a header contains a NUL.

    Args:
        commit: the commit.
        files: its rows and tombstones.
        topic: the topic to write.

    Raises:
        SchemaConflict: a name does; names the records, so that `errors.constraint` can apply.
    """
    rejected = RejectedRows(commit)
    for file in files:
        if "_kafka_headers" not in file.names:
            continue
        with pq.ParquetFile(file.path) as parquet:
            for block in parquet.iter_batches(
                _BLOCK, columns=[name for name in ("_kafka_headers", *NAMES) if name in file.names]
            ):
                for at in _cut(block.column("_kafka_headers")):
                    rejected.add(block, at, "the name of a header contains a NUL, which Kafka's client cannot write")
    if rejected:
        raise rejected.error(topic, "fix the producer; or leave headers out: metadata")


def _cut(headers: pa.Array) -> list[int]:
    names = pc.struct_field(headers.flatten(), "name")
    found = pc.filter(pc.list_parent_indices(headers), pc.fill_null(pc.match_substring(names, "\0"), False))
    return sorted(set(found.to_pylist()))
