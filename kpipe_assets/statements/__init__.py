"""Execute the statements that kpipe/sql has parsed."""
