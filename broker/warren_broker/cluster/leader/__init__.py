"""What this node does for the queues that it leads."""
