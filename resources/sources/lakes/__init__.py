"""Tables of Delta Lake and Iceberg as a source, by their data files."""
