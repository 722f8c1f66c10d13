"""Publish committed batches to Dagster: asset metadata and events."""
