"""Read the positions of other loaders: consumer groups, checkpoints, offsets of Kafka Connect, tables."""
