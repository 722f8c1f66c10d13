"""Compile MySQL's and SingleStore's functions of texts, numbers, bytes and conditions."""
