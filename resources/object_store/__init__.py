"""Object stores with S3's API: for staged files, the ledger's files and the files of tables. Imported by Spark's workers."""
