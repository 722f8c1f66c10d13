"""Columns and types, how they are inferred from JSON, and how far they may grow."""
