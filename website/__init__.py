"""Build the documentation site, and generate its reference pages from the code."""
