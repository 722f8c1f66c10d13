"""Pipelines as SQL: statements to plain values and back, in SingleStore's grammar. Executes nothing."""
