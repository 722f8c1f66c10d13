"""Distinguish kpipe's statements from DuckDB's by their first keywords."""

from __future__ import annotations

import re

__all__ = ["GAP", "KPIPE"]

#: White space and comments: `--` and `#` to the end of the line, and between /* and */.
GAP = r"(?:\s|--[^\n]*(?:\n|\Z)|#[^\n]*(?:\n|\Z)|\/\*[\s\S]*?\*\/)"
# DuckDB's objects of CREATE, ALTER and DROP are listed, so that the grammar reports a misspelt PIPELINE.
_OBJECTS = (
    r"(?:TEMP(?:ORARY)?|TABLE|VIEW|SCHEMA|INDEX|MACRO|FUNCTION|SEQUENCE|TYPE|SECRET|UNIQUE|PERSISTENT|DATABASE|RECURSIVE"
    r"|PROCEDURE|LINK|RESOURCE|ROLE|GROUP|ROWSTORE|COLUMNSTORE|REFERENCE|GLOBAL|TRIGGER|USER)\b"
)
#: The first keywords of kpipe's statements; all others are DuckDB's.
KPIPE = re.compile(
    rf"(?:(?:CREATE(?:{GAP}+OR{GAP}+REPLACE)?|ALTER|DROP)(?!{GAP}+OR\b)(?!{GAP}+{_OBJECTS})"
    rf"|START|STOP|DETACH{GAP}+PIPELINE|TEST|SHOW{GAP}+(?:PIPELINES?|CREATE|PROFILE)|EXTRACT|INFER|CLEAR|BACKFILL|REPLAY|PROFILE|TRUNCATE"
    r"|DELETE|RESET)\b",
    re.IGNORECASE,
)
