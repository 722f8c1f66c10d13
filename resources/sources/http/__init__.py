"""Lists that HTTP APIs return in pages of JSON, as a source."""
