"""The local Kafka: its jars, its node, its process, and a mock where neither can be had."""
