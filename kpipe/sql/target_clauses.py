"""Convert the clauses from INTO on: table, formats, mapping, expressions."""

from __future__ import annotations

from itertools import count
from typing import Any

from lark import Token, Tree

from kpipe.definition.exact_floats import HINT, exact_float
from kpipe.sql import clauses
from kpipe.sql.ast import child, children, names, string, strings, token, wrong
from kpipe.sql.fields import Fields
from kpipe.sql.source_clauses import choose, parts_of_endpoint
from kpipe.sql.unsupported_clauses import refuse

__all__ = ["check_columns"]

_ENCODINGS = ("utf8", "utf8mb4", "utf-8", "binary")


def into_table(fields: Fields, tree: Tree[Token]) -> None:
    """Convert INTO TABLE t [KEY (...)] [IN type 'database']."""
    written, key, place = names(next(children(tree, "qualified"))), child(tree, "key"), child(tree, "place")
    if len(written) > 1:
        wrong(tree, "INTO TABLE: expected a table name without a database", f"remove `{written[0]}`, or write IN type 'database'")
    fields.set(("into", "table"), written[0], tree, "INTO TABLE")
    if key is not None:
        fields.set(("into", "key"), names(key), key, "KEY")
    if place is not None:
        fields.set(("into", "type"), names(place)[0], place, "IN")
        for text in strings(place):
            fields.set(("into", "database"), clauses.filled(text, place), place, "IN")


def into_kafka(fields: Fields, tree: Tree[Token]) -> None:
    """Convert INTO KAFKA 'brokers/topic' [KEY (...)]."""
    key = child(tree, "key")
    brokers, topic = parts_of_endpoint(clauses.filled(string(tree), tree), tree)
    for field, value in (("type", "kafka"), ("brokers", brokers), ("topic", topic)):
        fields.set(("into", field), value, tree, "INTO KAFKA")
    if key is not None:
        fields.set(("into", "key"), names(key), key, "KEY")


def format(fields: Fields, tree: Tree[Token]) -> None:
    """Convert FORMAT type [KAFKA KEY], to which the next clauses belong."""
    fields.format = "key_format" if child(tree, "kafka_key") is not None else "format"
    word = token(tree, "JSON", "CSV", "AVRO", "PROTOBUF", "RAW", "DEBEZIUM", "PARQUET")
    assert word is not None
    if word.type == "PARQUET":
        if "files" not in fields.values["source"] or fields.format != "format":
            refuse(tree, "FORMAT PARQUET")
        fields.set(("source", "files", "type"), "parquet", tree, "FORMAT")
        fields.set(("format", "type"), "json", tree, "FORMAT PARQUET")
        return
    clause = "FORMAT" if fields.format == "format" else "FORMAT ... KAFKA KEY"
    fields.set((fields.format, "type"), word.type.lower(), tree, clause)


def schema(fields: Fields, tree: Tree[Token]) -> None:
    """Convert SCHEMA '...'."""
    fields.option("schema", string(tree), tree, "SCHEMA")


def registry(fields: Fields, tree: Tree[Token]) -> None:
    """Convert SCHEMA REGISTRY 'host:port'."""
    fields.option("registry", clauses.filled(string(tree), tree), tree, "SCHEMA REGISTRY")


def descriptors(fields: Fields, tree: Tree[Token]) -> None:
    """Convert DESCRIPTORS 'file'."""
    fields.option("descriptors", string(tree), tree, "DESCRIPTORS")


def message(fields: Fields, tree: Tree[Token]) -> None:
    """Convert MESSAGE 'full.name'."""
    fields.option("message", string(tree), tree, "MESSAGE")


def validate(fields: Fields, tree: Tree[Token]) -> None:
    """Convert VALIDATE."""
    fields.option("validate", True, tree, "VALIDATE")


def separators(fields: Fields, tree: Tree[Token]) -> None:
    """Convert FIELDS or COLUMNS: TERMINATED, ENCLOSED, ESCAPED BY."""
    for part in children(tree):
        field = {"terminated": "delimiter", "enclosed": "quote", "escaped": "escape"}[part.data]
        fields.option(field, string(part), part, f"FIELDS {part.data.upper()} BY")


def lines(fields: Fields, tree: Tree[Token]) -> None:
    """Convert LINES: TERMINATED, STARTING BY."""
    for part in children(tree):
        field = {"terminated": "line_end", "starting": "line_start"}[part.data]
        fields.option(field, string(part), part, f"LINES {part.data.upper()} BY")


def skip_lines(fields: Fields, tree: Tree[Token]) -> None:
    """Convert IGNORE n LINES."""
    number = token(tree, "INT")
    assert number is not None
    fields.option("skip_lines", clauses.number(number), tree, "IGNORE LINES")


def null_text(fields: Fields, tree: Tree[Token]) -> None:
    """Convert NULL DEFINED BY '...' [OPTIONALLY ENCLOSED]."""
    fields.option("null", string(tree), tree, "NULL DEFINED BY")
    if child(tree, "optionally_enclosed") is not None:
        fields.option("null_quoted", True, tree, "OPTIONALLY ENCLOSED")


def character_set(_: Fields, tree: Tree[Token]) -> None:
    """Check CHARACTER SET: only UTF-8 is supported."""
    encoding = (*names(tree), *strings(tree))[0]
    if encoding.lower() not in _ENCODINGS:
        wrong(tree, f"CHARACTER SET {encoding} is not supported: kpipe reads UTF-8", "convert the records, or write FORMAT RAW")


def columns(fields: Fields, tree: Tree[Token]) -> None:
    """Convert (column, @variable) of CSV, or (column <- path DEFAULT value)."""
    mapping: dict[str, Any] = {}
    listed: list[str] = []
    for column in children(tree):
        target = fields.target(next(children(column, "target")))
        if target.startswith("@") and child(column, "path") is None:
            _spare(listed, target)
        fields.part((fields.format, "columns", target), column)
        if target.lower() in {name.lower() for name in (*mapping, *listed)}:
            wrong(column, f"duplicate column {target}")
        path, default = child(column, "path"), child(column, "default")
        if path is None:
            listed.append(target)
        elif default is None:
            mapping[target] = fields.slice(path)
        else:
            mapping[target] = {"path": fields.slice(path), "default": _literal(default)}
    if mapping and listed:
        wrong(tree, f"{listed[0]} has no path, {next(iter(mapping))} has one", "write `column <- path` for all or for none")
    fields.option("mapping" if mapping else "fields", mapping or listed, tree, "the list of columns")


def _spare(listed: list[str], variable: str) -> None:
    """Rename the earlier of two equal variables in a list: `@dummy` may name several unused fields.

    The last one keeps the name, because expressions read its value, as in MySQL.
    """
    folded = [name.lower() for name in listed]
    if variable.lower() in folded:
        index = folded.index(variable.lower())
        listed[index] = next(name for number in count(1) if (name := f"{listed[index]}_{number}").lower() not in folded)


def key_columns(fields: Fields, tree: Tree[Token]) -> None:
    """Convert KAFKA KEY (...) after the value's format: the key has the same format with its own columns."""
    fields.format = "key_format"
    columns(fields, next(children(tree, "columns")))
    fields.format = "format"
    fields.keyed = True


# Options that a value and its key do not share.
_OWN = ("mapping", "booleans", "fields", "schema", "message", "skip_lines")


def check_columns(fields: Fields) -> None:
    """Check that lists of columns fit their formats.

    Raises:
        Wrong: one does not fit.
    """
    if fields.keyed:
        shared = {name: value for name, value in fields.values["format"].items() if name not in _OWN}
        fields.values["key_format"] = {**shared, **fields.values["key_format"]}
    for group in ("format", "key_format"):
        options = fields.values.get(group, {})
        type_name = str(options.get("type", ""))
        if "mapping" in options and type_name == "csv":
            node = fields.place(group, "mapping")
            wrong(node, "`column <- path` is not supported for CSV", "add FORMAT JSON, or write (column, @variable, ...)")
        if "fields" in options and type_name != "csv":
            node = fields.place(group, "fields")
            wrong(node, f"a list of columns without paths is only for CSV, not for {type_name.upper()}", "write `column <- path`")


def count_booleans(fields: Fields) -> None:
    """Set the default of `booleans` for statements: JSON's `true` and `false` at a path are 1 and 0, as in SingleStore."""
    for group in ("format", "key_format"):
        options = fields.values.get(group)
        if not isinstance(options, dict) or options.get("schemas_enable"):
            continue
        if options.get("type", "json") == "json" and "mapping" in options:
            options.setdefault("booleans", "number")


def set_columns(fields: Fields, tree: Tree[Token]) -> None:
    """Convert SET column = expression."""
    fields.set(("set",), fields.assignments(tree, "SET", ("set",)), tree, "SET")


def where(fields: Fields, tree: Tree[Token]) -> None:
    """Convert WHERE expression."""
    fields.set(("where",), fields.expression(tree), tree, "WHERE")


def on_duplicate(fields: Fields, tree: Tree[Token]) -> None:
    """Convert ON DUPLICATE KEY UPDATE column = expression, or `*` for every column of the new row."""
    clause = "ON DUPLICATE KEY UPDATE"
    choose(fields, clause, tree)
    if token(tree, "EVERY") is None:
        assigned = fields.assignments(tree, clause, ("into", "update"))
        fields.set(("into", "update"), assigned, tree, clause)


def also(fields: Fields, tree: Tree[Token]) -> None:
    """Convert ALSO INTO TABLE t [KEY (...)] [SETTINGS '{...}'] and its clauses, which define another table."""
    own = Fields(fields.text)
    into_table(own, tree)
    for clause in children(tree):
        if clause.data in _ALSO:
            _ALSO[clause.data](own, clause)
    more = child(tree, "settings")
    options = clauses.json_object(more, "SETTINGS") if more is not None else {}
    values = {**own.values["into"], **{name: value for name, value in own.values.items() if name != "into"}}
    clashes = [name for name in options if name in values]
    if clashes:
        wrong(more or tree, f"SETTINGS: another clause sets {clashes[0]}, too", "remove one of them")
    tables = fields.values.get("also", [])
    for path, node in own.nodes():
        fields.part(("also", str(len(tables)), *(path[1:] if path[0] == "into" else path)), node)
    fields.forget("also")
    fields.set(("also",), [*tables, {**values, **options}], tree, "ALSO INTO TABLE")


_ALSO = {"set_columns": set_columns, "where": where, "on_duplicate": on_duplicate}


def _literal(tree: Tree[Token]) -> Any:
    for text in strings(tree):
        return text
    word = token(tree)
    assert word is not None
    if word.type != "NUMBER":
        return {"NULL": None, "TRUE": True, "FALSE": False}[word.type]
    if len(word) > 300:
        wrong(word, "DEFAULT: the number has too many digits")
    try:
        return int(word) if word.lstrip("-").isdigit() else exact_float(word)
    except ValueError as error:
        wrong(word, f"DEFAULT {error}", HINT)
