"""Measure kpipe and comparable systems: `python -m bench`. Definitions and methods: docs/explanation/benchmarks.md."""
