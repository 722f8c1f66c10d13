"""Generate the page of `--json`: the fields of each line, compared with the objects that the commands print."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping

from kpipe.batch.batch import Batch, Commit, Committed, Counts
from kpipe.batch.dead_letter_replay import Replayed
from kpipe.maintenance.facts import Maintained
from kpipe.offsets import Range
from kpipe.provenance.as_of import Content, Match
from kpipe.provenance.explain import Answer, Fate
from kpipe.provenance.facts import CommitInfo, Reading
from kpipe.topics import PartitionId, TopicId
from kpipe.verification.verify import Audit, Entry
from kpipe_assets.provenance.tables_as_of import AsOf
from kpipe_assets.provenance.tables_as_of import to_dict as as_of_line
from kpipe_assets.provenance.trace_report import to_dict
from kpipe_assets.provenance.tracing import Traced
from kpipe_assets.runs.foreground import Totals, batch_line
from kpipe_assets.telemetry.run_log import log_line
from website.reference.markdown import sentence, table

__all__ = ["ADOPT", "AUDIT", "AUDIT_BY_KEY", "CHAOS", "STATUS", "json_output"]

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
    "closed_by": "what ended the batch: `caught_up`, `offsets`, `bytes` or `transaction`",
}
_MAINTAIN = {
    "event": "`maintained`",
    "pipeline": "name of the pipeline",
    "dry_run": "whether files were only counted",
    "files_before": "data files of the table",
    "files_after": "data files of the table",
    "deletes_before": "files of deletes, or deletion vectors",
    "deletes_after": "files of deletes, or deletion vectors",
    "rewritten": "data files that were replaced, or would be",
    "written": "data files that replace them",
    "rows": "rows in the replaced files; each was compared",
    "bytes": "size of the replaced files",
    "commits": "commits of this run",
    "overtaken": "attempts that another commit has overtaken",
    "left": "groups of files that other commits changed each time",
    "expired": "snapshots that were expired",
    "removed": "files that were removed",
    "waiting": "files that no snapshot has, and that stay until the retention time has passed",
}
_SUMMARY = {
    "event": "`summary`",
    "pipeline": "name of the pipeline",
    "status": "`caught_up` (also: read to `source.end`), `limit`, `stopped` or `error`",
    "reason": "`exchange`: the run stopped because `kpipe rebuild` has exchanged its table. Otherwise missing",
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
    "dead_letter_topic": "`topic`, `records` that it received and `error` of the last run, or null: no `errors.topic`",
}
_LOGS = {
    "time": "ISO 8601, UTC",
    "level": "`info`, `warning` or `error`",
    "pipeline": "name of the pipeline",
    "batch": "id of the batch, or empty",
    "run": "id of the run: Dagster's, or of a process; empty for `published`",
    "event": "what happened, see [the events](../how-to/operate/observe.md#the-log)",
    "message": "one sentence",
}
_VERIFY = {
    "ok": "whether the table and the ledger agree",
    "span": "committed offsets",
    **{name: text for name, text in _SUMS.items() if name not in ("messages", "bytes")},
    "partitions": "by partition: `ranges`, the same sums, and `rows_found` in the table",
    "lost": "lost ranges, also those that a run has claimed with `at_most_once`",
    "skipped": "skipped ranges",
    "repeated": "ranges that were read, or will be read, more than once: by `at_least_once` or `REREAD`",
    "problems": "one sentence for each difference",
}
#: Fields of `kpipe adopt --json`. A test compares them with what the command prints.
ADOPT = {
    "pipeline": "name of the pipeline",
    "from": "source of the position, in words",
    "partitions": "list of `topic`, `topic_id`, `partition`, `position` (first offset to read), `named` (whether the source has"
    " the partition), `log_start`, `end` (last stable offset), `high` (high watermark) and `lag`",
    "notes": "one sentence for each fact about the position",
    "problems": "one sentence for each reason not to use it",
    "applied": "whether the ledger has the position",
    "commit": "number of the commit that wrote it, or null",
}
#: Fields of `kpipe audit --json`. A test compares them with what the command prints.
AUDIT = {
    "verdict": "`explained`, `unexplained` or `unexplained unless filtered`",
    "offsets": "audited offsets",
    "outcomes": "offsets by outcome",
    "partitions": "by partition: `start`, `end`, `after_last_row` and offsets by outcome",
    "rows": "rows of the table: `total`, `inside` the range, and those outside of it",
    "problems": "one sentence for each class of unexplained offsets or rows",
    "misnumbered": "with `--ordinality-column`, the first 20 records whose rows are not numbered once each",
    "findings": "the first 20 unexplained ranges",
    "table": "name of the table",
    "snapshot": "its state that was read",
    "read": "time at which it was read, in UTC",
    "columns": "columns of partition, offset and topic",
    "report": "folder of the report",
}
#: Fields of `kpipe chaos --json`. A test compares them with what the command prints.
CHAOS = {
    "event": "`report`",
    "pipeline": "name of the pipeline",
    "verdict": "`proven`, `not proven`, `inconclusive` or `interrupted`",
    "reason": "why it is inconclusive; empty otherwise",
    "seed": "of the faults",
    "version": "of kpipe",
    "seconds": "duration of all",
    "offsets": "offsets that each copy loads",
    "window": "`[start, end]` by partition; the end is exclusive",
    "batch_offsets": "offsets of one partition in a batch",
    "copies": "the copies: names, place, batches, the object of `kpipe verify --json`, audits by topic, problems",
    "faults": "in order: kind, failpoint or process, time, and the runs with exit status, batches, rows and last message",
    "findings": "reasons why it is not proven: `kind`, `copy`, `text` and `samples` of records that differ",
    "folder": "of the report and of the runs' output",
}
AUDIT_BY_KEY = {
    "verdict": "`explained` or `unexplained`",
    "outcomes": "keys by [outcome](../how-to/operate/audit-by-key.md#read-the-result); with `--rows all`, records and rows",
    "records": "records of the range, `later` ones, `tombstones`, `unreadable`, `declared`, `foreign` (of a compacted topic: of"
    " another key in Kafka), and offsets `lost` to retention",
    "rows": "`total`, and those `without_key`",
    "problems": "one sentence for each class of what is unexplained",
    "findings": "the first 20 of each outcome: `key`, `outcome`, `count`, `columns` that differ, `partition` and `offset` of the"
    " record, `rows`",
    "unreadable": "the first 20 records whose key cannot be read: `partition`, `offset`, `reason`",
    "table": "name of the table",
    "snapshot": "its state that was read",
    "read": "time at which it was read, in UTC",
    "key": "columns of the key",
    "compared": "compared columns",
    "not_compared": "other columns",
    "fields_without_column": "fields of records that no column is compared with, 100 at most",
    "ranges": "`[start, end]` by partition",
    "report": "folder of the report",
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
_TRACE = {
    "pipeline": "name of the pipeline",
    "topic": "the topic",
    "partition": "number of the partition",
    "offset": "the offset",
    "cluster_id": "id of the cluster",
    "topic_id": "id of the topic; a topic that was recreated has a line for each id",
    "state": "[state](../how-to/operate/trace.md#trace-an-offset); `read` if there is a reading whose rows were not cleared",
    "determined": "whether each reading has a decision",
    "readings": "in order of commit, see below",
    "pending": "whether the offset will be read, or read again",
    "behind": "offsets before it, if it is pending; else null",
    "lane": "`kind`, `start`, `next` and `end` of the ledger's lane that contains it, or null",
    "rereads": "commits that demanded another reading",
    "given_up": "commits that gave up a batch with it, of which a receiver may have taken a part",
    "decisions": "newest decisions about the partition; 20 at most",
    "kafka": "`log_start`, `end`, `high` and `present` (whether Kafka has a record there), or null: the brokers were not queried",
    "recreated": "whether the topic has another id now, or does not exist",
    "kafka_error": "error of the brokers, or null",
}
_READING = {
    "batch": "id of the batch",
    "seq": "number of the commit",
    "kind": "kind of the commit",
    "run_id": "id of the run",
    "version": "of definition and program",
    "committed": "ISO 8601, UTC, or null",
    "note": "text of a decision, or null",
    "range": "`[start, end]` of the batch in the partition; the end is exclusive",
    "rows": "counts of the range: this and the next fields",
    "deletes": "as in counts",
    "dead_letters": "as in counts",
    "filtered": "as in counts",
    "gaps": "as in counts",
    "given": "records that may have given any number of rows; 0 if each gives one row at most",
    "inserted": "as in counts",
    "updated": "as in counts",
    "deleted": "as in counts",
    "ignored": "as in counts",
    "decision": "[decision](../how-to/operate/trace.md#trace-an-offset), or null: not certain",
    "possible": "decisions that are not excluded",
    "tables": "tables that the batch has written",
    "rows_found": "by table, rows with the coordinates of the offset that no other reading can have written",
    "rows_unattributed": "the same, where another reading may have written them",
    "outcome": "of a row that is not in its table: `ignored`, `superseded`, `missing` or `unknown`; else null",
    "errors": "dead letters: `stage`, `reason`, and `version` that rejected it last",
    "retried": "`no`, `failed_again`, or `unknown`: a retry has run since",
    "cleared": "whether the rows were cleared since",
    "snapshot": "Delta version or Iceberg snapshot id of the commit, as text, or null",
}
_AS_OF = {
    "pipeline": "name of the pipeline",
    "seq": "number of the commit; null: none fits",
    "batch": "id of its batch, or null",
    "committed": "ISO 8601, UTC, or null",
    "next_seq": "number of the next commit with rows, or null",
    "exact": "whether the wanted offsets were in, once each, and no others of their partitions",
    "starts": "first offset of the ledger by partition: lower ones were never read",
    "in": "by `TOPIC:PARTITION`, ranges that were in; the end is exclusive",
    "missing": "wanted ranges that were not in",
    "beyond": "ranges that were in and not wanted",
    "repeated": "wanted ranges that were read more than once",
    "tables": "for each table `table`, `snapshot`, `queries` by engine, `narrowed_snapshot`, `narrowed` (queries with a"
    " condition that leaves the wanted offsets), `statement` (a restriction)",
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
"committed": "2026-11-20T19:35:40Z"}, "last_error": null, "dead_letter_topic": null}""",
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


def _traced() -> Traced:
    """Return an offset that a batch has read, to name its fields."""
    source = PartitionId(TopicId("c", "t", "web"), 0)
    entry = Entry("0" * 32, source, Range(0, 1), Counts())
    return Traced("p", Answer(source, 0, "read", (Fate(Reading(entry, CommitInfo(entry.batch, 1)), ()),)))


def _as_of() -> AsOf:
    return AsOf("p", Match(Content(), {}, {}, {}), None, None, {}, ())


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
            "With several tables, `targets` has `rows`, `inserted`, `updated`, `deleted` and `ignored` of each further table."
            " With a table for each topic, it has those of all tables of a batch that writes more than one.\n",
            "The last line is a summary, also after an error:\n",
            checked("_SUMMARY", _SUMMARY, Totals(reason="exchange").line("p")),
            example("run"),
            "## `kpipe serve`\n",
            "One line for each committed batch of any pipeline: `pipeline`, and the fields of a batch of `kpipe run`.\n",
            "## `kpipe status`\n",
            "One line for each pipeline:\n",
            checked("STATUS", STATUS, STATUS),
            example("status"),
            "## `kpipe logs`\n",
            "One line for each event of a run. Some have numbers, too. `KPIPE_LOG=json` writes the same lines to stderr.\n",
            checked("_LOGS", _LOGS, log_line("p", "started", "started")),
            "## `kpipe verify`\n",
            checked("_VERIFY", _VERIFY, Audit(0, Counts(), {}, []).to_dict()),
            "With several tables, `targets` has `rows` and `rows_found` of each further table; with a table for each topic, of"
            " each. `given_up` has the ranges of a"
            " webhook's\nbatches that were given up, if there are any. After `kpipe adopt`, `adopted` has the ranges that\n"
            "another loader has read, and `adopted_from` the source of its position.\n"
            "With `errors.topic`, `dead_letter_topic` has `topic`, `records` that it received, `waiting` and `error`.\n"
            "`replaced` has ranges below which a log was cut, after SET OFFSETS. `unproven` has ranges that several batches\n"
            "have read, and whose rows could only be counted: an earlier version recorded no sum of their offsets, or rows have\n"
            "none.\n",
            example("verify"),
            "## `kpipe trace`\n",
            "One line for each topic id of the offset:\n",
            checked("_TRACE", _TRACE, to_dict(_traced())),
            "A reading:\n",
            checked("_READING", _READING, to_dict(_traced())["readings"][0]),
            "With `--where`, one line for each row: `row` with `topic`, `partition` and `offset`, and `offsets`, a list of such"
            " objects.\n",
            "## `kpipe as-of`\n",
            checked("_AS_OF", _AS_OF, as_of_line(_as_of())),
            "## `kpipe adopt`\n",
            checked("ADOPT", ADOPT, ADOPT),
            "## `kpipe rebuild`\n",
            "The lines of `kpipe run`, then a `comparison`: `live` and `rebuilt` as of `kpipe verify`, `waiting` and `missing`"
            " offsets,\nand with `--differences` coordinates (topic, partition, offset) by table. With `--exchange`, `exchanged`"
            " with `seq`.\n",
            "## `kpipe maintain`\n",
            checked("_MAINTAIN", _MAINTAIN, ["event", "pipeline", "dry_run", *Maintained().to_dict()]),
            "## `kpipe audit`\n",
            checked("AUDIT", AUDIT, AUDIT),
            "With `--key`:\n",
            checked("AUDIT_BY_KEY", AUDIT_BY_KEY, AUDIT_BY_KEY),
            "## `kpipe chaos`\n",
            checked("CHAOS", CHAOS, CHAOS),
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
