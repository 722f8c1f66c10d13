"""A Spark task: read a range, transform, decode, project, write staged files."""
