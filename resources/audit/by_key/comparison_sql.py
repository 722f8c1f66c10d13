"""SQL that compares the files of records with those of rows, and the SQL file of a report by key.

The same statements compare one bucket in the audit, and all files when an auditor proves the report again.
"""

# ruff: noqa: S608 - numbers, and names of this module
from __future__ import annotations

from collections.abc import Sequence

from kpipe.audit.key_outcomes import KeyOutcome

__all__ = ["CHECKS", "TABLES", "compare_every", "compare_latest"]

TABLES = (
    """CREATE TABLE audit (
        identity VARCHAR NOT NULL, format INTEGER NOT NULL, started TIMESTAMPTZ NOT NULL, finished TIMESTAMPTZ,
        table_read VARCHAR, table_sql VARCHAR, verdict VARCHAR, problems VARCHAR[])""",
    "CREATE TABLE parts (part INTEGER NOT NULL, counts VARCHAR NOT NULL)",
    'CREATE TABLE unreadable ("partition" INTEGER NOT NULL, "offset" BIGINT NOT NULL, reason VARCHAR NOT NULL)',
    "CREATE TABLE buckets (bucket INTEGER NOT NULL)",
    "CREATE TABLE totals (bucket INTEGER NOT NULL, outcome UTINYINT NOT NULL, count BIGINT NOT NULL)",
    """CREATE TABLE findings (
        key VARCHAR NOT NULL, outcome UTINYINT NOT NULL, count BIGINT NOT NULL, "columns" INTEGER[] NOT NULL,
        "partition" INTEGER, "offset" BIGINT, rows BIGINT NOT NULL)""",
    "CREATE TABLE outcomes (outcome UTINYINT NOT NULL, name VARCHAR NOT NULL, meaning VARCHAR NOT NULL)",
    'CREATE TABLE "columns" (number INTEGER NOT NULL, name VARCHAR NOT NULL, path VARCHAR NOT NULL, compared BOOLEAN NOT NULL)',
)


def _state(columns: Sequence[int], absent: str = "absent") -> str:
    return f"struct_pack(absent := {absent}{''.join(f', h{at} := h{at}' for at in columns)})"


def _nothing(columns: Sequence[int]) -> str:
    return f"struct_pack(absent := true{''.join(f', h{at} := 0::UBIGINT' for at in columns)})"


def _differing(columns: Sequence[int], one: str, other: str) -> str:
    """Return the list of the numbers of the columns that differ."""
    items = ", ".join(f"CASE WHEN {one}.h{at} <> {other}.h{at} THEN {at} END" for at in columns)
    return f"list_filter([{items}]::INTEGER[], lambda x: x IS NOT NULL)" if columns else "[]::INTEGER[]"


def compare_latest(columns: Sequence[int], older: bool, compacted: bool = False) -> str:
    """Return the query that compares the newest record of each key with the row of the key.

    Its tables are `records` and `found_rows`; its columns are those of `findings`, for each key.

    Args:
        columns: numbers of the compared columns.
        older: whether the log may have contained records that it does not contain any more.
        compacted: whether a later record of a key may have replaced the newest one of the range.
    """
    o = {outcome.name: int(outcome) for outcome in KeyOutcome}
    return f"""\
WITH newest AS (  -- of each partition: only there, records have an order
  SELECT key, "partition", max("offset") AS "offset", arg_max({_state(columns)}, "offset") AS state
  FROM records WHERE NOT later GROUP BY key, "partition"),
wanted AS (
  SELECT key, count(DISTINCT state) AS states, arg_max(state, "offset") AS state,
    arg_max("partition", "offset") AS "partition", max("offset") AS "offset"
  FROM newest GROUP BY key),
had AS (SELECT key, count(*) AS rows, any_value({_state(columns)}) AS state FROM found_rows GROUP BY key),
later AS (SELECT DISTINCT key, {_state(columns)} AS state FROM records WHERE later),
replaced AS (  -- of a compacted topic, keys whose newest record of the range is unknown
  SELECT DISTINCT key FROM later WHERE {str(compacted).lower()}),
both_sides AS (
  SELECT coalesce(wanted.key, had.key, replaced.key) AS key, wanted.state AS wanted,
    coalesce(had.state, {_nothing(columns)}) AS had, wanted.states, wanted."partition", wanted."offset",
    coalesce(had.rows, 0) AS rows, replaced.key IS NOT NULL AS replaced
  FROM wanted FULL JOIN had ON wanted.key = had.key FULL JOIN replaced ON replaced.key = coalesce(wanted.key, had.key)),
decided AS (
  SELECT *, CASE
      WHEN rows > 1 THEN {o["DUPLICATE"]}
      WHEN states > 1 THEN {o["UNORDERED"]}
      WHEN wanted IS NULL THEN {o["OLDER"] if older else o["SURPLUS"]}
      WHEN wanted.absent AND rows = 0 THEN {o["ABSENT"]}
      WHEN wanted.absent THEN {o["UNDELETED"]}
      WHEN rows = 0 THEN {o["MISSING"]}
      WHEN wanted = had THEN {o["MATCHED"]}
      ELSE {o["DIFFERING"]} END AS by_range
  FROM both_sides),
settled AS (
  SELECT d.*, CASE
      WHEN by_range = {o["DUPLICATE"]} THEN by_range
      WHEN later.key IS NOT NULL AND by_range NOT IN ({o["ABSENT"]}, {o["MATCHED"]}) THEN {o["NEWER"]}
      WHEN later.key IS NULL AND replaced THEN {o["REPLACED"]}
      ELSE by_range END AS outcome
  FROM decided AS d LEFT JOIN later ON later.key = d.key AND later.state = d.had)
SELECT key, outcome::UTINYINT AS outcome, 1::BIGINT AS count,
  CASE WHEN outcome = {o["DIFFERING"]} THEN {_differing(columns, "wanted", "had")} ELSE [] END AS "columns",
  "partition", "offset", rows
FROM settled"""


def compare_every(columns: Sequence[int], older: bool) -> str:
    """Return the query that compares the numbers of records and of rows with the same key and content; see `compare_latest`.

    Its result has a row for each key, content and outcome. A record without a value has the content of a row of nothing else.
    """
    o = {outcome.name: int(outcome) for outcome in KeyOutcome}
    content = _state(columns, "false")
    return f"""\
WITH numbers AS (
  SELECT key, {content} AS content, count(*) FILTER (NOT later) AS wanted, count(*) FILTER (later) AS later, 0 AS had,
    arg_min("partition", "offset") AS "partition", min("offset") AS "offset"
  FROM records GROUP BY ALL
  UNION ALL
  SELECT key, {content} AS content, 0, 0, count(*), NULL, NULL FROM found_rows GROUP BY ALL),
grouped AS (
  SELECT key, content, sum(wanted) AS wanted, sum(later) AS later, sum(had) AS had,
    min("partition") AS "partition", min("offset") AS "offset"
  FROM numbers GROUP BY key, content),
spread AS MATERIALIZED (
  SELECT *, greatest(wanted - had, 0) AS missing, greatest(had - wanted - later, 0) AS surplus FROM grouped),
pairs AS MATERIALIZED (  -- of one key, as many records without a row as rows without a record
  SELECT key, sum(missing) AS count, min("partition") AS "partition", min("offset") AS "offset",
    any_value(content) FILTER (missing > 0) AS wanted, any_value(content) FILTER (surplus > 0) AS had
  FROM spread WHERE missing > 0 OR surplus > 0 GROUP BY key
  HAVING count(*) FILTER (missing > 0) = 1 AND count(*) FILTER (surplus > 0) = 1 AND sum(missing) = sum(surplus)),
alone AS (SELECT * FROM spread ANTI JOIN pairs USING (key)),
every_result AS (
  SELECT key, {o["MATCHED"]} AS outcome, least(wanted, had) AS count, []::INTEGER[] AS "columns", "partition", "offset",
    had AS rows FROM spread
  UNION ALL
  SELECT key, {o["NEWER"]}, least(greatest(had - wanted, 0), later), [], "partition", "offset", had FROM spread
  UNION ALL
  SELECT key, {o["DIFFERING"]}, count, {_differing(columns, "wanted", "had")}, "partition", "offset", count FROM pairs
  UNION ALL
  SELECT key, {o["MISSING"]}, missing, [], "partition", "offset", had FROM alone
  UNION ALL
  SELECT key, CASE WHEN wanted + later > 0 THEN {o["DUPLICATE"]} ELSE {o["OLDER"] if older else o["SURPLUS"]} END,
    surplus, [], "partition", "offset", had FROM alone)
SELECT key, outcome::UTINYINT AS outcome, count::BIGINT AS count, "columns", "partition", "offset", rows::BIGINT AS rows
FROM every_result WHERE count > 0"""


CHECKS = """\
-- Prove the audit again, in the folder of the report:  duckdb -readonly report.duckdb < checks.sql
-- Queries 1 and 2 return no row if the report is correct.
--
-- rows/*.parquet contains the key of each row, and for each compared column hN a hash of its text, as it was read with:
{TABLE}
-- records/*.parquet contains the same of each record. "later": written after the end of the range; "absent": without a value.
-- The hash is DuckDB's md5_number_lower(text), and 0 for NULL. Numbers and names of columns are in the table "columns".

-- 1. The outcomes, compared again.
WITH records AS (SELECT * FROM read_parquet('records/*.parquet')),
found_rows AS (SELECT * FROM read_parquet('rows/*.parquet')),
result AS (
{COMPARE}
),
again AS (SELECT outcome, sum(count) AS n FROM result GROUP BY outcome),
reported AS (SELECT outcome, sum(count) AS n FROM totals GROUP BY outcome)
SELECT 'totals' AS check_name, outcome, coalesce(again.n, 0) AS expected, coalesce(reported.n, 0) AS found
FROM again FULL JOIN reported USING (outcome) WHERE expected <> found;

-- 2. Everything that is not explained is a finding.
WITH listed AS (SELECT outcome, sum(count) AS n FROM findings GROUP BY outcome),
reported AS (SELECT outcome, sum(count) AS n FROM totals WHERE outcome NOT IN ({ALWAYS}) GROUP BY outcome)
SELECT 'findings' AS check_name, outcome, coalesce(reported.n, 0) AS expected, coalesce(listed.n, 0) AS found
FROM reported FULL JOIN listed USING (outcome) WHERE expected <> found;

-- 3. The result: keys (or records and rows) by outcome, and whether each is explained.
SELECT o.name, sum(t.count) AS count, t.outcome IN ({EXPLAINED}) AS explained, o.meaning
FROM totals AS t JOIN outcomes AS o USING (outcome) GROUP BY ALL ORDER BY explained, count DESC;

-- 4. What is not explained.
SELECT f.key, o.name, f.count, f."partition", f."offset", f.rows,
  (SELECT list(c.name ORDER BY c.number) FROM "columns" AS c WHERE list_contains(f."columns", c.number)) AS differing
FROM findings AS f JOIN outcomes AS o USING (outcome)
WHERE f.outcome NOT IN ({EXPLAINED}) ORDER BY ALL LIMIT 1000;
"""
