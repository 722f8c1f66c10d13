"""Public fakes of the three edges (kpipe/interfaces.py), for tests of pipelines without Kafka, Spark or a database."""
