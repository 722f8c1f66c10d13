"""Read and write object stores: staged files, ledger files, table files. Spark's workers import this package."""
