"""SQL of a report: its tables, and the queries with which an auditor proves it again."""

from __future__ import annotations

__all__ = ["CHECKS", "DECLARED_OFFSETS", "MISNUMBERED", "NOTHING_DECLARED", "NUMBERED_CHECK", "TABLES"]

TABLES = (
    """CREATE TABLE IF NOT EXISTS audit (
        identity VARCHAR NOT NULL, format INTEGER NOT NULL, started TIMESTAMPTZ NOT NULL, finished TIMESTAMPTZ,
        table_read VARCHAR, table_sql VARCHAR, verdict VARCHAR, problems VARCHAR[], notes VARCHAR)""",
    """CREATE TABLE IF NOT EXISTS partitions (
        "partition" INTEGER NOT NULL, "start" BIGINT NOT NULL, "end" BIGINT NOT NULL, log_start BIGINT NOT NULL,
        last_stable BIGINT NOT NULL, high_watermark BIGINT NOT NULL, rows BIGINT NOT NULL, first_row BIGINT, last_row BIGINT)""",
    """CREATE TABLE IF NOT EXISTS windows (
        "partition" INTEGER NOT NULL, "start" BIGINT NOT NULL, "end" BIGINT NOT NULL, rows BIGINT NOT NULL,
        compared TIMESTAMPTZ NOT NULL)""",
    """CREATE TABLE IF NOT EXISTS totals (
        "partition" INTEGER NOT NULL, "window" BIGINT NOT NULL, outcome UTINYINT NOT NULL, offsets BIGINT NOT NULL)""",
    """CREATE TABLE IF NOT EXISTS log_runs (
        "partition" INTEGER NOT NULL, "start" BIGINT NOT NULL, "end" BIGINT NOT NULL, state UTINYINT NOT NULL,
        rows BIGINT NOT NULL)""",
    """CREATE TABLE IF NOT EXISTS findings (
        "partition" INTEGER NOT NULL, "start" BIGINT NOT NULL, "end" BIGINT NOT NULL, outcome UTINYINT NOT NULL,
        rows BIGINT NOT NULL)""",
    "CREATE TABLE IF NOT EXISTS invalid_rows (found VARCHAR NOT NULL)",
    "CREATE TABLE IF NOT EXISTS outcomes (outcome UTINYINT NOT NULL, name VARCHAR NOT NULL, meaning VARCHAR NOT NULL)",
    "CREATE TABLE IF NOT EXISTS states (state UTINYINT NOT NULL, name VARCHAR NOT NULL, meaning VARCHAR NOT NULL)",
)

MISNUMBERED = """\
WITH numbered AS (SELECT * FROM read_parquet('numbered_rows.parquet')),
counted AS (SELECT "partition", "offset", number, count(*) AS n FROM numbered GROUP BY ALL),
records AS (
  SELECT "partition", "offset", sum(n) AS rows, max(n) AS most, count(*) AS different, min(number) AS low, max(number) AS high
  FROM counted GROUP BY "partition", "offset"),
base AS (SELECT least(1, coalesce(min(number) FILTER (WHERE number >= 0), 1)) AS lowest FROM numbered)
SELECT r."partition", r."offset", r.rows::BIGINT AS rows, r.low, r.high
FROM records AS r CROSS JOIN base JOIN partitions AS p
  ON p."partition" = r."partition" AND r."offset" >= p."start" AND r."offset" < p."end"
WHERE NOT (most = 1 AND (low = -1 AND different = 1 OR low = lowest AND high = lowest + different - 1))"""
"""Records whose rows are not numbered once each from 0 or 1. A single row may have no number (-1): that of an empty list."""

NUMBERED_CHECK = """
-- 3b. numbered_rows.parquet contains each row with its number in the record, and rows.parquet each record with rows once.
SELECT 'records' AS check_name, expected, found FROM (
  SELECT (SELECT count(*) FROM (SELECT DISTINCT "partition", "offset" FROM read_parquet('numbered_rows.parquet'))) AS expected,
    (SELECT count(*) FROM (SELECT DISTINCT "partition", "offset" FROM read_parquet('rows.parquet'))) AS found)
WHERE expected <> found;

SELECT 'numbers' AS check_name, expected, found FROM (
  SELECT (SELECT count(*) FROM ({MISNUMBERED})) AS expected,
    (SELECT json_extract(notes, '$.misnumbered')::BIGINT FROM audit) AS found)
WHERE expected <> found;
""".replace("{MISNUMBERED}", MISNUMBERED)

DECLARED_OFFSETS = """\
SELECT DISTINCT d."partition", d."offset", true AS declared FROM read_parquet('declared.parquet') AS d
  JOIN partitions AS p ON p."partition" = d."partition" AND d."offset" >= p."start" AND d."offset" < p."end"
"""
NOTHING_DECLARED = 'SELECT "partition", "start" AS "offset", true AS declared FROM partitions WHERE false'

CHECKS = """\
-- Prove the audit again, in the folder of the report:  duckdb -readonly report.duckdb < checks.sql
-- Each query below but the last two returns no row if the report is correct.
-- rows.parquet contains partition and offset of each row, as they were read from the table with:
{TABLE}
-- log_runs contains the offsets without a committed record with a value. All others in the audited ranges have one.

-- 1. The windows cover each audited range once.
SELECT 'windows' AS check_name, p."partition", p."end" - p."start" AS expected, coalesce(sum(w."end" - w."start"), 0) AS found
FROM partitions AS p LEFT JOIN windows AS w
  ON w."partition" = p."partition" AND w."start" >= p."start" AND w."end" <= p."end"
GROUP BY ALL HAVING expected <> found;

SELECT 'overlapping windows' AS check_name, "partition", "start", following
FROM (SELECT *, lead("start") OVER (PARTITION BY "partition" ORDER BY "start") AS following FROM windows)
WHERE following < "end";

-- 2. Findings are the outcomes of the offsets. An outcome follows from the state in the log, the rows (2: or more), and --except.
WITH rules AS (
  SELECT * FROM (VALUES
{RULES}
  ) AS r(state, rows, declared, outcome)),
with_rows AS (
  SELECT r."partition", r."offset", least(count(*), 2) AS rows FROM read_parquet('rows.parquet') AS r
  JOIN partitions AS p ON p."partition" = r."partition" AND r."offset" >= p."start" AND r."offset" < p."end"
  GROUP BY ALL),
named AS ({DECLARED}),
offsets AS (
  SELECT "partition", "offset", coalesce(rows, 0) AS rows, coalesce(declared, false) AS declared
  FROM with_rows FULL JOIN named USING ("partition", "offset")),
placed AS (
  SELECT o."partition", CASE WHEN l.state IS NULL OR o."offset" >= l."end" THEN 1 ELSE l.state END AS state, o.rows, o.declared,
    count(*) AS n
  FROM offsets AS o ASOF LEFT JOIN log_runs AS l ON l."partition" = o."partition" AND l."start" <= o."offset"
  GROUP BY ALL),
counted AS (  -- all others have no row and are not declared
  SELECT * FROM placed
  UNION ALL SELECT "partition", state, 0, false, -n FROM placed
  UNION ALL SELECT "partition", state, 0, false, "end" - "start" FROM log_runs
  UNION ALL SELECT "partition", 1, 0, false, "end" - "start" FROM partitions
  UNION ALL SELECT "partition", 1, 0, false, "start" - "end" FROM log_runs),
again AS (SELECT "partition", outcome, sum(n) AS n FROM counted JOIN rules USING (state, rows, declared) GROUP BY ALL),
listed AS (SELECT "partition", outcome, sum("end" - "start") AS n FROM findings GROUP BY ALL)
SELECT 'findings' AS check_name, "partition", outcome, coalesce(again.n, 0) AS expected, coalesce(listed.n, 0) AS found
FROM again FULL JOIN listed USING ("partition", outcome) WHERE outcome <> 0 AND expected <> found;

-- 3. The totals are those of the findings. All other offsets are matched.
WITH listed AS (
  SELECT "partition", outcome, "end" - "start" AS n FROM findings
  UNION ALL SELECT "partition", 0, "end" - "start" FROM partitions
  UNION ALL SELECT "partition", 0, "start" - "end" FROM findings),
summed AS (SELECT "partition", outcome, sum(n) AS n FROM listed GROUP BY ALL),
reported AS (SELECT "partition", outcome, sum(offsets) AS n FROM totals GROUP BY ALL)
SELECT 'totals' AS check_name, "partition", outcome, coalesce(summed.n, 0) AS expected, coalesce(reported.n, 0) AS found
FROM summed FULL JOIN reported USING ("partition", outcome) WHERE expected <> found;

{NUMBERED}-- 4. The result: offsets by outcome, and whether each is explained.
SELECT o.name, sum(t.offsets) AS offsets, t.outcome IN ({EXPLAINED}) AS explained, o.meaning
FROM totals AS t JOIN outcomes AS o USING (outcome) GROUP BY ALL ORDER BY explained, offsets DESC;

-- 5. Unexplained offsets.
SELECT f."partition", f."start", f."end", o.name, f.rows FROM findings AS f JOIN outcomes AS o USING (outcome)
WHERE f.outcome NOT IN ({EXPLAINED}) ORDER BY ALL LIMIT 1000;
"""
