"""A batch of offset ranges: what is read, what the tasks report, what is committed. Plain values."""
