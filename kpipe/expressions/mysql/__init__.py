"""Compile expressions of MySQL and SingleStore to DuckDB's SQL: parse them, check functions against a list, emit SQL."""
