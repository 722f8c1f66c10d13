"""The outside world: Kafka, Spark, destinations, the local broker. Imports kpipe and transforms, never kpipe_assets."""
