"""The local Kafka: its jars, its node, its process."""
