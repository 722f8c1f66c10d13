"""The ingest loop: plan, stage, commit."""
