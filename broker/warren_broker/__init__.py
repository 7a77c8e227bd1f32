"""The node: protocols, clusters, administration over replicated machines."""
