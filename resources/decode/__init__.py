"""From bytes to columns, in blocks. Imported by Spark's workers: nothing here may be slow to import."""
