"""`kpipe serve`: one process that runs every started pipeline, each in a thread, on one SparkContext."""
