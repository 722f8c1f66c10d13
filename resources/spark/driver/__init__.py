"""The driver's side of a batch: split it, run its tasks, collect reports; what is shipped to workers."""
