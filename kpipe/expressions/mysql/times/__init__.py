"""Compile MySQL's dates, times and intervals."""
