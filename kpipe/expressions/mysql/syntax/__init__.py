"""Parse MySQL's expressions into a syntax tree."""
