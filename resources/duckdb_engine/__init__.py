"""DuckDB as an engine: closed to the network and to files that are not given to it."""
