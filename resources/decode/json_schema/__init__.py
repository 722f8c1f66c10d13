"""Decode JSON records that must conform to a JSON Schema."""
