"""A steady load for a long time, and what the nodes' memory does meanwhile."""
