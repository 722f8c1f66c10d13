"""HTTP requests to addresses that have been checked."""
