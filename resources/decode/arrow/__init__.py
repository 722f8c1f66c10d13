"""Decode the Arrow streams that programs write: foreign bytes to typed columns of a table."""
