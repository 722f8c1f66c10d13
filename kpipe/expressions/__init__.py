"""Expressions of a definition: DuckDB's SQL or MySQL's, compiled to DuckDB's SQL. Executes nothing."""
