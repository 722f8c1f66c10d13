"""Trace offsets to batches and rows, and back; find the state of tables at given offsets."""
