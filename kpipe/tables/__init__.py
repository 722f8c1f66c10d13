"""Pipelines that write several tables, and tables with a key."""
