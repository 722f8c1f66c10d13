"""Keep the ledger in tables next to the loaded tables: lanes, history, dead letters, views, and the recount against them."""
