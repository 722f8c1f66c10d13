"""Tools that break things on purpose: a network, a disk, a system call. Each counts how often it struck."""
