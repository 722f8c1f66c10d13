"""Read and write S3-compatible object stores: staged files, ledger files, table files. Spark's workers import this package."""
