"""Low-rank adapters where the old task cannot see them."""
