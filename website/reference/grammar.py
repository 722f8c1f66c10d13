"""Generate the page of the statements' grammar, and of the clauses that are rejected."""

from __future__ import annotations

import re

from kpipe.sql.grammar import GRAMMAR
from kpipe.sql.unsupported_clauses import _REASONS
from website.reference.markdown import sentence, table

__all__ = ["grammar", "rules"]

#: The first rule of each section: those that it refers to follow it.
SECTIONS = {
    "Statements": "create",
    "Clauses of the source": "source",
    "Target": "into",
    "Clauses of the rows": "row_clause",
    "Clauses of ALTER": "change",
    "Expressions and names": "expression",
}
#: Rules that exist only so that the error can name the clause.
REJECTED = {
    "link", "other_source", "resource_pool", "ignore", "errors_handle", "max_errors", "into_procedure", "infer_table",
    "create_inferred", "profile", "show_profile", "offset_cursor", "snapshots", "other_link", "drop_file",
}  # fmt: skip
#: Terminals of the parser that are written otherwise.
WRITTEN = {
    "ON_DUPLICATE": "ON DUPLICATE", "LINES_BY": "LINES", "IGNORE_LINES": "IGNORE", "NULL_TEXT": "NULL", "_OPEN": "'('",
    "PERCENT": "'%'", "EVERY": "'*'",
}  # fmt: skip


def rules() -> dict[str, str]:
    """Return the rules of the grammar by name, without the parser's marks and without what is rejected."""
    text = re.sub(r"\n\s+\|", " |", GRAMMAR)
    found = {}
    for name, rule in re.findall(r"^[?]?_?([a-z_]+): (.+)$", text, re.MULTILINE):
        body = re.sub(r'"([^"]+)"i', r"\1", " ".join(rule.split()))
        body = re.sub(r'"([^"\w]+)"', r"'\1'", body)
        body = re.sub(r"\b_?[A-Z_]+\b", lambda word: WRITTEN.get(word[0], word[0]), body)
        body = re.sub(r"(?<!\w)_([a-z])", r"\1", body)
        body = re.sub(rf" \| (?:{'|'.join(REJECTED)})\b|^(?:{'|'.join(REJECTED)}) \| ", "", body)
        if name not in REJECTED:
            found[name] = body
    return found


def grammar() -> str:
    """Return the page.

    Raises:
        LookupError: the grammar has no rule of that name.
    """
    found = rules()
    if missing := [name for name in SECTIONS.values() if name not in found]:
        raise LookupError(f"website/reference/grammar.py: no such rule: {', '.join(missing)}")
    names = list(found)
    starts = [names.index(first) for first in SECTIONS.values()] + [len(names)]
    parts = [
        "# Grammar\n",
        "Find the place of a clause. [Statements](statements.md) explains what each one does.\n",
        "Words in upper case are keywords, in any case. `?` marks what may be left out, `*` what may repeat, `+` what is\n"
        "there once or more. `string` is a text in quotes, `name` an identifier or a text in backticks.\n",
    ]
    for title, start, end in zip(SECTIONS, starts, starts[1:], strict=False):
        lines = [f"{name} = {found[name]}" for name in names[start:end]]
        parts += [f"## {title}\n", "```ebnf", *lines, "```\n"]
    groups: dict[tuple[str, str], list[str]] = {}
    for clause, reason in _REASONS.items():
        groups.setdefault(reason, []).append(f"`{clause}`")
    rejected = [(", ".join(clauses), sentence(why), sentence(instead)) for (why, instead), clauses in groups.items()]
    parts += ["## Clauses that are rejected\n", table(("clause", "reason", "instead"), rejected)]
    return "\n".join(parts)
