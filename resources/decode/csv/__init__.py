"""Decode CSV records by the rules of LOAD DATA."""
