"""Convert a parsed statement to its value."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from lark import Token, Tree

from kpipe.offsets import Range
from kpipe.sql import clauses, statements
from kpipe.sql.ast import child, children, names, span, string, token, wrong
from kpipe.sql.definition import definition
from kpipe.sql.source_positions import Places
from kpipe.sql.unsupported_clauses import refuse

__all__ = ["build"]

_Tree = Tree[Token]


def build(tree: _Tree, text: str) -> statements.Statement:
    """Convert a parsed statement.

    Args:
        tree: the statement as the grammar parses it.
        text: the text of the statement.

    Raises:
        Wrong: a clause is invalid or unsupported.
    """
    return _BUILDERS[tree.data](tree, text)


def _create(tree: _Tree, text: str) -> statements.Create:
    pipeline, places = definition(tree, text)
    replace, keep = child(tree, "or_replace") is not None, child(tree, "if_not_exists") is not None
    if replace and keep:
        wrong(child(tree, "if_not_exists"), "OR REPLACE and IF NOT EXISTS exclude each other", "remove one of them")
    return statements.Create(pipeline, replace, keep, places)


# Rejected changes by rule, with their names in messages.
_UNSUPPORTED_CHANGES = {
    "fields": "FIELDS", "lines": "LINES", "resource_pool": "RESOURCE POOL", "offset_cursor": "OFFSET CURSOR",
    "snapshots": "BATCH_MATCHES_SNAPSHOT", "other_link": "LINK", "drop_file": "DROP FILE",
}  # fmt: skip


def _alter(tree: _Tree, text: str) -> statements.Alter:
    changes: list[statements.Change] = []
    spans: dict[tuple[str, ...], tuple[int, int]] = {}
    for item in children(tree):
        if item.data != "name":
            item_changes = list(_changes(item))
            spans |= {change.path: span(item) for change in item_changes if isinstance(change, statements.SetField)}
            changes += item_changes
    spans[("pipeline",)] = span(tree)
    return statements.Alter(names(tree)[0], tuple(changes), Places(text, spans))


def _changes(tree: _Tree) -> Iterator[statements.Change]:
    match tree.data:
        case "set_offsets":
            moment = clauses.moment(next(children(tree, "moment")))
            yield statements.SetOffsets(moment, token(tree, "REREAD") is not None)
        case "reload":
            lookups = token(tree, "LOOKUPS") is not None
            yield statements.ReloadLookups() if lookups else statements.ReloadTransform()
        case "drop_partition":
            number = clauses.partition(next(children(tree, "partition")))
            yield statements.DropPartition(number, token(tree, "REREAD") is not None)
        case "drop_orphans":
            yield statements.DropOrphans()
        case _ if tree.data in _UNSUPPORTED_CHANGES:
            refuse(tree, _UNSUPPORTED_CHANGES[tree.data])
        case "ordering" | "collecting":  # no effect, see definition.py
            pass
        case _:
            yield from _settings(tree)


def _settings(tree: _Tree) -> Iterator[statements.SetField]:
    match tree.data:
        case "transform":
            yield statements.SetField(("transform",), clauses.transform(tree))
        case "config":
            yield statements.SetField(("source", "config"), clauses.config(tree))
        case "credentials":
            yield statements.SetField(("source", "credentials"), clauses.credentials(tree))
        case "one_config":
            key = clauses.setting_name(tree)
            yield statements.SetField(("source", "config", key), clauses.setting(tree, key, string(tree)))
        case "one_credential":
            key = clauses.setting_name(tree)
            yield statements.SetField(("source", "credentials", key), clauses.credential(tree, key, string(tree)))
        case "batch_limit":
            field, value = clauses.batch_limit(tree)
            yield statements.SetField(("batch", field), value)
        case "retry_options":
            for field, value in clauses.retries(tree).items():
                yield statements.SetField(("batch", field), value)
        case "one_retry":
            field, value = clauses.one_retry(tree)
            yield statements.SetField(("batch", field), value)
        case "stop_on_error_or_none":
            yield statements.SetField(("errors", "batch"), clauses.stop_on_error(tree))


def _start(tree: _Tree, _: str) -> statements.Start:
    foreground = child(tree, "foreground")
    limit = _number(foreground) if foreground is not None else None
    if limit == 0:
        wrong(foreground, "LIMIT 0 BATCHES reads nothing")
    return statements.Start(names(tree)[0], child(tree, "if_not_running") is not None, foreground is not None, limit)


def _stop(tree: _Tree, _: str) -> statements.Stop | statements.Detach:
    name = names(tree)[0]
    if token(tree, "DETACH") is not None:
        return statements.Detach(name)
    return statements.Stop(name, child(tree, "if_running") is not None, token(tree, "CANCEL") is not None)


def _extract(tree: _Tree, _: str) -> statements.Extract:
    where = child(tree, "partition")
    partition = clauses.partition(where) if where is not None else None
    return statements.Extract(names(tree)[0], string(tree), partition, _range(tree))


def _backfill(tree: _Tree, _: str) -> statements.Backfill:
    where, offsets = child(tree, "partition"), child(tree, "range")
    partition = clauses.partition(where) if where is not None else None
    return statements.Backfill(names(tree)[0], partition, _range(offsets) if offsets is not None else None)


def _truncate(tree: _Tree, _: str) -> statements.Truncate:
    table = names(next(children(tree, "qualified")))
    if len(table) > 1:
        wrong(tree, "unexpected database name: a home has one database", f"remove `{table[0]}`")
    condition = child(tree, "where")
    if condition is not None:
        refuse(condition, "DELETE ... WHERE")
    return statements.Truncate(table[0])


def _range(tree: _Tree) -> Range | None:
    numbers = [item for item in tree.children if isinstance(item, Token) and item.type == "INT"]
    if not numbers:
        return None
    start, end = map(clauses.number, numbers)
    if start >= end:
        wrong(numbers[1], f"the range from {start} to {end} is empty: its end is exclusive")
    return Range(start, end)


def _test(tree: _Tree, _: str) -> statements.Test:
    limit = _number(tree)
    if limit == 0:
        wrong(tree, "LIMIT 0 shows nothing")
    return statements.Test(names(tree)[0], limit)


def _number(tree: _Tree) -> int | None:
    count = token(tree, "INT")
    return clauses.number(count) if count is not None else None


def _refusing(clause: str) -> Callable[[_Tree, str], Any]:
    def builder(tree: _Tree, _: str) -> Any:
        refuse(token(tree) or tree, clause)

    return builder


_BUILDERS: dict[str, Callable[[_Tree, str], statements.Statement]] = {
    "create": _create,
    "alter": _alter,
    "drop": lambda tree, _: statements.Drop(names(tree)[0], child(tree, "if_exists") is not None),
    "start_one": _start,
    "start_many": lambda tree, _: statements.StartMany(token(tree, "FAILED") is not None),
    "stop_one": _stop,
    "stop_all": lambda tree, _: statements.StopAll(token(tree, "CANCEL") is not None),
    "detach": lambda tree, _: statements.Detach(names(tree)[0], child(tree, "if_exists") is not None),
    "test": _test,
    "show_pipelines": lambda _, __: statements.ShowPipelines(),
    "show_create": lambda tree, _: statements.ShowCreate(names(tree)[0], token(tree, "EXTENDED") is not None),
    "extract": _extract,
    "infer": lambda tree, text: statements.Infer(*definition(tree, text)),
    "clear": lambda tree, _: statements.ClearErrors(next(iter(names(tree)), None)),
    "backfill": _backfill,
    "truncate": _truncate,
    "delete": _truncate,
    "reset": lambda tree, _: statements.Reset(tuple(names(tree))),
    "replay": lambda tree, _: statements.Replay(names(tree)[0]),
    "infer_table": _refusing("INFER TABLE"),
    "create_inferred": _refusing("CREATE INFERRED PIPELINE"),
    "profile": _refusing("PROFILE PIPELINE"),
    "show_profile": _refusing("PROFILE PIPELINE"),
}
