"""HTTP requests with limits of time and size, over sockets whose addresses a caller can check."""
