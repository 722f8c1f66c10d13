"""Verify that every offset is accounted for: the ledger's sums and the table counted again."""
