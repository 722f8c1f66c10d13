"""Functions of texts, bytes and types in MySQL's and SingleStore's manuals that are refused, with what to write instead.

Sources: MySQL 8.4 manual, "String Functions and Operators", "Encryption and Compression Functions"; SingleStore's manual,
"String Functions" and "Full-Text Search Functions".
"""

from __future__ import annotations

__all__ = ["TEXTS"]

_SEARCH = ("a record has no full-text index", "write INSTR(value, text) > 0, LIKE or REGEXP")
_SETS = ("every text is UTF-8, and compared by its bytes", "leave it out")
_LISTS = ("an expression has no lists", "write SUBSTRING_INDEX(SUBSTRING_INDEX(value, ',', n), ',', -1)")

TEXTS: dict[str, tuple[str, str]] = {
    **dict.fromkeys(("MATCH", "HIGHLIGHT", "BM25", "BM25_GLOBAL"), _SEARCH),
    "WEIGHT_STRING": _SETS,
    **dict.fromkeys(("SPLIT", "STRING_TO_ARRAY", "TABLE", "REGEXP_MATCH"), _LISTS),
    "CHR": ("it is Oracle's", "write CHAR(65 USING utf8mb4)"),
    "CONTAINS": ("it is no function of MySQL's", "write INSTR(value, text) > 0"),
    "DIFFERENCE": ("it compares sounds of two texts", "write SOUNDEX(a) = SOUNDEX(b)"),
    "EDIT_DISTANCE": ("it is no function of MySQL's", "compare in a program: WITH TRANSFORM, docs/guide/transforms.md"),
    "FORMAT_BYTES": ("it is not translated", "write CONCAT(FORMAT(value / 1048576, 2), ' MiB')"),
    "ILIKE": ("it is no operator of MySQL's", "write LOWER(value) LIKE 'text%'"),
    "LEN": ("it is no function of MySQL's", "write CHAR_LENGTH(value), or LENGTH(value) for bytes"),
    "LOAD_FILE": ("a task reads no files", "join a small table: LOOKUP name KEY (column) FROM ..."),
    "NATURAL_SORT_KEY": ("it is MariaDB's alone", "write LPAD(value, 20, '0')"),
    "REGEXP_COUNT": ("it is no function of MySQL's or SingleStore's", "write LENGTH(value) - LENGTH(REPLACE(value, 'x', ''))"),
    "REGEXP_EXTRACT": ("it is DuckDB's", "write REGEXP_SUBSTR(value, pattern)"),
    "REGEXP_MATCHES": ("it is DuckDB's", "write REGEXP_LIKE(value, pattern), or value REGEXP pattern"),
    "SFORMAT": ("it is MariaDB's alone", "write CONCAT(a, ' ', b)"),
    "SHA224": ("DuckDB has SHA-1 and SHA-256", "write SHA2(value, 256)"),
    "SHA256": ("it is no function of MySQL's", "write SHA2(value, 256)"),
    "SHA384": ("DuckDB has SHA-1 and SHA-256", "write SHA2(value, 256)"),
    "SHA512": ("DuckDB has SHA-1 and SHA-256", "write SHA2(value, 256)"),
    "SPLIT_PART": ("it is PostgreSQL's", "write SUBSTRING_INDEX(SUBSTRING_INDEX(value, ',', n), ',', -1)"),
    "STARTS_WITH": ("it is no function of MySQL's", "write LEFT(value, CHAR_LENGTH(text)) = text, or value LIKE 'text%'"),
    "STATEMENT_DIGEST": ("it is about statements of a server", "write SHA2(value, 256)"),
    "STATEMENT_DIGEST_TEXT": ("it is about statements of a server", "write SHA2(value, 256)"),
    "STRING_AGG": ("a record is alone: there is nothing to group", "group when you read the table"),
    "STRING_BYTES": ("it is not translated", "write LENGTH(value)"),
    "STRPOS": ("it is PostgreSQL's", "write INSTR(value, text)"),
    "TRANSLATE": ("it is Oracle's", "write REPLACE for each character"),
    "TRY_CAST": ("it is DuckDB's", "write CAST(value AS type), which is 0 or NULL for what does not fit"),
    "VALIDATE_PASSWORD_STRENGTH": ("it is about accounts of a server", "write LENGTH(value) >= 8"),
}
