"""MySQL's and SingleStore's expressions: read, checked against a list of what kpipe knows, and compiled to DuckDB's SQL."""
