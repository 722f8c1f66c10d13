"""The defects that were fixed, as mutants: each puts one back. A new defect that was fixed gets its mutant here."""

# ruff: noqa: E501 - texts of the sources as they are
from __future__ import annotations

from tests.combinations.mutation import Mutant

__all__ = ["MUTANTS"]

_KAFKA, _HOOK = "resources/destinations/kafka_sink", "resources/destinations/webhook"
_SQL = "resources/destinations/sql"

_FILES_BY_FIRST_ROW = """

def _by_first_row(files: Sequence[Proven]) -> list[Proven]:
    def first(at: int) -> tuple[int, int, int]:
        head = next(blocks(files[at])).slice(0, 1).to_pylist()[0] if files[at].rows else {}
        return head.get("_kafka_partition") or 0, head.get("_kafka_offset") or 0, at

    return [files[at] for _, _, at in sorted(map(first, range(len(files))))]


def check(commit: Commit, writes"""

MUTANTS = (
    Mutant(
        "1",
        "files in the order of their first rows",
        "kafka",
        (
            (
                f"{_KAFKA}/ordered_rows.py",
                "    blocks_of = (block for origin in order.origins for block in order.blocks(origin))\n",
                "    assert order\n    files = _by_first_row((*writes.deletes, *writes.rows))\n"
                "    blocks_of = ((file, rows) for file in files for rows in blocks(file))\n",
            ),
            (f"{_KAFKA}/ordered_rows.py", "\n\ndef check(commit: Commit, writes", _FILES_BY_FIRST_ROW),
            (
                "kpipe/verification/verify.py",
                "        *found.problems,\n",
                "",
            ),
        ),
        r"^C4 .* came behind",
    ),
    Mutant(
        "2",
        "a block of rows takes the topic of its first row",
        "kafka",
        ((f"{_KAFKA}/ordered_rows.py", "        return names\n    only", "        return names[:1] * len(names)\n    only"),),
        r"^C1 mix\w*: m_.*rows, \d+ are due",
    ),
    Mutant(
        "3a",
        "a batch without receipts is planned anew after a refusal",
        "webhook",
        (
            (
                f"{_HOOK}/destination.py",
                "            if pinned.found or sender.taken:",
                "            if len(self._outbox.receipts()) or sender.taken:",
            ),
        ),
        r"^C1 mix\w*: .*(\b[2-9] rows|of no record)",
    ),
    Mutant(
        "3b",
        "max_records of an edited definition applies to a batch on its way",
        "webhook",
        ((f"{_HOOK}/outbox.py", "fixed(into, text), found=True", "into, found=True"),),
        r"^C1 mix\w*: .*(\b[2-9] rows|of no record)",
    ),
    *(
        Mutant(
            f"4 {kind}",
            "bounds of files as Python's dates",
            kind,
            (
                (
                    "resources/destinations/lakehouse/data_files.py",
                    "min(item.min_raw for item in bounds), max(item.max_raw for item in bounds)",
                    "min((item.min, item.min_raw) for item in bounds)[1], max((item.max, item.max_raw) for item in bounds)[1]",
                ),
            ),
            r"^C7 .*(out of range|year)",
        )
        for kind in ("delta", "iceberg", "parquet")
    ),
    Mutant(
        "4 kafka",
        "timestamps of dead letters as Python's dates",
        "kafka",
        (
            (
                f"{_KAFKA}/messages.py",
                '    moments = _micros(block.column("timestamp"))\n',
                '    moments = [m and pa.scalar(m, pa.timestamp("us", "UTC")).value for m in block.column("timestamp").to_pylist()]\n',
            ),
        ),
        r"^C7 .*(out of range|year)",
    ),
    Mutant(
        "5a",
        "starts are compared with those of read lanes",
        "duckdb",
        (
            (
                "kpipe/planning/start_offsets.py",
                "ledger.begun(source)\n",
                "frozenset(lane.start for lane in lanes if lane.kind == READ)\n",
            ),
        ),
        r"InvalidPipeline: source\.start: .* was begun at",
    ),
    Mutant(
        "5b",
        "ends are compared with those of read lanes",
        "duckdb",
        (
            (
                "kpipe/planning/start_offsets.py",
                "        lanes = ledger.of(source)\n        if not lanes or",
                "        lanes = [lane for lane in ledger.of(source) if lane.kind == READ]\n        if not lanes or",
            ),
        ),
        r"InvalidPipeline: source\.end: .* (has been read|ends at)",
    ),
    Mutant(
        "6",
        "offsets may be read behind tombstones of later ones",
        "duckdb",
        (
            (
                "kpipe/planning/reconcile.py",
                "        if is_ordered(self.pipeline):\n",
                "        if is_ordered(self.pipeline) and not changes:\n",
            ),
            ("kpipe/ingest/loop.py", "        check_order(self.pipeline, ledger, snapshot.partitions)\n", ""),
            (
                "kpipe/verification/verify.py",
                "*_ranges(ledger, source, entries), *reappeared(source, entries)]",
                "*_ranges(ledger, source, entries)]",
            ),
        ),
        r"^C3 .* is there, and was deleted",
    ),
    Mutant(
        "7",
        "a dead letter that a CHECK refuses blocks the others",
        "duckdb",
        (
            (
                "kpipe_assets/runs/dead_letter_retry.py",
                "            if stager.refuse(error.refused):\n                parts.insert(0, part)\n            elif not error.by_rows:",
                "            if part:\n                raise\n            elif not error.by_rows:",
            ),
        ),
        r"^C7 a statement fails with SchemaConflict",
    ),
    Mutant(
        "8",
        "rows of the pipeline are those of its newest table",
        "duckdb",
        (
            (
                f"{_SQL}/ledger/multi_table.py",
                "{WRITTEN} AS w WHERE pipeline_name = $1\"\n        f\" AND {dialect.same_name.format('target_table', '$2')}\",",
                '{WRITTEN} AS w WHERE pipeline_name = $1"\n        f" AND $2 = \'{table}\'",',
            ),
        ),
        r"LedgerMismatch: .* rows? ",
    ),
    *(
        Mutant(
            f"9 {kind}",
            "infinite times are written without quotes",
            kind,
            (
                (
                    "resources/destinations/json_documents.py",
                    "    return f\"CASE WHEN isfinite({value}) THEN {written} ELSE '\\\"' || CAST({value} AS VARCHAR) || '\\\"' END\"\n",
                    "    return written\n",
                ),
            ),
            r"^C8 .*:-?infinity",
        )
        for kind in ("kafka", "webhook")
    ),
    Mutant(
        "10",
        "exponents and fractions are capped before they are added",
        "duckdb",
        (
            (
                "resources/native/json.c",
                "power = -(int64_t)(p - point);",
                "power = -(int64_t)(p - point < 100000 ? p - point : 100000);",
            ),
            ("resources/native/json.c", "if (exponent < MOST_EXPONENT) exponent", "if (exponent < 100000) exponent"),
        ),
        r"column x \(DOUBLE\) is",
    ),
    *(
        Mutant(
            f"11 {kind}",
            "old records are sent behind newer ones of their key",
            kind,
            (("kpipe/verification/commit_order.py", f'    if into.type == "{kind}"', f'    if into.type == "no {kind}"'),),
            r"^C4 .* of key",
        )
        for kind in ("kafka", "webhook")
    ),
    Mutant(
        "11 transaction",
        "a batch that outlives its transaction is written again",
        "kafka",
        (
            (
                f"{_KAFKA}/destination.py",
                "            if begun and time.monotonic() - began >= self._into.transaction_timeout_s:\n",
                "            if began < 0:\n",
            ),
        ),
        r"^C7 a batch that outlived its transaction",
    ),
    Mutant(
        "11 mysql",
        "times that MySQL does not have stop a batch",
        "mysql",
        (
            (
                "resources/destinations/value_limits.py",
                '    if kind in ("mysql", "singlestore"):\n',
                '    if kind == "singlestore":\n',
            ),
        ),
        r"^C7 the run stops with DestinationError|^C7 a raw|^C7 the run stops with SchemaConflict",
    ),
    Mutant(
        "12",
        "a column with a default becomes NULL",
        "duckdb",
        (
            (
                "resources/destinations/duckdb/upsert.py",
                'defaults(connection, table) if rule.on_conflict == "update" else {}',
                "{} if defaults else {}",
            ),
        ),
        r"^C3 .*: n is None",
    ),
    Mutant(
        "13 whole",
        "members of a whole Avro record have no names",
        "duckdb",
        (
            (
                "resources/decode/paths/columns.py",
                "names=list(self._names))",
                'names=[f"f{at}" for at in range(len(arrays))])',
            ),
        ),
        r"(?s)^C[257].*type: avro",
    ),
    Mutant(
        "13 map",
        "a value of an Avro map is JSON text in a new column",
        "duckdb",
        (
            (
                "resources/decode/paths/columns.py",
                "        self._inside = [way for way in inside if way.name not in columns and not VARIABLE.fullmatch(way.name)]\n",
                "        self._inside = [way for way in inside if way.name is None]\n",
            ),
        ),
        r"^C2 .*column t ",
    ),
    Mutant(
        "14 column",
        "a value that was left out is unknown in columns of the table only",
        "duckdb",
        (
            (
                "resources/decode/debezium/images.py",
                'if name in self._columns or (self._grows and not name.lower().startswith("_kafka_")))',
                "if name in self._columns)",
            ),
        ),
        r"^C3 .* left out e, which no row",
        of_events=True,
    ),
    Mutant(
        "14 batch",
        "a value that was left out is that of the table's row before the batch",
        "duckdb",
        (
            (
                "resources/destinations/sql/merge/conflict_expressions.py",
                "list_reduce(list(v ORDER BY {order}), lambda",
                "list_reduce(list_slice(list(v ORDER BY {order}), 1, 1) || list_slice(list(v ORDER BY {order}), -1, -1), lambda",
            ),
        ),
        r"^C3 .*column [xbge] ",
        of_events=True,
    ),
)
