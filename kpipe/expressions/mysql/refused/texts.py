"""Functions of texts, bytes and types that are rejected by name, each with the reason and an alternative.

Sources: MySQL 8.4 manual, "String Functions and Operators", "Encryption and Compression Functions"; SingleStore's manual,
"String Functions" and "Full-Text Search Functions".
"""

from __future__ import annotations

__all__ = ["TEXTS"]

_SEARCH = ("a record has no full-text index", "write INSTR(value, text) > 0, LIKE or REGEXP")
_SETS = ("every text is UTF-8 and compared by its bytes", "remove it")
_LISTS = ("MySQL's expressions have no lists", "write SUBSTRING_INDEX(SUBSTRING_INDEX(value, ',', n), ',', -1)")

TEXTS: dict[str, tuple[str, str]] = {
    **dict.fromkeys(("MATCH", "HIGHLIGHT", "BM25", "BM25_GLOBAL"), _SEARCH),
    "WEIGHT_STRING": _SETS,
    **dict.fromkeys(("SPLIT", "STRING_TO_ARRAY", "TABLE", "REGEXP_MATCH"), _LISTS),
    "CHR": ("it is a function of Oracle", "write CHAR(65 USING utf8mb4)"),
    "CONTAINS": ("it is not a function of MySQL", "write INSTR(value, text) > 0"),
    "DIFFERENCE": ("it compares the SOUNDEX codes of two texts", "write SOUNDEX(a) = SOUNDEX(b)"),
    "EDIT_DISTANCE": ("it is not a function of MySQL", "compare in a program: WITH TRANSFORM, docs/how-to/transforms.md"),
    "FORMAT_BYTES": ("kpipe does not support it", "write CONCAT(FORMAT(value / 1048576, 2), ' MiB')"),
    "ILIKE": ("it is not an operator of MySQL", "write LOWER(value) LIKE 'text%'"),
    "LEN": ("it is not a function of MySQL", "write CHAR_LENGTH(value), or LENGTH(value) for bytes"),
    "LOAD_FILE": ("a task reads no files", "join a small table: LOOKUP name KEY (column) FROM ..."),
    "NATURAL_SORT_KEY": ("it is a function of MariaDB", "write LPAD(value, 20, '0')"),
    "REGEXP_COUNT": ("it is not a function of MySQL or SingleStore", "write LENGTH(value) - LENGTH(REPLACE(value, 'x', ''))"),
    "REGEXP_EXTRACT": ("it is a function of DuckDB", "write REGEXP_SUBSTR(value, pattern)"),
    "REGEXP_MATCHES": ("it is a function of DuckDB", "write REGEXP_LIKE(value, pattern), or value REGEXP pattern"),
    "SFORMAT": ("it is a function of MariaDB", "write CONCAT(a, ' ', b)"),
    "SHA224": ("DuckDB has only SHA-1 and SHA-256", "write SHA2(value, 256)"),
    "SHA256": ("it is not a function of MySQL", "write SHA2(value, 256)"),
    "SHA384": ("DuckDB has only SHA-1 and SHA-256", "write SHA2(value, 256)"),
    "SHA512": ("DuckDB has only SHA-1 and SHA-256", "write SHA2(value, 256)"),
    "SPLIT_PART": ("it is a function of PostgreSQL", "write SUBSTRING_INDEX(SUBSTRING_INDEX(value, ',', n), ',', -1)"),
    "STARTS_WITH": ("it is not a function of MySQL", "write LEFT(value, CHAR_LENGTH(text)) = text, or value LIKE 'text%'"),
    "STATEMENT_DIGEST": ("it is about a server's statements", "write SHA2(value, 256)"),
    "STATEMENT_DIGEST_TEXT": ("it is about a server's statements", "write SHA2(value, 256)"),
    "STRING_AGG": ("it needs many rows, but an expression sees one record", "aggregate in a query on the table"),
    "STRING_BYTES": ("kpipe does not support it", "write LENGTH(value)"),
    "STRPOS": ("it is a function of PostgreSQL", "write INSTR(value, text)"),
    "TRANSLATE": ("it is a function of Oracle", "write REPLACE for each character"),
    "TRY_CAST": ("it is a function of DuckDB", "write CAST(value AS type), which returns 0 or NULL for an invalid value"),
    "VALIDATE_PASSWORD_STRENGTH": ("it is about a server's accounts", "write LENGTH(value) >= 8"),
}
