"""Generate the page of the REST API: its resources from the application, and the keys of sinks from their rules."""

from __future__ import annotations

from pathlib import Path

from kpipe_assets.rest.app import described
from kpipe_assets.rest.sinks import SINKS
from kpipe_assets.rest.translation import COMMON, Draft, Rule
from kpipe_assets.statements.json_rows import MOST_BYTES, MOST_ROWS
from website.reference.markdown import table

__all__ = ["rest"]

#: Values that show what a rule does.
_PROBES = ("1", "true", "x", "a.b", "latest", "org.apache.kafka.connect.json.JsonConverter")
#: Keys that a sink reads together with others.
_TOGETHER = {
    "connection.url": "`into.type`, `into.database`; with the user",
    "connection.user": "user in `into.database`; HTTP: `into.credentials.username`",
    "connection.username": "user in `into.database`",
    "value.converter.schemas.enable": "must be `false` for JSON",
    "errors.tolerance": "`errors`: `fail` for `none`; for `all`, `parse: skip`",
    "errors.deadletterqueue.topic.name": "`errors`: `dead_letter` in place of `skip`, and `topic`",
    "insert.mode": "`into.on_conflict`",
    "table.name.format": "`into.table`",
    "collection.name.format": "`into.table`",
    "pk.mode": "`none`, or `record_value`",
    "pk.fields": "`into.key`",
    "primary.key.mode": "`none`, or `record_value`",
    "primary.key.fields": "`into.key`",
    "auto.evolve": "`schema`: `evolve`, else `fail`",
    "schema.evolution": "`schema`: `evolve` for `basic`, else `fail`",
    "iceberg.tables.evolve-schema-enabled": "`schema`: `evolve`, else `ignore`",
    "iceberg.catalog": "`into.catalog_name`, for `jdbc`",
    "iceberg.catalog.type": "`rest`, or `jdbc` with PostgreSQL",
    "iceberg.catalog.uri": "`into.catalog`",
    "iceberg.catalog.jdbc.user": "user in `into.catalog`",
    "iceberg.catalog.warehouse": "`into.database`",
    "s3.bucket.name": "`into.database`",
    "aws.s3.bucket.name": "`into.database`",
    "topics.dir": "`into.database`",
    "quote.identifiers": "`true` is required for a table's name with upper-case letters in PostgreSQL",
    "replace.null.with.default": "must be `false` for Avro and JSON Schema, which Aiven's sink does not translate",
    "format.output.envelope": "must be `false`",
    "format.output.fields": "must be `value`",
    "batch.json.as.array": "`into.envelope`; required",
    "request.body.format": "`json`; required",
    "headers": "`into.headers`; `NAME:${env:VARIABLE}`: `into.credentials.header.NAME`",
    "header.separator": "separator of `headers`",
}


def _effect(key: str, rule: Rule) -> str:
    """Return what a key does: the field that it sets, why it is rejected, or nothing."""
    if key in _TOGETHER:
        return _TOGETHER[key]
    drafts = [Draft({}) for _ in _PROBES]
    for draft, value in zip(drafts, _PROBES, strict=True):
        rule(draft, key, value)
    paths = [f"`{path}`" for draft in drafts for path in _paths(draft.fields)]
    if paths:
        return ", ".join(dict.fromkeys(paths))
    reasons = [draft.errors[key][0].removeprefix(f"{key}: ") if key in draft.errors else "" for draft in drafts]
    if reasons[0].startswith("expected true or false"):
        return f"`true` is rejected: {reasons[1]}" if reasons[1] else "no effect on rows"
    if all(reasons):
        return f"rejected: {reasons[0]}" if len(set(reasons)) == 1 else reasons[0].partition(": ")[2].replace("'", "`")
    return "no effect on rows"


def _paths(fields: object, prefix: str = "") -> list[str]:
    if not isinstance(fields, dict):
        return [prefix]
    return [path for name, value in fields.items() for path in _paths(value, f"{prefix}.{name}".lstrip("."))]


def rest() -> str:
    """Return the page."""
    resources = [
        (f"`{method.upper()} {path}`", operation["summary"])
        for path, item in described(Path()).items()
        for method, operation in item.items()
    ]
    parts = [
        "# REST API\n",
        "Look up a resource, or the key of a sink's config. [How to use them](../how-to/rest.md).\n",
        "`GET /openapi.json` returns the description in OpenAPI 3.1, generated from the code that serves it. Errors are\n"
        '`{"error_code", "message"}`, as in Connect; those of kpipe have `error`, `hint` and `field`, too.\n',
        table(("resource", "use"), resources),
        "## Limits\n",
        f"Lists have {MOST_ROWS:,} entries at most. The rows of `POST /kpipe/v1/sql` and of a test, and errors, take\n"
        f"{MOST_BYTES >> 20} MiB of JSON at most. If there are more, the response has `truncated: true`. A first row that is\n"
        "larger by itself is an error.\n",
        "Queries run in a process of their own. It may take a quarter of the memory, from 512 MiB to 1.5 GiB, and 20 s. A\n"
        "query that needs more is an error. DuckDB computes up to 2,048 rows at once, whatever a `LIMIT` is. For large rows\n"
        "select fewer columns, or `left(text, 1000)`.\n",
        "## States\n",
        table(
            ("state of the connector", "`kpipe status`"),
            [
                ("RUNNING", "`running`"),
                ("UNASSIGNED", "`waiting`: started, but no process runs it"),
                ("FAILED", "`error`, `needs_operator`; `trace` is the error"),
                ("PAUSED, STOPPED", "`stopped`, `detached`; the last of pause and stop"),
            ],
        ),
        "## Sinks that are translated\n",
        "A key that is not listed is rejected. So is a value that has no counterpart.\n",
        "### Every sink\n",
        table(("key", "becomes"), [(f"`{key}`", _effect(key, rule)) for key, rule in COMMON.items()]),
        "`consumer.override.` may precede `bootstrap.servers` (`source.brokers`), `auto.offset.reset` (`source.start`),\n"
        "`max.poll.records`, `group.id` (`source.group`), and settings of `source.config`.\n",
    ]
    shown: dict[int, list[str]] = {}
    for name, sink in SINKS.items():
        shown.setdefault(id(sink), []).append(name)
    for names in shown.values():
        rules = SINKS[names[0]].rules
        parts += [f"### {', '.join(f'`{name}`' for name in names)}\n"]
        parts += [table(("key", "becomes"), [(f"`{key}`", _effect(key, rule)) for key, rule in rules.items()])]
    return "\n".join(parts)
