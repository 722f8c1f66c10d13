"""Generate the page of `--json`: the fields of each line, compared with the objects that the commands print."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping

from kpipe.batch.batch import Batch, Commit, Committed, Counts
from kpipe.batch.dead_letter_replay import Replayed
from kpipe.verification.verify import Audit
from kpipe_assets.runs.foreground import Totals, batch_line
from website.reference.markdown import sentence, table

__all__ = ["STATUS", "json_output"]

_SUMS = {
    "messages": "records read",
    "rows": "records that became rows; with `at_least_once` or several rows a record, rows",
    "deletes": "records that deleted the row of their key",
    "dead_letters": "records that became dead letters",
    "filtered": "records that gave no row on purpose",
    "gaps": "offsets that hold no record",
    "inserted": "rows that were new in the table",
    "updated": "rows that replaced or changed one",
    "deleted": "rows that were deleted",
    "ignored": "rows that were left out for one of the same key",
    "bytes": "bytes of keys and values read",
}
_RUN = {
    "event": "`batch`",
    "batch": "id of the batch: 32 hexadecimal digits",
    "seq": "number of the commit in the pipeline",
    "ranges": "`[start, end]` by partition; the end is exclusive",
    **_SUMS,
    "seconds": "from the plan to the commit",
    "closed_by": "what ended the batch: `caught_up`, `offsets` or `bytes`",
}
_SUMMARY = {
    "event": "`summary`",
    "pipeline": "name of the pipeline",
    "status": "`caught_up` (also: read to `source.end`), `limit`, `stopped` or `error`",
    "batches": "committed batches",
    **_SUMS,
    "seconds": "of the run, start-up included",
    "positions": "next offset by partition",
}
#: Fields of `kpipe status --json`. A test compares them with what the command prints.
STATUS = {
    "pipeline": "name of the pipeline",
    "state": "[state](statements.md#states)",
    "run_by": "processes that run it now, such as `kpipe serve (pid 4242)`; empty if none does",
    "positions": "next offset by partition",
    "high": "high watermark by partition; empty if the brokers do not answer",
    "lag": "offsets up to the high watermarks that were not read; null if the brokers do not answer",
    "skipped": "skipped ranges",
    "lost": "lost ranges",
    "last_batch": "`batch`, `seq` and `committed` (ISO 8601, UTC) of the newest batch, or null",
    "last_error": "error of the last run, else of the brokers now, or null",
}
_VERIFY = {
    "ok": "whether the table and the ledger agree",
    "span": "committed offsets",
    **{name: text for name, text in _SUMS.items() if name not in ("messages", "bytes")},
    "partitions": "by partition: `ranges`, the same sums, and `rows_found` in the table",
    "lost": "lost ranges, also those that a run has claimed with `at_most_once`",
    "skipped": "skipped ranges",
    "repeated": "ranges that `at_least_once` has read, or will read, more than once",
    "problems": "one sentence for each difference",
}
_REPLAY = {
    "event": "`replay`",
    "pipeline": "name of the pipeline",
    "id": "id of the transaction",
    "seq": "number of its commit",
    "tried": "dead letters",
    "answered": "records that gave rows",
    "rows": "rows that they gave",
    "filtered": "records that gave no row on purpose",
    "failed": "records that are still dead letters",
    "reasons": "the most frequent reasons of those, with their numbers",
}
_BROKER = {
    "running": "whether the local Kafka runs",
    "brokers": "`host:port`, or null",
    "kind": "always `kafka`",
    "version": "of Kafka",
}
_TOPIC = {"topic": "its name", "partitions": "their number", "brokers": "`host:port`"}
_ENVIRONMENT = {
    "path": "the archive",
    "bytes": "its size",
    "seconds": "time to pack it",
    "packages": "digest of the packages in it",
}
_EXAMPLES = {
    "run": """\
{"event": "batch", "batch": "78aaccc4163a4b30924afbc97d2cca76", "seq": 3, "ranges": {"0": [20, 40], "1": [20, 40]}, \
"messages": 40, "rows": 36, "deletes": 0, "dead_letters": 4, "filtered": 0, "gaps": 0, "inserted": 36, "updated": 0, \
"deleted": 0, "ignored": 0, "bytes": 2702, "seconds": 5.11, "closed_by": "caught_up"}
{"event": "summary", "pipeline": "orders", "status": "caught_up", "batches": 1, "messages": 40, "rows": 36, "deletes": 0, \
"dead_letters": 4, "filtered": 0, "gaps": 0, "inserted": 36, "updated": 0, "deleted": 0, "ignored": 0, "bytes": 2702, \
"seconds": 5.543, "positions": {"0": 40, "1": 40}}""",
    "status": """\
{"pipeline": "orders", "state": "stopped", "run_by": [], "positions": {"0": 40, "1": 40}, "high": {"0": 40, "1": 40}, "lag": 0, \
"skipped": [], "lost": [], "last_batch": {"batch": "78aaccc4163a4b30924afbc97d2cca76", "seq": 3, \
"committed": "2026-11-20T19:35:40Z"}, "last_error": null}""",
    "verify": """\
{"ok": true, "span": 40, "rows": 32, "deletes": 0, "dead_letters": 8, "filtered": 0, "gaps": 0, "inserted": 32, "updated": 0, \
"deleted": 0, "ignored": 0, "partitions": {"0": {"ranges": [[0, 40]], "span": 40, "rows": 32, "deletes": 0, \
"dead_letters": 8, "filtered": 0, "gaps": 0, "inserted": 32, "updated": 0, "deleted": 0, "ignored": 0, "rows_found": 32}}, \
"lost": [], "skipped": [], "repeated": [], "problems": []}""",
    "broker": '{"running": true, "brokers": "127.0.0.1:9092", "kind": "kafka", "version": "4.3.1"}',
}


def checked(name: str, described: Mapping[str, str], keys: Iterable[str]) -> str:
    """Return the table of an object's fields.

    Raises:
        LookupError: the fields that are described are not those of the code.
    """
    if list(described) != list(keys):
        wrong = sorted({*described} ^ {*keys}) or ["their order"]
        raise LookupError(f"website/reference/json_output.py: {name} differs from the code: {', '.join(wrong)}")
    return table(("field", "meaning"), rows(described))


def rows(described: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield a row for each field; several fields of the table of counts share one."""
    counts = [field for field, text in described.items() if _SUMS.get(field) == text]
    shared = counts if len(counts) > 1 else []
    for field, text in described.items():
        if field not in shared:
            yield f"`{field}`", sentence(text)
        elif field == shared[0]:
            yield f"`{field}` … `{shared[-1]}`", "[Counts](#counts)."


def json_output() -> str:
    """Return the page."""
    committed = Committed(Commit("0" * 32, "p", ()), 1, Batch("0" * 32, "p", ()))
    replay = ["event", "pipeline", *(field.name for field in dataclasses.fields(Replayed))]

    def example(name: str) -> str:
        return f"```json\n{_EXAMPLES[name]}\n```\n"

    return "\n".join(
        [
            "# JSON output\n",
            "Look up the fields that a command prints with `--json`, one object a line. Nothing else is on stdout.\n",
            'Partitions are numbers as text, `"0"`. With several topics they are `TOPIC:PARTITION`.\n',
            "## Counts\n",
            "Lines of `kpipe run` and `kpipe verify` contain them, in this order:\n",
            table(("field", "meaning"), [(f"`{field}`", sentence(text)) for field, text in _SUMS.items()]),
            "## `kpipe run`\n",
            "One line for each committed batch:\n",
            checked("_RUN", _RUN, batch_line(committed)),
            "With several tables, `targets` has `rows`, `inserted`, `updated`, `deleted` and `ignored` of each further table.\n",
            "The last line is a summary, also after an error:\n",
            checked("_SUMMARY", _SUMMARY, Totals().line("p")),
            example("run"),
            "## `kpipe serve`\n",
            "One line for each committed batch of any pipeline: `pipeline`, and the fields of a batch of `kpipe run`.\n",
            "## `kpipe status`\n",
            "One line for each pipeline:\n",
            checked("STATUS", STATUS, STATUS),
            example("status"),
            "## `kpipe verify`\n",
            checked("_VERIFY", _VERIFY, Audit(0, Counts(), {}, []).to_dict()),
            "With several tables, `targets` has `rows` and `rows_found` of each further table. `given_up` has the ranges of a"
            " webhook's\nbatches that were given up, if there are any.\n",
            example("verify"),
            "## `kpipe errors --retry`\n",
            "One line for each transaction of up to 10,000 dead letters:\n",
            checked("_REPLAY", _REPLAY, replay),
            "## `kpipe batches`, `kpipe errors`\n",
            "One line for each row of [`kpipe_batches_summary`](tables.md#kpipe_batches_summary), and of\n"
            '[`kpipe_errors`](tables.md#kpipe_errors). Bytes that are not UTF-8 are `{"hex": …}`.\n',
            "## `kpipe sql`\n",
            "One line for each row of a query's answer, by column.\n",
            "## `kpipe broker`\n",
            "`start`, `stop` and `status`:\n",
            checked("_BROKER", _BROKER, _BROKER),
            example("broker"),
            "`topic`:\n",
            checked("_TOPIC", _TOPIC, _TOPIC),
            "## `kpipe environment`\n",
            checked("_ENVIRONMENT", _ENVIRONMENT, _ENVIRONMENT),
        ]
    )
