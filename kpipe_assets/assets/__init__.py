"""Dagster assets and asset checks: topics, tables, proofs."""
