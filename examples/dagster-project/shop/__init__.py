"""A Dagster project with a pipeline of kpipe and an asset of its own."""
