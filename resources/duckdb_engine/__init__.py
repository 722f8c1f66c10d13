"""Run DuckDB without network access, and without access to files other than those passed to it."""
