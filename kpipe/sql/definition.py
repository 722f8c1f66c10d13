"""Convert CREATE PIPELINE and INFER PIPELINE to a definition."""

from __future__ import annotations

from collections.abc import Callable

from lark import Token, Tree

from kpipe.definition.pipeline import Pipeline
from kpipe.definition.source import EXTERNAL
from kpipe.sql import source_clauses as source
from kpipe.sql import target_clauses as target
from kpipe.sql.ast import children, names, token, wrong
from kpipe.sql.fields import Fields
from kpipe.sql.source_positions import Places
from kpipe.sql.unsupported_clauses import refuse

__all__ = ["definition"]

_Clause = Callable[[Fields, Tree[Token]], None]


def definition(tree: Tree[Token], text: str) -> tuple[Pipeline, Places]:
    """Return the definition, and the positions of its fields. INFER names pipeline and table after the topic.

    Args:
        tree: the statement.
        text: its text.

    Raises:
        Wrong: a clause is invalid, duplicate or unsupported.
    """
    fields = Fields(text)
    for clause in children(tree):
        if clause.data in _REFUSED:
            refuse(clause, _REFUSED[clause.data])
        if clause.data == "other_source":
            refuse(clause, str(clause.children[0]).upper())
        if clause.data in _CLAUSES:
            _CLAUSES[clause.data](fields, clause)
    source.split_endpoint(fields)
    topics = fields.values["source"]
    sink = fields.values.get("into", {}).get("type") == "kafka"
    if (word := token(tree, "SOURCE")) is not None and not (sink and {*EXTERNAL} & topics.keys()):
        wrong(word, "CREATE SOURCE PIPELINE: expected FILES, TABLE or HTTP, and INTO KAFKA", "remove SOURCE, or write both")
    into = fields.values.setdefault("into", {"table": _plain(str(topics.get("topic") or "table"))})
    if fields.skips_all and not fields.rule:
        into["on_conflict"] = "ignore"
    pipeline_name = names(tree)
    if pipeline_name:
        fields.set(("name",), pipeline_name[0], next(children(tree, "name")), "the pipeline's name")
    else:
        fields.values["name"] = into.get("table") or _plain(str(into["topic"]))
    typed = fields.values.get("transform", {}).get("stdin") == "arrow"
    fields.values.setdefault("format", {}).setdefault("type", "arrow" if typed else "csv")  # csv: SingleStore's default
    target.check_columns(fields)
    if fields.options is not None:
        fields.merge_options(fields.options)
    target.count_booleans(fields)
    return fields.pipeline(tree), Places(text, fields.spans())


def _plain(topic: str) -> str:
    """Return a table name for a topic."""
    text = "".join(sign if sign.isascii() and (sign.isalnum() or sign == "_") else "_" for sign in topic)[:60]
    return text if text and not text[0].isdigit() else f"t_{text}"


# Clauses without effect are missing: AGGREGATOR, ENABLE or DISABLE OUT_OF_ORDER OPTIMIZATION (a partition is always read in
# order) and OFFSETS METADATA GC (kpipe reads no files).
_CLAUSES: dict[str, _Clause] = {
    "kafka": source.kafka,
    "files": source.files,
    "http": source.http,
    "source_table": source.source_table,
    "topics": source.topics,
    "topic_pattern": source.topic_pattern,
    "config": source.config,
    "credentials": source.credentials,
    "beginning": source.beginning,
    "batch_limit": source.batch_limit,
    "retry_options": source.retry_options,
    "stop_on_error": source.stop_on_error,
    "with_transform": source.with_transform,
    "skip_errors": source.skip_errors,
    "replace": source.replace,
    "lookup": source.lookup,
    "options": source.options,
    "into_table": target.into_table,
    "into_kafka": target.into_kafka,
    "also": target.also,
    "format": target.format,
    "schema": target.schema,
    "registry": target.registry,
    "descriptors": target.descriptors,
    "message": target.message,
    "validate": target.validate,
    "fields": target.separators,
    "lines": target.lines,
    "skip_lines": target.skip_lines,
    "null_text": target.null_text,
    "character_set": target.character_set,
    "columns": target.columns,
    "key_columns": target.key_columns,
    "set_columns": target.set_columns,
    "where": target.where,
    "on_duplicate": target.on_duplicate,
}
_REFUSED = {
    "link": "LINK", "resource_pool": "RESOURCE POOL", "ignore": "IGNORE", "into_procedure": "INTO PROCEDURE",
    "errors_handle": "ERRORS HANDLE", "max_errors": "MAX_ERRORS",
}  # fmt: skip
