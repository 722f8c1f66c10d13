"""Audit a table by key: the contents of records and rows, as hashes in files, compared by SQL."""
