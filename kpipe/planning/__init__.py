"""Plan the next batch from the ledger and the broker offsets; start, seek and reconcile."""
