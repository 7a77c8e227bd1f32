"""Between this node's clients and the leaders of their queues."""
