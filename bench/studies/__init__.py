"""Measurements of one thing each, run by hand: `python -m bench.studies.NAME`."""
