"""Decode blocks of payloads to columns. Spark's workers import this package: imports must be fast."""
