"""Explain what became of an offset, and which commit contains given offsets, from the ledger's history."""
