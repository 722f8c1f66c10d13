"""Files as a source, on a disk or in an object store."""
