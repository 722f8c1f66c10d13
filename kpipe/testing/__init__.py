"""Public fakes of the three edges (kpipe/ports.py), for tests of pipelines without Kafka, Spark or a database."""
