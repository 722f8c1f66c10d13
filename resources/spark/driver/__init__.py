"""The driver's side of Spark: session, stager, what is shipped to workers."""
