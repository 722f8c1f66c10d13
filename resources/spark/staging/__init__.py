"""Staged Parquet files: written once, hashed, durable before they are reported."""
