"""The JVM of Spark's driver: its start, settings, class archive, session, and the security of its connections."""
