"""Maintenance of tables: which files to rewrite, and the proof that the rows stay the same."""
