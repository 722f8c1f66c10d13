"""Merge the writes of a batch into a table with a key."""
