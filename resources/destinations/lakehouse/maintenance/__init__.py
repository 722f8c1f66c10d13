"""Compact tables in table formats, and prove before the commit that their rows stay the same."""
