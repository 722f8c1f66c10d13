"""Audit a table that another program loaded: coordinates, windows, and outcomes of offsets. Pure; reads nothing."""
