"""Tables as a source: rows in the order of an integer column whose values only grow."""
