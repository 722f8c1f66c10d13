"""One Spark for several processes: `kpipe serve` runs the batches of runs that have no Spark of their own (ADR 50)."""
