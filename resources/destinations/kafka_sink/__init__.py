"""Kafka destination: rows, dead letters and ledger are written to topics in one Kafka transaction."""

from resources.destinations.kafka_sink.destination import KafkaDestination

__all__ = ["KafkaDestination"]
