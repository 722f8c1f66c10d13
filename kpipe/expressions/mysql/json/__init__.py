"""Compile and compute MySQL's and SingleStore's JSON functions."""
