"""Decode JSON records."""
