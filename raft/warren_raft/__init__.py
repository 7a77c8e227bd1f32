"""Consensus for Warren: a replicated log, independent of what its entries mean."""
