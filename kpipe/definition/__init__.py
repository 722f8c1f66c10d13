"""A pipeline's definition: every field with its default and limits, and its YAML."""
