"""kpipe measured beside its peers: `python -m bench`. docs/benchmarks.md says what is measured, and how."""
