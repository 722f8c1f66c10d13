"""Fetch schemas by id from a schema registry with Confluent's API. Imported by Spark's workers."""
