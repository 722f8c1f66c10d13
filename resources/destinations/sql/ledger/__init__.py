"""The ledger as tables beside the loaded ones: lanes, history, dead letters, views, and the recount against them."""
