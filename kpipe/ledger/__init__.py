"""The ledger: which offsets of each partition have been read, changed by compare-and-swap."""
