"""The cluster layer: connects this node's clients with the leaders of their queues."""
