"""The demo's data and pipeline."""
