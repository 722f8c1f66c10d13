"""Decode Avro records."""
