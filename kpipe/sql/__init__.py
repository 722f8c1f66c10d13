"""Parse and print statements in SingleStore's grammar, as plain values. Executes nothing."""
