"""Dagster sensors: continuous ingest, topic metadata, and their on/off state."""
