"""Rebuild a table beside the live one, and exchange the two."""
