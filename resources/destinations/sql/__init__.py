"""What destinations that are SQL databases have in common: the ledger's tables, the commit, the recount."""
