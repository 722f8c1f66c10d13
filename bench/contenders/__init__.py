"""What is measured: kpipe, and those beside it."""
