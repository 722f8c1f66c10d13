"""Convert the clauses before INTO: source, batches, programs, and error policies."""

from __future__ import annotations

from lark import Token, Tree

from kpipe.definition.lookups import KINDS
from kpipe.definition.pipeline import not_brokers
from kpipe.sql import clauses
from kpipe.sql.ast import child, children, names, string, strings, token, wrong
from kpipe.sql.fields import Fields

__all__ = ["choose", "parts_of_endpoint", "split_endpoint"]

_RULES = {"REPLACE": "replace", "SKIP DUPLICATE KEY ERRORS": "ignore", "ON DUPLICATE KEY UPDATE": "update"}


def kafka(fields: Fields, tree: Tree[Token]) -> None:
    """Convert KAFKA 'brokers/topic'; with TOPICS or TOPIC PATTERN, 'brokers'."""
    fields.endpoint = clauses.filled(string(tree), tree), tree
    fields.set(("source", "brokers"), fields.endpoint[0], tree, "KAFKA")


def files(fields: Fields, tree: Tree[Token]) -> None:
    """Convert FILES 'path with wildcards'."""
    fields.set(("source", "files", "path"), clauses.filled(string(tree), tree), tree, "FILES")


def http(fields: Fields, tree: Tree[Token]) -> None:
    """Convert HTTP 'url'."""
    fields.set(("source", "http", "url"), clauses.filled(string(tree), tree), tree, "HTTP")


def source_table(fields: Fields, tree: Tree[Token]) -> None:
    """Convert TABLE name IN type 'database' ORDER BY column; for delta and iceberg without ORDER BY."""
    written, place = names(next(children(tree, "qualified"))), child(tree, "place")
    if place is None or not strings(place):
        wrong(
            tree, "TABLE: the database is missing", "write TABLE name IN postgres 'postgresql://user@host/database' ORDER BY id"
        )
    type, order = names(place)[0], names(tree)
    lake = type in ("delta", "iceberg")
    if lake == bool(order):
        what = "expected no ORDER BY, as new snapshots are read" if lake else "ORDER BY is missing"
        wrong(tree, f"TABLE: {what}", "write TABLE name IN delta '/folder'; or TABLE name IN postgres '…' ORDER BY id")
    given = [("name", ".".join(written)), ("type", type), *(("column", name) for name in order)]
    for field, value in (*given, ("database", clauses.filled(string(place), place))):
        fields.set(("source", "lake" if lake else "table", field), value, tree, "TABLE")


def split_endpoint(fields: Fields) -> None:
    """Split KAFKA into brokers and topic, after all clauses are known."""
    source = fields.values["source"]
    if fields.endpoint is None or "topics" in source or "topic_pattern" in source:
        return
    text, tree = fields.endpoint
    brokers, topic = parts_of_endpoint(text, tree, "or add TOPICS ('a', 'b')")
    source["brokers"] = brokers
    many = [part.strip() for part in topic.split(",")]
    field = "topics" if len(many) > 1 else "topic"
    fields.set(("source", field), many if len(many) > 1 else topic, tree, "KAFKA")


def parts_of_endpoint(text: str, tree: Tree[Token], otherwise: str = "") -> tuple[str, str]:
    """Split 'brokers/topic'."""
    brokers, slash, topic = text.rpartition("/")
    if not slash or not topic:
        wrong(tree, "KAFKA: the topic is missing", ", ".join(filter(None, ("write 'host:port/topic'", otherwise))))
    if not_brokers(brokers):
        wrong(tree, f"KAFKA: {brokers} is not a broker's address: expected host:port", "write 'host:port,host:port/topic'")
    return brokers, topic


def topics(fields: Fields, tree: Tree[Token]) -> None:
    """Convert TOPICS ('a', 'b')."""
    fields.set(("source", "topics"), strings(tree), tree, "TOPICS")


def topic_pattern(fields: Fields, tree: Tree[Token]) -> None:
    """Convert TOPIC PATTERN 'regular expression'."""
    fields.set(("source", "topic_pattern"), string(tree), tree, "TOPIC PATTERN")


def config(fields: Fields, tree: Tree[Token]) -> None:
    """Convert CONFIG."""
    fields.set(("source", "config"), clauses.config(tree), tree, "CONFIG")


def credentials(fields: Fields, tree: Tree[Token]) -> None:
    """Convert CREDENTIALS."""
    fields.set(("source", "credentials"), clauses.credentials(tree), tree, "CREDENTIALS")


def beginning(fields: Fields, tree: Tree[Token]) -> None:
    """Convert OFFSETS start [TO end]."""
    end = child(tree, "end")
    fields.set(("source", "start"), clauses.moment(next(children(tree, "moment"))), tree, "OFFSETS")
    if end is not None:
        fields.set(("source", "end"), clauses.moment(next(children(end, "moment"))), end, "TO")


def batch_limit(fields: Fields, tree: Tree[Token]) -> None:
    """Convert BATCH_INTERVAL, MAX_..._PER_BATCH..."""
    field, value = clauses.batch_limit(tree)
    fields.set(("batch", field), value, tree, str(tree.children[0]).upper())


def retry_options(fields: Fields, tree: Tree[Token]) -> None:
    """Convert RETRY_OPTIONS; its `max_retries` overrides MAX_RETRIES_PER_BATCH_PARTITION."""
    for field, value in clauses.retries(tree).items():
        if field == "max_retries":
            fields.forget("batch", field)
        fields.set(("batch", field), value, tree, "RETRY_OPTIONS")


def stop_on_error(fields: Fields, tree: Tree[Token]) -> None:
    """Convert STOP_ON_ERROR ON or OFF."""
    fields.set(("errors", "batch"), clauses.stop_on_error(tree), tree, "STOP_ON_ERROR")


def with_transform(fields: Fields, tree: Tree[Token]) -> None:
    """Convert WITH TRANSFORM (...)."""
    inner = next(children(tree, "transform"))
    fields.set(("transform",), clauses.transform(inner), inner, "WITH TRANSFORM")


def skip_errors(fields: Fields, tree: Tree[Token]) -> None:
    """Convert SKIP ... ERRORS: invalid records become dead letters; of rows with the same key, the first is kept."""
    word = token(tree)
    assert word is not None
    errors = fields.values.setdefault("errors", {})
    if word.type in ("ALL", "PARSER"):
        errors["parse"] = "dead_letter"
    if word.type in ("ALL", "CONSTRAINT"):
        errors["constraint"] = "dead_letter"
    if word.type == "DUPLICATE":
        choose(fields, "SKIP DUPLICATE KEY ERRORS", tree)
    fields.skips_all = fields.skips_all or word.type == "ALL"


def replace(fields: Fields, tree: Tree[Token]) -> None:
    """Convert REPLACE."""
    choose(fields, "REPLACE", tree)


def choose(fields: Fields, clause: str, tree: Tree[Token]) -> None:
    """Set the clause that defines what happens to a row whose key exists; only one is allowed."""
    if fields.rule:
        wrong(tree, f"duplicate clause: {clause}" if fields.rule == clause else f"{fields.rule} and {clause} exclude each other")
    fields.rule = clause
    fields.set(("into", "on_conflict"), _RULES[clause], tree, clause)


def lookup(fields: Fields, tree: Tree[Token]) -> None:
    """Convert LOOKUP name KEY (...) FROM 'file' | TABLE name | QUERY '...' | URL '...' [SETTINGS '{...}']."""
    own, *table = names(tree)
    key, more = child(tree, "key"), child(tree, "settings")
    word = token(tree, "TABLE", "QUERY", "URL")
    kind = word.type.lower() if word is not None else "path"
    assert key is not None
    given = clauses.json_object(more, "SETTINGS") if more is not None else {}
    said = [field for field in (*KINDS, "key") if field in given]
    if said:
        wrong(more or tree, f"SETTINGS: {said[0]} has its own clause", "write LOOKUP name KEY (column) FROM ...")
    if isinstance(given.get("credentials"), dict):
        given["credentials"] = {item: clauses.credential(tree, item, value) for item, value in given["credentials"].items()}
    found = {kind: table[0] if table else clauses.filled(string(tree), tree), "key": names(key), **given}
    fields.set(("lookups", own), found, tree, f"LOOKUP {own}")


def options(fields: Fields, tree: Tree[Token]) -> None:
    """Record OPTIONS, which are merged after all other clauses."""
    if fields.options is not None:
        wrong(tree, "duplicate clause: OPTIONS")
    fields.options = tree
