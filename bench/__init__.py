"""kpipe measured beside its peers: `python -m bench`. docs/explanation/benchmarks.md says what is measured, and how."""
