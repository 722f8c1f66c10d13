"""Definitions that Dagster loads from this folder."""
