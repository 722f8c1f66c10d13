"""Audit a table that another program loaded: read its offsets and the topic's, compare both, write a report."""
