"""What one run of `python -m bench` measures: a module for each part."""
