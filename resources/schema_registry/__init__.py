"""A schema registry with Confluent's API: which schema an id names. Imported by Spark's workers."""
