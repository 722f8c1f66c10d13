"""Functions that are rejected by name, each with the reason and an alternative."""
